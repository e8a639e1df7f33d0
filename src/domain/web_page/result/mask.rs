//! Masking of secrets in what a site replies, in whichever spelling it repeats them.

use std::iter::repeat_n;

use serde_json::{Map, Value};

use crate::domain::redact::MASK;

/// Shortest secret that is masked within words, in characters; shorter ones are parts of other words and numbers.
const INSIDE_CHARS_MIN: usize = 4;
/// Shortest secret that is also found with marks between its characters, as sites group numbers of cards, in characters.
const GROUPED_CHARS_MIN: usize = 8;
/// Most marks between two characters of a grouped secret.
const MARKS_MAX: usize = 3;
/// Shortest text that may have been cut, in bytes: the beginning of a secret at its end is masked as well.
const CUT_BYTES_MIN: usize = 250;
/// Longest reference of HTML that is read, in bytes.
const REFERENCE_BYTES_MAX: usize = 12;

/// Secret as it is found in texts.
#[derive(Debug)]
pub(super) struct SecretMask {
    /// The secret as it is written.
    raw: String,
    /// Characters of the secret.
    whole: Vec<char>,
    /// Characters without marks, which may stand between any two of them; `None` if the secret is too short for that.
    grouped: Option<Vec<char>>,
}

impl SecretMask {
    /// Creates the mask of a secret; `None` for an empty one.
    pub(super) fn of(secret: &str) -> Option<SecretMask> {
        let whole: Vec<char> = secret.trim().chars().collect();
        let plain: Vec<char> = whole.iter().copied().filter(|c| !is_mark(*c)).collect();
        let grouped = (plain.len() >= GROUPED_CHARS_MIN).then_some(plain);
        (!whole.is_empty()).then_some(SecretMask { raw: secret.trim().to_owned(), whole, grouped })
    }

    /// Masks the secret in a text.
    pub(super) fn apply(&self, text: &mut String) {
        let mut out = String::new();
        let (mut kept, mut at) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let before = text.get(..at).unwrap_or_default();
            match self.length(rest, text.len() >= CUT_BYTES_MIN) {
                Some(length) if self.stands_alone(before, rest.get(length..).unwrap_or_default()) => {
                    out.push_str(text.get(kept..at).unwrap_or_default());
                    out.push_str(MASK);
                    at += length;
                    kept = at;
                }
                _ => at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        if kept > 0 {
            out.push_str(text.get(kept..).unwrap_or_default());
            *text = out;
        }
    }

    /// Masks the secret in all texts, names and numbers of a JSON value.
    pub(super) fn apply_to_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.apply(text),
            Value::Number(number) => {
                let (written, mut masked) = (number.to_string(), number.to_string());
                self.apply(&mut masked);
                if masked != written {
                    *value = masked.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply_to_json(item)),
            Value::Object(members) => {
                let masked = std::mem::take(members).into_iter().map(|(mut name, mut value)| {
                    self.apply(&mut name);
                    self.apply_to_json(&mut value);
                    (name, value)
                });
                *members = masked.collect::<Map<_, _>>();
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Returns the length of the secret's spelling at the beginning of a text, in bytes; `None` if it does not begin with it.
    fn length(&self, text: &str, may_be_cut: bool) -> Option<usize> {
        // what is written as it is may look like an escape
        if text.starts_with(&self.raw) {
            return Some(self.raw.len());
        }
        let grouped = || length(text, self.grouped.as_ref()?, true, may_be_cut);
        length(text, &self.whole, false, may_be_cut).or_else(grouped)
    }

    /// Returns whether the texts around a secret leave it a word of its own, where it is too short to be found within words.
    fn stands_alone(&self, before: &str, after: &str) -> bool {
        let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        self.whole.len() >= INSIDE_CHARS_MIN
            || !(is_inside(before.chars().next_back()) || is_inside(after.chars().next()))
    }
}

/// Returns the length of the spelling of these characters at the beginning of a text, in bytes.
fn length(text: &str, chars: &[char], is_grouped: bool, may_be_cut: bool) -> Option<usize> {
    let mut rest = text;
    for (place, c) in chars.iter().enumerate() {
        if is_grouped && place > 0 {
            rest = without_marks(rest);
        }
        if rest.is_empty() && may_be_cut && place >= INSIDE_CHARS_MIN {
            break;
        }
        rest = rest.get(spelled(rest, *c)?..)?;
    }
    Some(text.len() - rest.len())
}

fn is_mark(c: char) -> bool {
    c.is_whitespace() || c == '-'
}

/// Returns a text without the marks at its beginning, up to the bound.
fn without_marks(text: &str) -> &str {
    repeat_n((), MARKS_MAX).fold(text, |rest, ()| {
        let length = match rest.chars().next() {
            Some(c) if is_mark(c) || c == '+' => Some(c.len_utf8()),
            _ => [' ', '-', '\u{a0}'].into_iter().find_map(|mark| spelled(rest, mark)),
        };
        length.and_then(|length| rest.get(length..)).unwrap_or(rest)
    })
}

/// Returns the length of a character's spelling at the beginning of a text, in bytes: itself, or as URLs, forms, HTML and JSON
/// escape it.
fn spelled(text: &str, c: char) -> Option<usize> {
    let first = text.chars().next()?;
    let escaped = match first {
        '%' => percent(text, c),
        '&' => reference(text, c),
        '\\' => backslash(text, c),
        '+' if c == ' ' => Some(1),
        // runs of white space are one space in a page
        _ if c.is_whitespace() && first.is_whitespace() => Some(first.len_utf8()),
        _ => None,
    };
    escaped.or_else(|| (first == c).then_some(c.len_utf8()))
}

fn percent(text: &str, c: char) -> Option<usize> {
    let mut rest = text;
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        let digits = rest.strip_prefix('%')?.get(..2)?;
        if u8::from_str_radix(digits, 16).ok()? != byte {
            return None;
        }
        rest = rest.get(3..)?;
    }
    Some(text.len() - rest.len())
}

fn reference(text: &str, c: char) -> Option<usize> {
    let end = text.bytes().take(REFERENCE_BYTES_MAX).position(|byte| byte == b';')?;
    let name = text.get(1..end)?;
    let code = match (name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")), name.strip_prefix('#')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) => digits.parse().ok(),
        (None, None) => None,
    };
    let named = match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some('\u{a0}'),
        _ => None,
    };
    (code.and_then(char::from_u32).or(named) == Some(c)).then_some(end + 1)
}

fn backslash(text: &str, c: char) -> Option<usize> {
    let mut rest = text;
    for unit in c.encode_utf16(&mut [0; 2]) {
        let Some(digits) = rest.strip_prefix("\\u").and_then(|rest| rest.get(..4)) else {
            let short = text.strip_prefix('\\')?.chars().next()?;
            return (short == c && !c.is_alphanumeric()).then(|| 1 + c.len_utf8());
        };
        if u16::from_str_radix(digits, 16).ok()? != *unit {
            return None;
        }
        rest = rest.get(6..)?;
    }
    Some(text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn masked(secret: &str, text: &str) -> String {
        let mut text = text.to_owned();
        SecretMask::of(secret).unwrap().apply(&mut text);
        text
    }

    #[test]
    fn every_spelling_of_a_secret_is_masked() {
        for text in [
            "a \"bé&c<d",
            "a%20%22b%C3%A9%26c%3Cd",
            "a+%22b%c3%a9%26c%3cd",
            "a &quot;b&#233;&amp;c&lt;d",
            "a&#32;&#x22;b&#xE9;&#38;c&#x3c;d",
            r#"a \"b\u00e9\u0026c\u003Cd"#,
            "a\n\"bé&c<d",
            "a%20\"bé&amp;c\\u003cd",
        ] {
            assert_eq!(masked("a \"bé&c<d", &format!("x{text}y")), "x[redacted]y", "{text}");
        }
        for text in ["a \"bé&c", "a%2", "a&", "a\\u00", "%", "a \"bé&amp", ""] {
            assert_eq!(masked("a \"bé&c<d", text), text);
        }
        assert_eq!(masked("𝄞key", r"x \ud834\udd1ekey %F0%9D%84%9Ekey"), "x [redacted] [redacted]");
        assert_eq!(masked("+1+2", "+1+2 %2B1%2b2"), "[redacted] [redacted]");
        assert_eq!(masked("ssecret", "sssecret"), "s[redacted]");
    }

    #[test]
    fn numbers_of_cards_are_masked_however_they_are_grouped() {
        for text in
            ["4111111111111111", "4111 1111 1111 1111", "4111-1111%2D1111&nbsp;1111", "4111+11111111+1111"]
        {
            for secret in ["4111111111111111", "4111 1111 1111 1111"] {
                assert_eq!(masked(secret, &format!("card {text}, Visa")), "card [redacted], Visa", "{text}");
            }
        }
        assert_eq!(masked("4111111111111111", "4111 1111 1111 1112"), "4111 1111 1111 1112");
    }

    #[test]
    fn short_secrets_are_masked_as_words() {
        assert_eq!(
            masked("123", "123 1234 a123 (123) x=123&y"),
            "[redacted] 1234 a123 ([redacted]) x=[redacted]&y"
        );
        assert_eq!(masked("1234", "a12345"), "a[redacted]5");
        assert!(SecretMask::of("").is_none());
    }

    #[test]
    fn the_beginning_of_a_secret_at_the_end_of_a_cut_text_is_masked() {
        let long = "x".repeat(300);
        assert_eq!(masked("opaque-sesame", &format!("{long} opaque-ses")), format!("{long} [redacted]"));
        assert_eq!(masked("opaque-sesame", "opaque-ses"), "opaque-ses");
    }

    #[test]
    fn json_is_masked_in_names_texts_and_numbers() {
        let mut value = json!({"s3cret": ["s3cret", {"n": 41111111, "m": -5, "b": true}], "x": null});
        for secret in ["s3cret", "41111111"] {
            SecretMask::of(secret).unwrap().apply_to_json(&mut value);
        }
        assert_eq!(value, json!({MASK: [MASK, {"n": MASK, "m": -5, "b": true}], "x": null}));
    }

    proptest! {
        #[test]
        fn any_text_is_masked_once_and_for_all(secret in "\\PC{4,12}", before in "\\PC{0,20}", after in "\\PC{0,20}") {
            prop_assume!(SecretMask::of(&secret).is_some() && !MASK.contains(secret.trim()) && secret.trim().chars().count() >= 4);
            let text = masked(&secret, &format!("{before}{secret}{after}"));
            prop_assert!(!text.contains(&secret), "{text}");
        }
    }
}
