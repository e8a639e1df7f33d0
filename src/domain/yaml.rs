//! Files that people write, in YAML or JSON, as one tree.

use serde_json::Value;

use super::json;

/// Reads a file as a tree. JSON is taken as it is; any other text must be YAML, in which `yes` and `no` are texts.
///
/// # Errors
/// The place of the fault, if it is known, and its reason. The text repeats nothing of the file, which may hold credentials.
pub fn read(text: &str) -> Result<Value, String> {
    if json::check(text).is_ok() {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let at = error.location().map(|at| format!("line {}, column {}: ", at.line(), at.column()));
        format!("{}this cannot be read as YAML, or says a name twice", at.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_are_one_tree() {
        let tree = json!({"rules": [{"id": "a", "on": "yes", "n": 1}]});
        assert_eq!(read("rules:\n- id: a\n  on: yes\n  n: 1\n"), Ok(tree.clone()));
        assert_eq!(read(&tree.to_string()), Ok(tree));
        for wrong in ["a: 1\na: 2\n", "a: [", r#"{"a":1,"a":2}"#, "a: [s3cret"] {
            let fault = read(wrong).unwrap_err();
            assert!(fault.contains("cannot be read") && !fault.contains("s3cret"), "{wrong}: {fault}");
        }
    }
}
