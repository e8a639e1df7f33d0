//! One-line signatures and summaries of tools. Both are made of untrusted texts, so they are bounded, and on one line
//! whatever the texts contain.

use crate::domain::json;

/// Longest signature, in bytes, before parameters are left out.
const SIGNATURE_BYTES_MAX: usize = 320;
/// Longest summary, in bytes.
const SUMMARY_BYTES_MAX: usize = 200;
/// Longest name of a parameter, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Mark in place of text that was left out.
const MORE: &str = "…";

/// Returns the signature of a tool, such as `delete_repo(owner: string, repo: string, force?: boolean)`. Required
/// parameters come first; `?` marks the others.
pub fn signature(name: &str, schema: Option<&str>) -> String {
    let mut out = one_line(name, NAME_BYTES_MAX);
    out.push('(');
    let (needed, optional): (Vec<_>, Vec<_>) =
        schema.map(parameters).unwrap_or_default().into_iter().partition(|(_, is_needed)| *is_needed);
    let mut separator = "";
    for (parameter, _) in needed.iter().chain(&optional) {
        out.push_str(separator);
        separator = ", ";
        if out.len() + parameter.len() > SIGNATURE_BYTES_MAX {
            out.push_str(MORE);
            break;
        }
        out.push_str(parameter);
    }
    out.push(')');
    out
}

/// Returns the first sentence of a description, without its full stop.
pub fn summary(description: &str) -> String {
    let description = description.trim_start();
    let line = description.lines().next().unwrap_or_default();
    let end = line.match_indices(['.', '!', '?']).map(|(at, _)| at).find(|&at| ends_sentence(line, at));
    one_line(end.and_then(|at| line.get(..at)).unwrap_or(line), SUMMARY_BYTES_MAX)
}

/// Returns whether the mark at `at` ends a sentence: white space or the end follows, and no abbreviation precedes.
fn ends_sentence(line: &str, at: usize) -> bool {
    let rest = line.get(at + 1..).unwrap_or_default();
    let before = line.get(..at).unwrap_or_default();
    let word = before.rsplit([' ', '(']).next().unwrap_or_default();
    (rest.is_empty() || rest.starts_with(char::is_whitespace))
        && !matches!(word, "e.g" | "i.e" | "etc" | "vs" | "cf")
}

/// Returns the parameters of a schema as `name: type`, and whether each is required.
fn parameters(schema: &str) -> Vec<(String, bool)> {
    let Ok(members) = json::members(schema) else { return Vec::new() };
    let value = |name: &str| members.iter().find(|m| m.name == name).map(|m| m.value);
    let needed: Vec<serde_json::Value> =
        value("required").and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let Some(Ok(properties)) = value("properties").map(json::members) else { return Vec::new() };
    let parameter = |property: &json::Member<'_>| {
        let is_needed = needed.iter().any(|name| name.as_str() == Some(&*property.name));
        let name = one_line(&property.name, NAME_BYTES_MAX);
        let mark = if is_needed { "" } else { "?" };
        (format!("{name}{mark}: {}", kind(property.value)), is_needed)
    };
    properties.iter().map(parameter).collect()
}

/// Returns the type of a schema in one word, such as `string[]`.
fn kind(schema: &str) -> String {
    let Ok(members) = json::members(schema) else { return "any".to_owned() };
    let value = |name: &str| members.iter().find(|m| m.name == name).map(|m| m.value);
    let of = |raw: &str| match serde_json::from_str(raw) {
        Ok(serde_json::Value::String(kind)) => Some(kind),
        Ok(serde_json::Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(|kind| kind.as_str()).collect();
            Some(kinds.join("|"))
        }
        _ => None,
    };
    let own = value("type").and_then(of).unwrap_or_else(|| "any".to_owned());
    if own != "array" {
        return one_line(&own, NAME_BYTES_MAX);
    }
    let items = value("items").and_then(|raw| json::members(raw).ok());
    let items = items.iter().flatten().find(|m| m.name == "type").and_then(|m| of(m.value));
    one_line(&format!("{}[]", items.as_deref().unwrap_or("any")), NAME_BYTES_MAX)
}

/// Returns the text without line breaks and other control characters, cut to `bytes_max`.
fn one_line(text: &str, bytes_max: usize) -> String {
    let cut = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    let mut out: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() {
        out.push_str(MORE);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_says_what_is_needed_first() {
        let schema = r#"{"type":"object","properties":{"force":{"type":"boolean"},"owner":{"type":"string"},
            "tags":{"type":"array","items":{"type":"string"}},"at":{"type":["integer","null"]},"x":{},"y":true},
            "required":["owner","tags",7]}"#;
        assert_eq!(
            signature("delete_repo", Some(schema)),
            "delete_repo(owner: string, tags: string[], force?: boolean, at?: integer|null, x?: any, y?: any)"
        );
        for none in [None, Some("{}"), Some("7"), Some(r#"{"properties":[]}"#)] {
            assert_eq!(signature("ping", none), "ping()");
        }
    }

    #[test]
    fn a_signature_is_one_bounded_line() {
        let many: Vec<String> = (0..100).map(|n| format!(r#""parameter_{n}":{{"type":"string"}}"#)).collect();
        let many = signature("t", Some(&format!(r#"{{"properties":{{{}}}}}"#, many.join(","))));
        assert!(many.ends_with(", …)") && many.len() < SIGNATURE_BYTES_MAX + 10, "{many}");
        let long = format!(r#"{{"properties":{{"a\nb":{{"type":"{}"}}}}}}"#, "é".repeat(5000));
        let long = signature("n\u{1b}[2J", Some(&long));
        assert!(long.starts_with("n [2J(a b?: é") && long.len() < 200, "{long}");
    }

    #[test]
    fn a_summary_is_the_first_sentence() {
        for (description, expected) in [
            ("Reads a file. Then more.", "Reads a file"),
            ("\n  Lists e.g. files of v1.2 here! More", "Lists e.g. files of v1.2 here"),
            ("One line\nand another", "One line"),
            ("", ""),
        ] {
            assert_eq!(summary(description), expected);
        }
        assert!(summary(&"é".repeat(5000)).len() <= SUMMARY_BYTES_MAX + MORE.len());
    }
}
