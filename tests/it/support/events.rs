//! A stream of server-sent events, read as a client reads it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use serde_json::Value;
use sse_stream::{ByteStreamBody, SseStream};

use super::api::Api;

/// How long a test waits for the next event.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// An open stream.
pub struct Events {
    stream: SseStream<ByteStreamBody<BoxStream<'static, reqwest::Result<Bytes>>, Bytes>>,
    /// The id of the last event.
    pub last: Option<String>,
}

impl Events {
    /// Opens it, after the event with this id.
    pub async fn open(api: &Api, path: &str, last: Option<&str>) -> Events {
        let mut request = api.request(Method::GET, path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let stream = SseStream::from_bytes_stream(response.bytes_stream().boxed());
        Events { stream, last: last.map(str::to_owned) }
    }

    /// The next event with data; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(WAIT_MAX, self.stream.next()).await.expect("an event in time");
            let event = next?.ok()?;
            self.last = event.id.or(self.last.take());
            if let Some(data) = event.data {
                return Some(serde_json::from_str(&data).unwrap());
            }
        }
    }

    /// Waits for the first sign: from then on, nothing is missed.
    pub async fn opened(&mut self) {
        let first = tokio::time::timeout(WAIT_MAX, self.stream.next()).await.expect("a sign in time");
        self.last = first.unwrap().unwrap().id;
        assert!(self.last.is_some());
    }
}
