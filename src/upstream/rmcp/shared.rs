//! What rmcp's transport and its streams share: the connections, the session, the fate of its stream.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response};
use hyper::body::Incoming;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::watch;

use super::super::error::UpstreamError;
use super::super::post::Http;
use super::super::session::checked_id;
use super::super::wires::Lease;
use super::tap::Tap;

/// What rmcp is told when a request fails.
pub(super) type OpeningFailed = StreamableHttpError<UpstreamError>;

/// The stream of a session of the handshake era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionStream {
    /// Not asked for yet.
    None,
    /// Open; each time it is opened it gets another number.
    Live(u64),
    /// The server has none.
    Unsupported,
    /// It was not opened, or has ended.
    Ended,
}

/// What all copies of a transport and all its streams share.
pub(super) struct SharedClient {
    http: Http,
    /// The headers of every request, credentials included.
    base: HeaderMap,
    /// Largest message, in bytes.
    pub(super) bytes_max: usize,
    pub(super) tap: Tap,
    session: Mutex<Session>,
    /// Whether the session's stream may be opened: only the handshake tells whether it is worth it.
    pub(super) allowed: watch::Sender<bool>,
    pub(super) stream: watch::Sender<SessionStream>,
    /// Why a stream ended, if it did not do so in good order.
    fault: Mutex<Option<UpstreamError>>,
}

/// The session as the server names it, and how often one was opened: the stand-in's number.
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

    /// Why a stream ended, if something was wrong with it.
    pub(super) fn take_fault(&self) -> Option<UpstreamError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the server named a session.
    pub(super) fn has_session(&self) -> bool {
        self.session().id.is_some()
    }

    /// Keeps why a stream ended.
    pub(super) fn note(&self, error: UpstreamError) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// The session's stream is open.
    pub(super) fn session_stream_opened(&self) {
        let number = {
            let mut session = self.session();
            session.streams += 1;
            session.streams
        };
        self.stream.send_replace(SessionStream::Live(number));
    }

    /// The session's stream is not open (any more).
    pub(super) fn session_stream_ended(&self) {
        self.stream.send_replace(SessionStream::Ended);
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the session that an answer to `initialize` opens; gives its stand-in.
    pub(super) fn open_session(&self, id: Option<HeaderValue>) -> Result<Option<String>, UpstreamError> {
        let id = id.map(checked_id).transpose()?;
        let mut session = self.session();
        session.number += 1;
        session.id = id;
        Ok(session.id.is_some().then(|| stand_in(session.number)))
    }

    /// The headers of a request in the session that rmcp names by its stand-in.
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
            let session = self.session();
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
