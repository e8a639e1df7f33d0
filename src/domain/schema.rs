//! Check 10: arguments against a tool's input schema.
//!
//! Schemas come from hostile servers: nothing is fetched (a remote `$ref` does not compile), patterns run
//! on a linear-time engine, one that could make exponential work is not used, and a schema that does not compile lets calls pass with a note in the record.

use jsonschema::{PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;

use super::schema_cost;

/// Most bytes of the text about one violation.
const MESSAGE_BYTES_MAX: usize = 400;

/// A compiled input schema.
#[derive(Debug)]
pub struct Schema(Validator);

/// Refuses every document that is not part of the schema itself.
struct NoDocuments;

impl Retrieve for NoDocuments {
    fn retrieve(&self, _uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("references to other documents are not followed".into())
    }
}

impl Schema {
    /// Compiles a schema text; the error is a sentence for the activity record.
    pub fn compile(text: &str) -> Result<Schema, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not readable: {error}"))?;
        schema_cost::check(&value)?;
        jsonschema::options()
            .with_retriever(NoDocuments)
            .with_pattern_options(PatternOptions::regex())
            .build(&value)
            .map(Schema)
            .map_err(|error| clip(&error.masked().to_string()))
    }

    /// Checks arguments (a JSON object's text, known to be valid). The error names the path and the rule,
    /// never a value.
    pub fn check(&self, arguments: &str) -> Result<(), String> {
        // what is valid and yet not readable holds a number beyond a double (1e400): no rule can be applied,
        // and refusing would change what callers may send
        let Ok(value) = serde_json::from_str::<Value>(arguments) else { return Ok(()) };
        if self.0.is_valid(&value) {
            return Ok(());
        }
        let Some(error) = self.0.iter_errors(&value).next() else {
            return Ok(());
        };
        let path = match error.instance_path.to_string() {
            root if root.is_empty() => "the arguments".to_owned(),
            path => path,
        };
        Err(clip(&format!("{path}: {} (rule {})", error.masked_with("the value"), error.schema_path)))
    }
}

fn clip(text: &str) -> String {
    let end = (0..=MESSAGE_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_name_path_and_rule_but_no_value() {
        let schema = Schema::compile(
            r#"{"type":"object","properties":{"limit":{"type":"integer","maximum":10},
               "token":{"type":"string","maxLength":3}},"required":["limit"],"additionalProperties":false}"#,
        )
        .expect("compiles");
        assert_eq!(schema.check(r#"{"limit":1}"#), Ok(()));
        assert_eq!(schema.check(r#"{"limit":1e400}"#), Ok(()));
        let error = schema.check(r#"{"limit":11}"#).expect_err("too large");
        assert!(error.contains("/limit") && error.contains("maximum"), "{error}");
        let error = schema.check(r#"{"limit":1,"token":"hunter2hunter2"}"#).expect_err("too long");
        assert!(error.contains("/token") && !error.contains("hunter2"), "{error}");
        let error = schema.check("{}").expect_err("missing");
        assert!(error.contains("limit") && error.contains("required"), "{error}");
    }

    #[test]
    fn remote_references_do_not_compile() {
        assert!(Schema::compile(r#"{"$ref":"http://169.254.169.254/schema"}"#).is_err());
        assert!(Schema::compile(r#"{"type":"nonsense"}"#).is_err());
        assert!(Schema::compile(r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}"##).is_ok());
    }

    #[test]
    fn a_hostile_pattern_stays_cheap() {
        let schema = Schema::compile(r#"{"properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}"#);
        let arguments = format!(r#"{{"a":"{}b"}}"#, "a".repeat(50_000));
        assert!(schema.expect("compiles").check(&arguments).is_err());
    }
}
