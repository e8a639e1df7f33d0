//! Format of single things for people: one name and value per line.

use serde_json::Value;

use super::output::safe;
use crate::domain::json;

/// Formats every field of a thing, in the order of the API. Values of several lines stand below their names.
pub(super) fn fields(raw: &str) -> String {
    let Ok(members) = json::members(raw) else { return safe(raw) };
    let width = members.iter().map(|member| member.name.chars().count()).max().unwrap_or_default();
    let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
    members.iter().map(|member| field(&member.name, &value(member.value), width)).collect()
}

/// Formats one field. `width` is the length of the longest name.
pub(super) fn field(name: &str, value: &Value, width: usize) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => serde_json::to_string_pretty(value).unwrap_or_default(),
        other => other.to_string(),
    };
    let (name, text) = (safe(name), safe(&text));
    match text.contains('\n') {
        true => format!("{name}:\n  {}\n", text.replace('\n', "\n  ")),
        false => format!("{:width$}  {text}\n", format!("{name}:"), width = width + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let shown =
            fields(r#"{"name":"a","long_name":null,"x":1.50,"list":[],"text":"two\nlines\u001b[1m"}"#);
        let want = "name:       a\nlong_name:  -\nx:          1.5\nlist:       []\ntext:\n  two\n  lines\\u{1b}[1m\n";
        assert_eq!(shown, want);
    }
}
