//! Streams that a client holds open: a handshake GET, a modern `subscriptions/listen`.
//!
//! `/mcp` has nothing to announce, so they carry nothing but signs of life; they end when the key does, when
//! the gateway stops, or when the client goes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use tokio::time::Instant;

use crate::domain::id::KeyId;
use crate::faces::Faces;
use crate::faces::http::stream_body;
use crate::gateway::Caller;

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a stream asks whether its key still is valid.
const CHECK: Duration = Duration::from_secs(1);

/// Open streams by key, bounded.
#[derive(Debug, Default)]
pub struct Streams(Mutex<HashMap<Option<KeyId>, usize>>);

/// A stream's place; given back when it ends.
struct Place {
    faces: Arc<Faces>,
    key: Option<KeyId>,
}

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

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.faces.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

/// Opens a stream that begins with `first` and ends with `last` when the gateway ends it. `None` when this
/// key has too many open.
pub(super) fn open(
    faces: &Arc<Faces>,
    caller: &Arc<Caller>,
    first: Bytes,
    last: Option<String>,
) -> Option<Response> {
    if !faces.streams.take(caller.key, faces.options.streams_per_key_max) {
        return None;
    }
    let place = Place { faces: Arc::clone(faces), key: caller.key };
    let state =
        State { caller: Arc::clone(caller), place, next: Next::First(first), last, alive: Instant::now() };
    Some(event_stream(stream_body(stream::unfold(state, step))))
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

enum Next {
    First(Bytes),
    Wait,
    End,
}

struct State {
    caller: Arc<Caller>,
    place: Place,
    next: Next,
    last: Option<String>,
    alive: Instant,
}

async fn step(mut state: State) -> Option<(Result<Bytes, Infallible>, State)> {
    match std::mem::replace(&mut state.next, Next::Wait) {
        Next::End => None,
        Next::First(event) => Some((Ok(event), state)),
        Next::Wait => loop {
            let gateway = &state.place.faces.gateway;
            if gateway.is_draining() || !gateway.is_valid(&state.caller) {
                state.next = Next::End;
                let last = state.last.take()?;
                return Some((Ok(event(&last)), state));
            }
            if state.alive.elapsed() >= KEEP_ALIVE {
                state.alive = Instant::now();
                return Some((Ok(Bytes::from_static(b": alive\n\n")), state));
            }
            tokio::time::sleep(CHECK).await;
        },
    }
}
