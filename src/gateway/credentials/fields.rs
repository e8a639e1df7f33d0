//! Rules for secrets for fields of web pages.

use super::named::{NamedSecrets, SecretKind};
use crate::domain::redact;
use crate::gateway::GatewayError;

/// Longest name of a field, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Secrets by the names of their fields.
pub type FieldSecrets = NamedSecrets<FieldSecret>;

/// Secret for a field of a page.
#[derive(Clone, Copy)]
pub struct FieldSecret;

impl SecretKind for FieldSecret {
    const MEMBER: &'static str = "field_secrets";

    fn check_name(name: &str) -> Result<(), GatewayError> {
        if redact::redact(name) != name {
            let message =
                "field_secrets has a name that looks like a secret; names are those of fields of a page";
            return Err(GatewayError::invalid(Self::MEMBER, message));
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let message = format!(
                "names of field_secrets must have 1 to {NAME_BYTES_MAX} bytes and no control characters"
            );
            return Err(GatewayError::invalid(Self::MEMBER, message));
        }
        Ok(())
    }

    fn check_value(_: &str) -> Result<(), &'static str> {
        Ok(())
    }

    fn is_same(name: &str, other: &str) -> bool {
        name == other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::gateway::credentials::named::{BYTES_MAX, SECRETS_MAX, from_sealable};

    fn read(given: Value) -> Result<FieldSecrets, (String, String)> {
        let Value::Object(given) = given else { panic!("{given}") };
        FieldSecrets::read(given).map_err(|error| match error {
            GatewayError::Invalid { field: Some(field), message } => (field, message),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn secrets_are_read_back_and_never_shown() {
        let secrets = read(json!({"user[password]": "h\u{e9}\"llo"})).unwrap();
        assert_eq!(secrets.names(), ["user[password]"]);
        assert!(!format!("{secrets:?}").contains("llo"));
        let opened = from_sealable(&secrets.to_sealable().unwrap()).unwrap();
        assert_eq!((opened[0].0.as_str(), opened[0].1.as_str()), ("user[password]", "h\u{e9}\"llo"));
        assert!(read(json!({})).unwrap().is_empty());
    }

    #[test]
    fn wrong_ones_are_named_and_not_repeated() {
        let many: Map<String, Value> = (0..=SECRETS_MAX).map(|n| (format!("f{n}"), json!("v"))).collect();
        for (given, expected) in [
            (json!({"pin": 7}), "field_secrets.pin"),
            (json!({"pin": ""}), "field_secrets.pin"),
            (json!({"": "s3cret"}), "field_secrets"),
            (json!({"a\nb": "s3cret"}), "field_secrets"),
            (json!({"ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8": "x"}), "field_secrets"),
            (json!({"pin": "s3cret".repeat(BYTES_MAX)}), "field_secrets"),
            (Value::Object(many), "field_secrets"),
        ] {
            let (field, message) = read(given).unwrap_err();
            assert_eq!(field, expected, "{message}");
            assert!(!message.contains("s3cret") && !message.contains("ghp_"), "{message}");
        }
    }
}
