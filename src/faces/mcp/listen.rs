//! Streams that a client holds open: a handshake GET, a modern `subscriptions/listen`.
//!
//! `/mcp` has nothing to announce, so they carry nothing but signs of life; they end when the key does, when
//! the gateway stops, or when the client goes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;

use crate::faces::Faces;
use crate::faces::http::stream_body;
use crate::faces::sse::{CHECK, OpenStream, TooMany, event, event_stream};
use crate::gateway::Caller;

/// Opens a stream that begins with `first` and ends with `last` when the gateway ends it.
///
/// # Errors
/// [`TooMany`]
pub(super) fn open(
    faces: &Arc<Faces>,
    caller: &Arc<Caller>,
    first: Bytes,
    last: Option<String>,
) -> Result<Response, TooMany> {
    let state = State { open: OpenStream::begin(faces, caller)?, next: Next::First(first), last };
    Ok(event_stream(stream_body(stream::unfold(state, step))))
}

enum Next {
    First(Bytes),
    Wait,
    End,
}

struct State {
    open: OpenStream,
    next: Next,
    last: Option<String>,
}

async fn step(mut state: State) -> Option<(Result<Bytes, Infallible>, State)> {
    match std::mem::replace(&mut state.next, Next::Wait) {
        Next::End => None,
        Next::First(event) => Some((Ok(event), state)),
        Next::Wait => loop {
            if state.open.must_end() {
                state.next = Next::End;
                let last = state.last.take()?;
                return Some((Ok(event(&last)), state));
            }
            if state.open.is_sign_due() {
                return Some((Ok(Bytes::from_static(b": alive\n\n")), state));
            }
            tokio::time::sleep(CHECK).await;
        },
    }
}
