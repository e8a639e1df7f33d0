//! Custom headers for requests to a server, as given by an administrator.

use std::fmt;

use http::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::domain::redact;
use crate::gateway::GatewayError;
use crate::upstream::is_reserved_header;

/// Most headers of one server.
const HEADERS_MAX: usize = 32;
/// Most bytes of all names and values of one server's headers.
pub(super) const BYTES_MAX: usize = 8 * 1024;
/// Longest part of a header name that an error repeats, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;

/// Header names as given, with their values. Only the names are ever shown.
#[derive(Clone, Default)]
pub struct Headers(Vec<(String, Zeroizing<String>)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Headers {
    /// Reads headers from an object of names and values.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] with the field, for too many, malformed or reserved headers; values are never repeated in
    /// it.
    pub fn read(given: Map<String, Value>) -> Result<Headers, GatewayError> {
        if given.len() > HEADERS_MAX {
            return Err(GatewayError::invalid("headers", format!("headers may be at most {HEADERS_MAX}")));
        }
        let mut read: Vec<(String, Zeroizing<String>)> = Vec::with_capacity(given.len());
        let mut bytes = 0;
        for (name, value) in given {
            check_name(&name)?;
            if read.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                return Err(about(&name, "is there twice: case makes no difference"));
            }
            let Value::String(value) = value else { return Err(about(&name, "must be a string")) };
            let value = Zeroizing::new(value);
            check_value(&name, &value)?;
            bytes += name.len() + value.len();
            read.push((name, value));
        }
        if bytes > BYTES_MAX {
            let message = format!("names and values of headers may have at most {BYTES_MAX} bytes together");
            return Err(GatewayError::invalid("headers", message));
        }
        Ok(Headers(read))
    }

    /// Returns whether there are no headers.
    pub(in crate::gateway) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names, which may be shown.
    pub(in crate::gateway) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the text to seal: a JSON list of pairs. `None` if it cannot be written.
    pub(in crate::gateway) fn to_sealable(&self) -> Option<Zeroizing<Vec<u8>>> {
        let pairs: Vec<(&str, &str)> = self.0.iter().map(|(name, value)| (&**name, value.as_str())).collect();
        // escapes at most double the length; growing would leave copies in memory
        let mut text = Zeroizing::new(Vec::with_capacity(2 * BYTES_MAX + 8 * HEADERS_MAX));
        serde_json::to_writer(&mut *text, &pairs).ok()?;
        Some(text)
    }
}

/// Parses the sealed text into headers for sending. Values are marked sensitive, so that debug output hides them.
pub(super) fn from_sealable(text: &[u8]) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let pairs: Vec<(String, Zeroizing<String>)> = serde_json::from_slice(text).ok()?;
    let header = |(name, value): &(String, Zeroizing<String>)| {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    pairs.iter().map(header).collect()
}

fn check_name(name: &str) -> Result<(), GatewayError> {
    // an invalid name may be a value in the wrong place, so it is not repeated
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err(GatewayError::invalid("headers", "headers has a name that is no HTTP header name"));
    };
    if redact::redact(name) != name {
        return Err(GatewayError::invalid("headers", "headers has a name that looks like a secret"));
    }
    if is_reserved_header(&parsed) {
        return Err(about(name, "cannot be set: it belongs to the protocol or to the connection"));
    }
    Ok(())
}

fn check_value(name: &str, value: &str) -> Result<(), GatewayError> {
    if value.is_empty() {
        return Err(about(name, "must not be empty"));
    }
    if !value.bytes().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')) {
        return Err(about(name, "must be of visible ASCII characters, spaces and tabs"));
    }
    if value.trim_matches([' ', '\t']).len() != value.len() {
        return Err(about(name, "must not begin or end with a space: HTTP would cut it off"));
    }
    Ok(())
}

fn about(name: &str, what: &str) -> GatewayError {
    let shown: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
    GatewayError::invalid(format!("headers.{shown}"), format!("headers.{shown} {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let many: Map<String, Value> = (0..=HEADERS_MAX).map(|n| (format!("x-{n}"), json!("v"))).collect();
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
