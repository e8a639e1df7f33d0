//! An HTTP answer, read to its end.

use std::fmt;

use reqwest::header::HeaderMap;
use serde_json::Value;

/// Status, headers and the body as it came.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body; of a stream its last message.
    pub text: String,
    /// The messages of a stream before the last.
    pub events: Vec<String>,
}

impl Answer {
    pub(super) async fn read(response: reqwest::Response) -> Answer {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await.unwrap_or_default(), events: Vec::new() }
    }

    /// A header, or "".
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The body as JSON, of an answer with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// The message of an answer with this status and REST error code.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> String {
        let body = self.expect(status);
        assert_eq!(body["error"]["code"], code, "{self:?}");
        assert!(body["error"]["request_id"].is_string(), "{self:?}");
        body["error"]["message"].as_str().unwrap().to_owned()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start: String = self.text.chars().take(3000).collect();
        write!(f, "{} {start}", self.status)
    }
}
