//! Arguments that a modern server wants mirrored in `Mcp-Param-*` headers (`x-mcp-header` in its schemas),
//! and the encoding of header values.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::domain::json;
use crate::domain::schema::safe_integer;

const KEYWORD: &str = "x-mcp-header";
const PREFIX: &str = "Mcp-Param-";
/// Longest header name a schema may ask for, in bytes, without the prefix.
const NAME_BYTES_MAX: usize = 128;
/// Most headers one schema may ask for.
const HEADERS_MAX: usize = 64;
/// Keywords whose value maps names to subschemas, so that its keys are no keywords.
const SCHEMA_MAPS: &[&str] = &["$defs", "definitions", "dependentSchemas", "patternProperties"];
/// Keywords whose value is data, not a schema.
const DATA: &[&str] = &["const", "default", "enum", "examples", "required"];

/// Header to send with calls of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// Full name of the header, `Mcp-Param-…`.
    pub header: String,
    /// Names of the properties that lead to the mirrored value in the arguments.
    pub path: Vec<String>,
}

/// Returns the headers that an input schema asks for; none if it breaks the rules of [`check_param_headers`].
pub fn param_header_rules(input_schema: &str) -> Vec<ParamHeader> {
    check_param_headers(input_schema).unwrap_or_default()
}

/// Returns the headers that an input schema asks for.
///
/// # Errors
/// A phrase that names the broken rule. The protocol has clients leave out tools with such a schema.
pub fn check_param_headers(input_schema: &str) -> Result<Vec<ParamHeader>, &'static str> {
    // Nearly no schema has any; an escape could hide the keyword.
    if !input_schema.contains(KEYWORD) && !input_schema.contains("\\u") {
        return Ok(Vec::new());
    }
    let Ok(schema) = serde_json::from_str(input_schema) else {
        return Err("the input schema is too deep or not JSON");
    };
    let mut scan = Scan::default();
    scan.schema(&schema, Place::Reachable)?;
    Ok(scan.found)
}

/// Whether a subschema is reached from the root by `properties` alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Reachable,
    Elsewhere,
}

#[derive(Default)]
struct Scan {
    found: Vec<ParamHeader>,
    names: HashSet<String>,
    path: Vec<String>,
}

impl Scan {
    fn schema(&mut self, schema: &Value, place: Place) -> Result<(), &'static str> {
        match schema {
            Value::Array(items) => items.iter().try_for_each(|item| self.schema(item, Place::Elsewhere)),
            Value::Object(members) => {
                if let Some(name) = members.get(KEYWORD) {
                    self.annotation(name, members, place)?;
                }
                members.iter().try_for_each(|(keyword, value)| self.keyword(keyword, value, place))
            }
            _ => Ok(()),
        }
    }

    fn keyword(&mut self, keyword: &str, value: &Value, place: Place) -> Result<(), &'static str> {
        if DATA.contains(&keyword) || keyword == KEYWORD {
            return Ok(());
        }
        let Value::Object(named) = value else { return self.schema(value, Place::Elsewhere) };
        if keyword == "properties" {
            return named.iter().try_for_each(|(name, schema)| {
                self.path.push(name.clone());
                let scanned = self.schema(schema, place);
                self.path.pop();
                scanned
            });
        }
        if SCHEMA_MAPS.contains(&keyword) {
            return named.values().try_for_each(|schema| self.schema(schema, Place::Elsewhere));
        }
        self.schema(value, Place::Elsewhere)
    }

    fn annotation(
        &mut self,
        name: &Value,
        schema: &Map<String, Value>,
        place: Place,
    ) -> Result<(), &'static str> {
        if place != Place::Reachable || self.path.is_empty() {
            return Err("x-mcp-header where no property is statically reachable");
        }
        let name = name.as_str().ok_or("x-mcp-header is not a string")?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_token_byte) {
            return Err("x-mcp-header is not a header name");
        }
        if !schema.get("type").is_some_and(is_primitive) {
            return Err("x-mcp-header on a property that is not a string, number or boolean");
        }
        if !self.names.insert(name.to_ascii_lowercase()) {
            return Err("x-mcp-header names a header twice");
        }
        if self.found.len() == HEADERS_MAX {
            return Err("x-mcp-header on too many properties");
        }
        self.found.push(ParamHeader { header: format!("{PREFIX}{name}"), path: self.path.clone() });
        Ok(())
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns whether a schema's `type` has a single value that headers can hold. `number` is outside the text of the
/// rules, but peers annotate it and expect it mirrored.
fn is_primitive(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => matches!(kind.as_str(), "string" | "integer" | "boolean" | "number"),
        Value::Array(kinds) => {
            let mut kinds = kinds.iter().filter(|kind| kind.as_str() != Some("null")).peekable();
            kinds.peek().is_some() && kinds.all(|kind| !kind.is_array() && is_primitive(kind))
        }
        _ => false,
    }
}

/// Returns the headers for a call: the value in `arguments` (a JSON object) at each rule's path, encoded. Absent,
/// `null` and composite values have none.
pub fn param_headers(rules: &[ParamHeader], arguments: &str) -> Vec<(String, String)> {
    rules
        .iter()
        .filter_map(|rule| {
            let text = value_at(arguments, &rule.path)?;
            Some((rule.header.clone(), encode(&text).into_owned()))
        })
        .collect()
}

fn value_at<'a>(arguments: &'a str, path: &[String]) -> Option<Cow<'a, str>> {
    let mut at = arguments.trim();
    for name in path {
        // members beside the path must not decide whether the value is found
        let [value] = json::find_members(at, [name.as_str()]).ok()?;
        at = value?;
    }
    match at.bytes().next()? {
        b'"' => serde_json::from_str::<String>(at).ok().map(Cow::Owned),
        b't' | b'f' => Some(Cow::Borrowed(at)),
        b'-' | b'0'..=b'9' => Some(number(at)),
        _ => None,
    }
}

/// Returns a number in decimal; a whole number written with a fraction or an exponent loses them.
fn number(text: &str) -> Cow<'_, str> {
    if !text.contains(['.', 'e', 'E']) {
        return Cow::Borrowed(text);
    }
    safe_integer(text).map_or(Cow::Borrowed(text), |integer| Cow::Owned(integer.to_string()))
}

/// Encodes a header value: unchanged if it is plain, else in the protocol's Base64 form.
pub fn encode(value: &str) -> Cow<'_, str> {
    let is_plain = value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    let is_padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let is_marked = value.starts_with("=?base64?") && value.ends_with("?=");
    if is_plain && !is_padded && !is_marked {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(value)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn rule(name: &str, path: &[&str]) -> ParamHeader {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        ParamHeader { header: format!("Mcp-Param-{name}"), path }
    }

    #[test]
    fn rules_follow_properties_only() {
        let schema = r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "items":{"type":"object","properties":{"n":{"type":["integer","null"],"x-mcp-header":"N"}}},
            "x-mcp-header":{"type":"string","description":"a property of that name"},
            "d":{"type":"object","default":{"x-mcp-header":7}}}}"#;
        let mut found = check_param_headers(schema).unwrap();
        found.sort_by(|a, b| a.header.cmp(&b.header));
        assert_eq!(found, [rule("N", &["items", "n"]), rule("Region", &["region"])]);
        assert_eq!(check_param_headers(r#"{"type":"object"}"#), Ok(vec![]));
    }

    #[test]
    fn broken_annotations_are_refused() {
        let deep = format!("{}{}{}", r#"{"x-mcp-header":"#, "[".repeat(300), "]".repeat(300));
        let bad = [
            r#"{"x-mcp-header":"Root","type":"string"}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":7}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nb"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"é"}}}"#,
            r#"{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":["string","array"],"x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            r#"{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"$defs":{"t":{"type":"string","x-mcp-header":"A"}}}"#,
            r#"{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-\u0068eader":"a b"}}}"#,
            deep.as_str(),
        ];
        for schema in bad {
            assert!(check_param_headers(schema).is_err(), "{schema}");
            assert_eq!(param_header_rules(schema), vec![], "{schema}");
        }
    }

    #[test]
    fn values_are_read_at_their_path() {
        let rules = [rule("A", &["a"]), rule("B", &["o", "b"])];
        let table: &[(&str, &[(&str, &str)])] = &[
            (r#"{"a":"us-west1","o":{"b":true}}"#, &[("A", "us-west1"), ("B", "true")]),
            (r#"{"a":42,"o":{"b":-7}}"#, &[("A", "42"), ("B", "-7")]),
            (r#"{"a":42.0,"o":{"b":1e2}}"#, &[("A", "42"), ("B", "100")]),
            (r#"{"a":1.5}"#, &[("A", "1.5")]),
            // never rounded: a double would make these 0, 1 and 9007199254740992
            (
                r#"{"a":1e-400,"o":{"b":1.0000000000000000001}}"#,
                &[("A", "1e-400"), ("B", "1.0000000000000000001")],
            ),
            (
                r#"{"a":9007199254740991.0,"o":{"b":9007199254740993.0}}"#,
                &[("A", "9007199254740991"), ("B", "9007199254740993.0")],
            ),
            (r#"{"a":-1.20e1,"o":{"b":-0.0}}"#, &[("A", "-12"), ("B", "0")]),
            (r#"{"a":"","o":{}}"#, &[("A", "")]),
            (r#"{"\u0061":"x"}"#, &[("A", "x")]),
            (r#"{"\ud800":1,"a":"x","o":{"\udc00":[1e400],"b":1e400}}"#, &[("A", "x"), ("B", "1e400")]),
            (r#"{"a":null,"o":{"b":[1]}}"#, &[]),
            (r#"{"a":{},"o":7}"#, &[]),
            ("{}", &[]),
            ("[]", &[]),
            ("", &[]),
        ];
        for (arguments, want) in table {
            let want: Vec<_> =
                want.iter().map(|(name, value)| (format!("Mcp-Param-{name}"), (*value).to_owned())).collect();
            assert_eq!(param_headers(&rules, arguments), want, "{arguments}");
        }
    }

    #[test]
    fn values_are_encoded_as_the_protocol_shows() {
        let table = [
            ("us-west1", "us-west1"),
            ("a b\tc", "a b\tc"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?BASE64?x?=", "=?BASE64?x?="),
            ("", ""),
        ];
        for (value, want) in table {
            assert_eq!(encode(value), want);
        }
    }

    proptest! {
        #[test]
        fn every_value_becomes_a_header(value in any::<String>()) {
            let encoded = encode(&value);
            prop_assert!(HeaderValue::from_str(&encoded).is_ok());
            let inner = encoded.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
            let decoded = inner.map_or_else(|| value.clone().into_bytes(), |inner| STANDARD.decode(inner).unwrap());
            prop_assert_eq!(decoded, value.into_bytes());
        }
    }
}
