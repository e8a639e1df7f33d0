//! Policies in files that people write.

use serde_json::{Map, Value};

use crate::domain::yaml;

/// Reads a file with a policy, YAML or JSON, as a tree.
///
/// # Errors
/// The file is empty, is neither YAML nor JSON, or is no mapping.
pub fn read_file(text: &str) -> Result<Map<String, Value>, String> {
    let is_idle = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
    if text.lines().all(|line| is_idle(line.trim())) {
        return Err("the file is empty; a policy without rules is 'rules: []'".to_owned());
    }
    let found = match yaml::read(text)? {
        Value::Object(tree) => return Ok(tree),
        Value::Array(_) => "a list",
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
        Value::Null => "null",
    };
    Err(format!("the policy must be a mapping with 'rules', such as 'rules: []', and is {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_policy_say_what_they_are() {
        for empty in ["", " \n", "---\n", "# nothing\n\n  # yet"] {
            assert!(read_file(empty).unwrap_err().starts_with("the file is empty"), "{empty:?}");
        }
        for (text, expected) in [
            ("- id: a\n  effect: deny\n", "and is a list"),
            ("[]", "and is a list"),
            ("rules", "and is a text"),
            ("\"rules\"", "and is a text"),
            ("7", "and is a number"),
            ("true", "and is true or false"),
            ("null", "and is null"),
            ("~ # none", "and is null"),
            ("rules: [", "line 1, column "),
        ] {
            let fault = read_file(text).unwrap_err();
            assert!(fault.contains(expected), "{text:?}: {fault}");
        }
        assert_eq!(read_file("rules: []\n").unwrap().len(), 1);
        assert_eq!(read_file("{\"rules\": []}").unwrap().len(), 1);
    }
}
