//! State that rmcp's transport and its streams share: the connections, the session and the state of its stream.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::watch;

use super::tap::Tap;
use crate::upstream::error::UpstreamError;
use crate::upstream::http::post::Http;
use crate::upstream::http::session::checked_id;
use crate::upstream::http::wires::Lease;

/// Error that rmcp gets when a request fails.
pub(super) type OpeningFailed = StreamableHttpError<UpstreamError>;

/// State of the stream of a handshake session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionStream {
    /// The stream was not requested yet.
    None,
    /// The stream is open; each opening gets another number.
    Live(u64),
    /// The server offers no such stream.
    Unsupported,
    /// The stream could not be opened, or has ended.
    Ended,
}

/// State that all copies of a transport and all its streams share.
pub(super) struct SharedClient {
    http: Http,
    /// Headers of every request, credentials included.
    base: HeaderMap,
    /// Largest message, in bytes.
    pub(super) bytes_max: usize,
    pub(super) tap: Tap,
    session: Mutex<Session>,
    /// Whether the session's stream may be opened. False until the handshake shows that the stream is worth it.
    pub(super) allowed: watch::Sender<bool>,
    pub(super) stream: watch::Sender<SessionStream>,
    /// Error that ended a stream, until it is taken; `None` if all streams ended regularly.
    fault: Mutex<Option<UpstreamError>>,
}

/// Session as the server names it, and the number of sessions so far, which forms the stand-in that rmcp gets.
#[derive(Default)]
struct Session {
    id: Option<HeaderValue>,
    number: u64,
    streams: u64,
}

impl SharedClient {
    pub(super) fn new(http: Http, base: HeaderMap, bytes_max: usize) -> Self {
        Self {
            http,
            base,
            bytes_max,
            tap: Tap::default(),
            session: Mutex::default(),
            allowed: watch::Sender::new(false),
            stream: watch::Sender::new(SessionStream::None),
            fault: Mutex::default(),
        }
    }

    /// Takes the error that ended a stream; `None` if there was none.
    pub(super) fn take_fault(&self) -> Option<UpstreamError> {
        self.fault.lock().take()
    }

    /// Returns whether the server named a session.
    pub(super) fn has_session(&self) -> bool {
        self.session.lock().id.is_some()
    }

    /// Records the error that ended a stream.
    pub(super) fn note(&self, error: UpstreamError) {
        *self.fault.lock() = Some(error);
    }

    /// Records that the session's stream is open.
    pub(super) fn session_stream_opened(&self) {
        let number = {
            let mut session = self.session.lock();
            session.streams += 1;
            session.streams
        };
        self.stream.send_replace(SessionStream::Live(number));
    }

    /// Records that the session's stream could not be opened, or has ended.
    pub(super) fn session_stream_ended(&self) {
        self.stream.send_replace(SessionStream::Ended);
    }

    /// Stores the session that an answer to `initialize` opens. Returns its stand-in; `None` without an id.
    pub(super) fn open_session(&self, id: Option<HeaderValue>) -> Result<Option<String>, UpstreamError> {
        let id = id.map(checked_id).transpose()?;
        let mut session = self.session.lock();
        session.number += 1;
        session.id = id;
        Ok(session.id.is_some().then(|| stand_in(session.number)))
    }

    /// Returns the headers of a request in the session that rmcp names by its stand-in.
    pub(super) fn headers(
        &self,
        session: Option<&str>,
        own: HashMap<HeaderName, HeaderValue>,
    ) -> Result<HeaderMap, OpeningFailed> {
        let mut headers = self.base.clone();
        for (name, value) in own {
            if name.as_str().starts_with("mcp-") && name != "mcp-session-id" {
                headers.insert(name, value);
            }
        }
        if let Some(asked) = session {
            let session = self.session.lock();
            let id = session.id.as_ref().filter(|_| stand_in(session.number) == asked);
            headers.insert("mcp-session-id", id.ok_or(StreamableHttpError::SessionExpired)?.clone());
        }
        Ok(headers)
    }

    /// Sends a request and reads the head of its answer.
    pub(super) async fn exchange(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Lease, Response<Incoming>), OpeningFailed> {
        let sent = self.http.exchange(method, headers, body, &AtomicBool::new(false)).await;
        sent.map_err(StreamableHttpError::Client)
    }
}

fn stand_in(number: u64) -> String {
    format!("session-{number}")
}
