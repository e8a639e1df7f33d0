//! Canonical spelling of JSON values: equal definitions have equal bytes.

use std::ops::Range;

use super::json::{self, JsonFault, lexer::Lexer, lexer::RawString, text};

/// Returns the canonical text of `text`: no white space, members sorted by un-escaped name (by UTF-8 bytes),
/// strings with the fewest escapes, numbers exactly as written.
///
/// # Errors
/// The faults of [`json::check`].
pub fn canonical(text: &str) -> Result<String, JsonFault> {
    json::check(text)?;
    let mut writer = Writer { lexer: Lexer::new(text), out: String::with_capacity(text.len()) };
    writer.value()?;
    Ok(writer.out)
}

/// Writer of the canonical form of a checked text. Recursion ends because the check bounds the depth.
struct Writer<'a> {
    lexer: Lexer<'a>,
    out: String,
}

impl Writer<'_> {
    fn value(&mut self) -> Result<(), JsonFault> {
        self.lexer.skip_space();
        match self.lexer.peek() {
            Some(b'{') => self.object()?,
            Some(b'[') => self.array()?,
            Some(b'"') => {
                let literal = self.lexer.string()?;
                write_string(&mut self.out, literal);
            }
            _ => {
                let start = self.lexer.pos();
                self.lexer.scalar()?;
                self.out.push_str(self.lexer.slice(start..self.lexer.pos()));
            }
        }
        self.lexer.skip_space();
        Ok(())
    }

    fn array(&mut self) -> Result<(), JsonFault> {
        self.lexer.step();
        self.lexer.skip_space();
        self.out.push('[');
        if !self.lexer.take(b']') {
            loop {
                self.value()?;
                if self.lexer.take(b']') {
                    break;
                }
                self.lexer.expect(b',')?;
                self.out.push(',');
            }
        }
        self.out.push(']');
        Ok(())
    }

    /// Writes the members in their order, each behind its comma, then sorts what was written.
    fn object(&mut self) -> Result<(), JsonFault> {
        self.lexer.step();
        self.lexer.skip_space();
        self.out.push('{');
        let first = self.out.len();
        let mut written: Vec<(String, Range<usize>)> = Vec::new();
        let mut more = !self.lexer.take(b'}');
        while more {
            let start = self.out.len();
            self.out.push(',');
            self.lexer.skip_space();
            let name = self.lexer.string()?;
            write_string(&mut self.out, name);
            self.lexer.skip_space();
            self.lexer.expect(b':')?;
            self.out.push(':');
            self.value()?;
            written.push((name.unescape().into_owned(), start..self.out.len()));
            more = !self.lexer.take(b'}');
            if more {
                self.lexer.expect(b',')?;
            }
        }
        if !written.is_sorted_by(|a, b| a.0 <= b.0) {
            written.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let sorted: String =
                written.iter().filter_map(|(_, range)| self.out.get(range.clone())).collect();
            self.out.truncate(first);
            self.out.push_str(&sorted);
        }
        if !written.is_empty() {
            self.out.remove(first);
        }
        self.out.push('}');
        Ok(())
    }
}

/// Writes a literal in its one form. A lone surrogate has no character: its escape stays, in lower case.
fn write_string(out: &mut String, literal: RawString<'_>) {
    out.push('"');
    let mut rest = literal.raw;
    while let Some((plain, tail)) = rest.split_once('\\') {
        out.push_str(plain);
        let (decoded, length) = text::decode_escape(tail);
        match decoded {
            Some(character) => text::escape_body_into(out, character.encode_utf8(&mut [0; 4])),
            None => {
                out.push('\\');
                out.push_str(&tail.get(..length).unwrap_or_default().to_ascii_lowercase());
            }
        }
        rest = tail.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::escape_into;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn has_one_spelling() {
        for (text, wanted) in [
            (" [ 1 , 2.50, -0e+1 ] ", "[1,2.50,-0e+1]"),
            ("{ }", "{}"),
            (r#"{"b":{"d":1,"c":[ ]},"a":null}"#, r#"{"a":null,"b":{"c":[],"d":1}}"#),
            (r#"{"\u0062":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (r#""\u0041\/\u00e9\u000A\u001F\ud83d\ude00\"""#, "\"A/é\\n\\u001f😀\\\"\""),
            (r#""\uD800x\uDC00\uD800\u0041""#, r#""\ud800x\udc00\ud800A""#),
            ("{\"\u{ff5e}\":1,\"😀\":2,\"z\":3}", "{\"z\":3,\"\u{ff5e}\":1,\"😀\":2}"),
            ("123456789012345678901234567890.10", "123456789012345678901234567890.10"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn refuses_what_the_check_refuses() {
        assert!(canonical(r#"{"a":{"x":1,"\u0078":2}}"#).is_err());
        assert!(canonical("[1,]").is_err());
    }

    /// Returns any JSON value that serde_json can represent.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}|[\u{0}-\u{7f}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map("[a-cé\"\\\\\n]{0,3}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Writes `value` with white space, member order and escapes chosen by `noise`.
    fn write_noisily(value: &Value, noise: &mut impl Iterator<Item = u8>, out: &mut String) {
        let mut flip = || noise.next().unwrap_or_default();
        out.push_str(["", " ", "\n", "\t\r "][usize::from(flip() % 4)]);
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    out.push(if index == 0 { '[' } else { ',' });
                    write_noisily(item, noise, out);
                }
                out.push_str(if items.is_empty() { "[ ]" } else { "]" });
            }
            Value::Object(map) => {
                let mut members: Vec<_> = map.iter().collect();
                let turn = usize::from(flip()) % members.len().max(1);
                members.rotate_left(turn);
                for (index, (name, item)) in members.into_iter().enumerate() {
                    out.push(if index == 0 { '{' } else { ',' });
                    write_noisily(&Value::from(name.as_str()), noise, out);
                    out.push(':');
                    write_noisily(item, noise, out);
                }
                out.push_str(if map.is_empty() { "{ }" } else { "}" });
            }
            Value::String(text) if flip() % 2 == 0 => {
                let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
                out.push_str(&format!("\"{units}\""));
            }
            Value::String(text) => escape_into(out, text),
            other => out.push_str(&other.to_string()),
        }
        out.push_str(["", " "][usize::from(noise.next().unwrap_or_default() % 2)]);
    }

    proptest! {
        #[test]
        fn spelling_does_not_matter_and_content_does(
            one in value(), other in value(), noise in prop::collection::vec(any::<u8>(), 64)
        ) {
            let plain = canonical(&one.to_string()).unwrap();
            let mut noisy = String::new();
            write_noisily(&one, &mut noise.into_iter().cycle(), &mut noisy);
            prop_assert_eq!(&canonical(&noisy).unwrap(), &plain);
            prop_assert_eq!(&canonical(&plain).unwrap(), &plain);
            prop_assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), one.clone());
            prop_assert_eq!(canonical(&other.to_string()).unwrap() == plain, one == other);
        }
    }
}
