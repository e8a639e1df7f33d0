//! Rules for custom headers of requests to a server.

use http::header::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::named::{self, NamedSecrets, SecretKind, about};
use crate::domain::redact;
use crate::gateway::GatewayError;
use crate::upstream::is_reserved_header;

/// Headers of requests to a server, by name.
pub type Headers = NamedSecrets<CustomHeader>;

/// Header of requests to a server.
#[derive(Clone, Copy)]
pub struct CustomHeader;

impl SecretKind for CustomHeader {
    const MEMBER: &'static str = "headers";

    fn check_name(name: &str) -> Result<(), GatewayError> {
        // an invalid name may be a value in the wrong place
        let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
            return Err(GatewayError::invalid("headers", "headers has a name that is no HTTP header name"));
        };
        if redact::redact(name) != name {
            return Err(GatewayError::invalid("headers", "headers has a name that looks like a secret"));
        }
        if is_reserved_header(&parsed) {
            let what = "cannot be set: it belongs to the protocol or to the connection";
            return Err(about::<Self>(name, what));
        }
        Ok(())
    }

    fn check_value(value: &str) -> Result<(), &'static str> {
        if !value.bytes().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')) {
            return Err("must be of visible ASCII characters, spaces and tabs");
        }
        if value.trim_matches([' ', '\t']).len() != value.len() {
            return Err("must not begin or end with a space: HTTP would cut it off");
        }
        Ok(())
    }

    fn is_same(name: &str, other: &str) -> bool {
        name.eq_ignore_ascii_case(other)
    }
}

/// Parses the sealed text into headers for sending. Values are marked sensitive, so that debug output hides them.
pub(super) fn from_sealable(text: &[u8]) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let header = |(name, value): &(String, Zeroizing<String>)| {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    named::from_sealable(text)?.iter().map(header).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::gateway::credentials::named::{BYTES_MAX, SECRETS_MAX};

    fn read(given: Value) -> Result<Headers, (String, String)> {
        let Value::Object(given) = given else { panic!("{given}") };
        Headers::read(given).map_err(|error| match error {
            GatewayError::Invalid { field: Some(field), message } => (field, message),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_can_be_sent_is_taken() {
        let given = json!({"Authorization": "Bearer a\tb c", "X-API-Key": "k", "cookie": "a=\"\\\"", "User-Agent": "x"});
        let headers = read(given).unwrap();
        assert_eq!(headers.names(), ["Authorization", "User-Agent", "X-API-Key", "cookie"]);
        assert!(!format!("{headers:?}").contains("Bearer"), "{headers:?}");
        let sent = from_sealable(&headers.to_sealable().unwrap()).unwrap();
        let find = |name: &str| sent.iter().find(|(known, _)| known == name).unwrap().1.clone();
        assert_eq!(find("authorization"), "Bearer a\tb c");
        assert_eq!(find("cookie"), "a=\"\\\"");
        assert!(sent.iter().all(|(_, value)| value.is_sensitive()));
        assert!(read(json!({})).unwrap().is_empty());
        assert!(from_sealable(b"[[\"a b\",\"c\"]]").is_none() && from_sealable(b"{}").is_none());
    }

    #[test]
    fn what_cannot_be_sent_is_named_and_not_repeated() {
        let many: Map<String, Value> = (0..=SECRETS_MAX).map(|n| (format!("x-{n}"), json!("v"))).collect();
        let cases = [
            (json!({"Host": "s3cret"}), "headers.Host"),
            (json!({"content-length": "s3cret"}), "headers.content-length"),
            (json!({"Content-Type": "s3cret"}), "headers.Content-Type"),
            (json!({"Transfer-Encoding": "s3cret"}), "headers.Transfer-Encoding"),
            (json!({"Accept-Encoding": "s3cret"}), "headers.Accept-Encoding"),
            (json!({"Mcp-Session-Id": "s3cret"}), "headers.Mcp-Session-Id"),
            (json!({"Proxy-Authorization": "s3cret"}), "headers.Proxy-Authorization"),
            (json!({"X-A": 7}), "headers.X-A"),
            (json!({"X-A": null}), "headers.X-A"),
            (json!({"X-A": ["s3cret"]}), "headers.X-A"),
            (json!({"X-A": ""}), "headers.X-A"),
            (json!({"X-A": "Bearer [redacted]"}), "headers.X-A"),
            (json!({"X-A": "s3cret\r\nX-B: c"}), "headers.X-A"),
            (json!({"X-A": "s3cret é"}), "headers.X-A"),
            (json!({"X-A": "s3cret "}), "headers.X-A"),
            (json!({"X-A": "s3cret", "x-a": "s3cret"}), "headers.x-a"),
            (json!({"Bearer s3cret": "Authorization"}), "headers"),
            (json!({"": "s3cret"}), "headers"),
            (json!({"ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8": "Authorization"}), "headers"),
            (json!({"X-A": "s3cret".repeat(BYTES_MAX)}), "headers"),
            (Value::Object(many), "headers"),
        ];
        for (given, expected) in cases {
            let (field, message) = read(given).unwrap_err();
            assert_eq!(field, expected, "{message}");
            assert!(!message.contains("s3cret") && !message.contains("ghp_"), "{message}");
        }
    }
}
