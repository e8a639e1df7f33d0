//! Event stream of an upstream, as rmcp reads it: paced, bounded in size and in silence, never resumed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hyper::body::Incoming;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::time::{Instant, sleep_until, timeout};

use super::shared::SharedClient;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::sse::Events;
use crate::upstream::http::wires::Lease;

/// Most messages taken from one stream within [`PACE_WINDOW`]; the rest waits in the socket.
const EVENTS_MAX: usize = 50;
const PACE_WINDOW: Duration = Duration::from_secs(1);
/// Silence after which a stream is given up: a device in between may have dropped the connection.
const SILENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// Role of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamRole {
    /// Answer to a request.
    Answer,
    /// Stream of a session, on which servers of the handshake era announce changes.
    Session,
}

/// Stream that is being read.
struct Reading {
    /// Connection of the stream; `None` once the stream has ended regularly.
    lease: Option<Lease>,
    body: Incoming,
    events: Events,
    pace: Pace,
    role: StreamRole,
    shared: Arc<SharedClient>,
}

/// Returns a response body as a stream of messages. It ends at the first error, which goes to `shared`.
pub(super) fn messages(
    lease: Lease,
    body: Incoming,
    role: StreamRole,
    shared: Arc<SharedClient>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let events = Events::new(shared.bytes_max);
    let reading = Reading { lease: Some(lease), body, events, pace: Pace::default(), role, shared };
    stream::unfold(reading, |mut reading| async {
        match reading.next().await {
            // Neither id nor retry time: missed changes are found by listing, not by resuming.
            Ok(data) => Some((Ok(Sse { data: Some(data?), ..Sse::default() }), reading)),
            Err(error) => {
                reading.shared.note(error);
                None
            }
        }
    })
    .boxed()
}

impl Reading {
    async fn next(&mut self) -> Result<Option<String>, UpstreamError> {
        loop {
            while let Some(event) = self.events.next()? {
                if let Some(next) = self.pace.admit(Instant::now()) {
                    sleep_until(next).await;
                }
                if let Some(message) = self.shared.tap.read(&event)? {
                    return Ok(Some(message));
                }
            }
            let Some(lease) = self.lease.as_mut() else { return Ok(None) };
            match timeout(SILENCE_MAX, lease.next(&mut self.body)).await {
                Ok(Some(piece)) => self.events.push(&piece?)?,
                Ok(None) => {
                    if let Some(lease) = self.lease.take() {
                        lease.give_back();
                    }
                    return Ok(None);
                }
                Err(_) => {
                    return Err(UpstreamError::sent(
                        FailureKind::Timeout,
                        "the stream was silent for too long",
                    ));
                }
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.role == StreamRole::Session {
            self.shared.session_stream_ended();
        }
    }
}

/// Rate limit of a stream: [`EVENTS_MAX`] messages per [`PACE_WINDOW`].
#[derive(Default)]
struct Pace {
    window: Option<(Instant, usize)>,
}

impl Pace {
    /// Counts a message; returns the time until which it has to wait, if it has to.
    fn admit(&mut self, now: Instant) -> Option<Instant> {
        let (began, count) = match self.window {
            Some((began, count)) if now < began + PACE_WINDOW => (began, count + 1),
            _ => (now, 1),
        };
        self.window = Some((began, count));
        (count > EVENTS_MAX).then(|| {
            let next = began + PACE_WINDOW;
            self.window = Some((next, 1));
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_held_back() {
        let mut pace = Pace::default();
        let began = Instant::now();
        let mut now = began;
        for _ in 0..EVENTS_MAX * 4 {
            now = pace.admit(now).unwrap_or(now);
        }
        assert_eq!(now - began, PACE_WINDOW * 3);
        // slow messages never wait
        now += PACE_WINDOW;
        for _ in 0..EVENTS_MAX * 4 {
            now += PACE_WINDOW / 10;
            assert_eq!(pace.admit(now), None);
        }
    }
}
