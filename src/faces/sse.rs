//! Server-sent events, for all faces: what a stream looks like, how many a key may hold open, when one must end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::Instant;

use super::Faces;
use crate::domain::id::KeyId;
use crate::gateway::{Caller, Gateway};

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a stream asks whether its key still is valid.
pub(super) const CHECK: Duration = Duration::from_secs(1);

/// What a key is told that has no place left.
pub(super) const TOO_MANY: &str =
    "this key has too many streams open; close one, or try again in a few seconds";

/// Open streams by key, bounded.
#[derive(Debug, Default)]
pub struct Streams(Mutex<HashMap<Option<KeyId>, usize>>);

impl Streams {
    fn take(&self, key: Option<KeyId>, max: usize) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(key).or_insert(0);
        if *count >= max {
            return false;
        }
        *count += 1;
        true
    }
}

/// A stream that a client holds open: its place among those of its key, and what keeps it alive.
pub(super) struct OpenStream {
    faces: Arc<Faces>,
    caller: Arc<Caller>,
    alive: Instant,
}

impl OpenStream {
    /// Takes a place; `None` when this key has too many open.
    pub(super) fn begin(faces: &Arc<Faces>, caller: &Arc<Caller>) -> Option<OpenStream> {
        let is_free = faces.streams.take(caller.key, faces.options.streams_per_key_max);
        is_free.then(|| OpenStream {
            faces: Arc::clone(faces),
            caller: Arc::clone(caller),
            alive: Instant::now(),
        })
    }

    /// The use cases.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.faces.gateway
    }

    /// Whose it is.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether the gateway has to end it: it stops, or the key has ended.
    pub(super) fn must_end(&self) -> bool {
        self.gateway().is_draining() || !self.gateway().is_valid(&self.caller)
    }

    /// Whether it has been silent for so long that it should say that it is alive; asking is saying.
    pub(super) fn is_sign_due(&mut self) -> bool {
        let is_due = self.alive.elapsed() >= KEEP_ALIVE;
        if is_due {
            self.alive = Instant::now();
        }
        is_due
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.faces.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.caller.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.caller.key);
            }
        }
    }
}

/// Headers of an event stream that no proxy may hold back.
pub(super) fn event_stream(body: axum::body::Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What an event begins with.
pub(super) const EVENT_START: &str = "event: message\ndata: ";
/// What ends it.
pub(super) const EVENT_END: &str = "\n\n";

/// One server-sent event around a JSON text.
pub(super) fn event(message: &str) -> Bytes {
    let mut out = Vec::with_capacity(EVENT_START.len() + message.len() + EVENT_END.len());
    out.extend_from_slice(EVENT_START.as_bytes());
    out.extend_from_slice(message.as_bytes());
    if let Some(data) = out.get_mut(EVENT_START.len()..) {
        data.iter_mut().filter(|byte| is_break(byte)).for_each(|byte| *byte = b' ');
    }
    out.extend_from_slice(EVENT_END.as_bytes());
    out.into()
}

/// Part of a JSON text as part of an event's data, which is one line; JSON has its line breaks between tokens only.
pub(super) fn one_line(part: Bytes) -> Bytes {
    if !part.iter().any(is_break) {
        return part;
    }
    part.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect()
}

fn is_break(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
