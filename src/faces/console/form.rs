//! Bodies of forms.

use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode, header};
use tokio::time::timeout;
use url::form_urlencoded;
use zeroize::Zeroizing;

/// Largest form, in bytes.
pub(super) const FORM_BYTES_MAX: usize = 16 * 1024;
/// Largest form with the rules of a policy, in bytes, percent-encoded.
pub(super) const POLICY_FORM_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of a form that are read, of which those beyond its bound are dropped.
const DRAINED_BYTES_MAX: usize = 1024 * 1024;
/// Most fields of a form: each is compared with the others.
const FIELDS_MAX: usize = 300;
/// Longest time for a browser to send a form.
const FORM_WAIT_MAX: Duration = Duration::from_secs(10);
/// Content type of a form.
const CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// Fields of a form, each once. They may hold a key, so they are wiped.
#[derive(Default)]
pub(super) struct Form(Vec<(String, Zeroizing<String>)>);

/// Reason why a form was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FormFault {
    /// Status of the response.
    pub(super) status: StatusCode,
    /// Sentence for the person: the fault, and a way out.
    pub(super) text: &'static str,
}

impl Form {
    /// Reads the body of a request, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The body is no form, too large, too slow, or has a field twice.
    pub(super) async fn read(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Form, FormFault> {
        let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = declared.unwrap_or_default().split(';').next().unwrap_or_default();
        if !essence.trim().eq_ignore_ascii_case(CONTENT_TYPE) {
            let (status, text) =
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The request is no form of the console.");
            return Err(FormFault { status, text });
        }
        let read = timeout(FORM_WAIT_MAX, whole(body, bytes_max)).await;
        let slow =
            |_| FormFault { status: StatusCode::REQUEST_TIMEOUT, text: "The form did not arrive in time." };
        let large = || FormFault {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            text: "The form is too large or was cut off: at most 16 KiB are read, and 256 KiB of a policy.",
        };
        Form::parse(&read.map_err(slow)?.ok_or_else(large)?)
    }

    fn parse(bytes: &[u8]) -> Result<Form, FormFault> {
        let mut fields: Vec<(String, Zeroizing<String>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(bytes) {
            if fields.len() >= FIELDS_MAX {
                let text = "The form has too many fields: load the page again.";
                return Err(FormFault { status: StatusCode::BAD_REQUEST, text });
            }
            if fields.iter().any(|(known, _)| *known == name) {
                let text = "The form has a field twice: load the page again.";
                return Err(FormFault { status: StatusCode::BAD_REQUEST, text });
            }
            fields.push((name.into_owned(), Zeroizing::new(value.into_owned())));
        }
        Ok(Form(fields))
    }

    /// Returns a field; empty if the form does not have it.
    pub(super) fn field(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// Reads a body; `None` for one that is larger than `bytes_max`, or was cut off. A larger one is read on for a while: a browser shows
/// no answer that comes before it has sent everything.
async fn whole(body: Body, bytes_max: usize) -> Option<Zeroizing<Vec<u8>>> {
    let (mut bytes, mut read) = (Zeroizing::new(Vec::new()), 0);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.ok()?;
        read += chunk.len();
        if read <= bytes_max {
            bytes.extend_from_slice(&chunk);
        } else if read > DRAINED_BYTES_MAX {
            return None;
        }
    }
    (read <= bytes_max).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_once() {
        let form = Form::parse(b"a=b+c&d=%26&e").unwrap_or_else(|fault| panic!("{fault:?}"));
        assert_eq!(
            (form.field("a"), form.field("d"), form.field("e"), form.field("f")),
            ("b c", "&", "", "")
        );
        assert_eq!(
            Form::parse(b"a=1&b=2&a=1").err().map(|fault| fault.status),
            Some(StatusCode::BAD_REQUEST)
        );
    }
}
