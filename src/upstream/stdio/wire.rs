//! Many requests at a time over the pipes of one program, matched to their answers by id.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};

use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::events::{CallEvent, Hears};
use crate::upstream::protocol::hello::HELLO_BYTES_MAX;
use crate::upstream::protocol::jsonrpc::Answer;

/// Most messages on their way to a program; later senders wait until it has taken one.
const OUTGOING_MAX: usize = 8;

/// Carries requests to a program, and answers back to their callers.
pub(super) struct PipeWire {
    outgoing: mpsc::Sender<Bytes>,
    /// Callers that wait, by request id; `None` once the program has ended.
    waiting: Mutex<Option<HashMap<u64, Waiter>>>,
    next_id: AtomicU64,
    /// Whether the program announced a change of a list since that was last taken.
    announced: AtomicBool,
}

/// Receiver of the messages for a program.
pub(super) type Outgoing = mpsc::Receiver<Bytes>;

/// Caller that waits for an answer.
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Result<Answer, UpstreamError>>,
    pub(super) hears: Option<Hears>,
    pub(super) bytes_max: usize,
}

/// Request to a program.
pub(super) struct PipeRequest<'a> {
    pub(super) id: u64,
    pub(super) body: Bytes,
    pub(super) bytes_max: usize,
    pub(super) hears: Option<&'a Hears>,
    /// Set once the program may have seen the request.
    pub(super) dispatched: &'a AtomicBool,
    /// Message to the program if the caller gives up before the answer; `None` sends none.
    pub(super) farewell: Option<Bytes>,
}

impl PipeWire {
    pub(super) fn new() -> (Self, Outgoing) {
        let (outgoing, taken) = mpsc::channel(OUTGOING_MAX);
        let waiting = Mutex::new(Some(HashMap::new()));
        let (next_id, announced) = (AtomicU64::new(1), AtomicBool::new(false));
        let wire = Self { outgoing, waiting, next_id, announced };
        (wire, taken)
    }

    /// Returns an id for a request; no id is used twice for one program.
    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for its answer. The caller bounds the time.
    pub(super) async fn ask(&self, request: PipeRequest<'_>) -> Result<Answer, UpstreamError> {
        let ended =
            || UpstreamError::unsent(FailureKind::NotRunning { retry_s: Some(1) }, "it has just ended");
        let slot = self.outgoing.reserve().await.map_err(|_| ended())?;
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter { answer, hears: request.hears.cloned(), bytes_max: request.bytes_max };
        match self.waiting.lock().as_mut() {
            Some(waiting) => drop(waiting.insert(request.id, waiter)),
            None => return Err(ended()),
        }
        let mut asked = Asked { wire: self, id: request.id, farewell: request.farewell };
        request.dispatched.store(true, Ordering::Relaxed);
        slot.send(line(&request.body));
        let answer = answered.await;
        // the caller's entry was removed with the answer
        asked.farewell = None;
        answer.unwrap_or_else(|_| Err(lost()))
    }

    /// Sends a message that has no answer, if there is room for it in the queue.
    pub(super) fn tell(&self, body: &[u8]) {
        if self.outgoing.try_send(line(body)).is_err() {
            tracing::debug!("a program takes no messages now: one without an answer is left out");
        }
    }

    /// Notes that the program announced a change of one of its lists.
    pub(super) fn announce(&self) {
        self.announced.store(true, Ordering::Relaxed);
    }

    /// Takes the note of [`PipeWire::announce`]: returns whether there was one since the last time.
    pub(super) fn take_announced(&self) -> bool {
        self.announced.swap(false, Ordering::Relaxed)
    }

    /// Removes and returns the caller that waits for this answer.
    pub(super) fn take(&self, id: u64) -> Option<Waiter> {
        self.waiting.lock().as_mut()?.remove(&id)
    }

    /// Passes progress on to the caller that asked for it; a slow caller misses some.
    pub(super) fn progress(&self, token: u64, params: Bytes) {
        let waiting = self.waiting.lock();
        let waiter = waiting.as_ref().and_then(|waiting| waiting.get(&token));
        let hears = waiter.and_then(|waiter| waiter.hears.as_ref());
        if let Some(hears) = hears.filter(|hears| hears.progress) {
            drop(hears.events.try_send(CallEvent::Progress(params)));
        }
    }

    /// Returns the bound on a line: the largest answer that a caller waits for, at least [`HELLO_BYTES_MAX`].
    pub(super) fn bytes_max(&self) -> usize {
        let waiting = self.waiting.lock();
        let longest = waiting.iter().flat_map(HashMap::values).map(|waiter| waiter.bytes_max).max();
        longest.unwrap_or_default().max(HELLO_BYTES_MAX)
    }

    /// Ends all requests: callers that wait learn that the answer is lost, and later ones are refused.
    pub(super) fn close(&self) {
        drop(self.waiting.lock().take());
    }
}

/// Guard of a request under way. Dropped before the answer, it withdraws the request.
struct Asked<'a> {
    wire: &'a PipeWire,
    id: u64,
    farewell: Option<Bytes>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let was_open = self.wire.take(self.id).is_some();
        if let Some(farewell) = self.farewell.take().filter(|_| was_open) {
            self.wire.tell(&farewell);
        }
    }
}

fn lost() -> UpstreamError {
    UpstreamError::sent(FailureKind::Lost, "its program ended without an answer")
}

/// Returns a message as one line. JSON has line ends only between its values, where a space means the same.
fn line(body: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(body.len() + 1);
    line.extend(body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    line.put_u8(b'\n');
    line.freeze()
}

/// Writes messages until the program takes no more, or the queue is closed.
pub(super) async fn write(mut input: ChildStdin, mut outgoing: Outgoing) {
    while let Some(line) = outgoing.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}
