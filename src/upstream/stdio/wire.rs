//! Many requests at a time over the pipes of one program, told apart by their ids.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};

use crate::upstream::discover::HELLO_BYTES_MAX;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::jsonrpc::Answer;

/// Messages on their way to a program; whoever comes later waits until it has taken one.
const OUTGOING_MAX: usize = 8;

/// How requests get to a program, and answers back to who asked.
pub(super) struct PipeWire {
    outgoing: mpsc::Sender<Bytes>,
    /// `None` once the program has ended.
    waiting: Mutex<Option<HashMap<u64, Waiter>>>,
    next_id: AtomicU64,
    /// The program announced a change of a list since that was last taken.
    announced: AtomicBool,
}

/// Messages for a program.
pub(super) type Outgoing = mpsc::Receiver<Bytes>;

/// Whoever asked something.
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Result<Answer, UpstreamError>>,
    pub(super) progress: Option<mpsc::Sender<Bytes>>,
    pub(super) bytes_max: usize,
}

/// A request.
pub(super) struct PipeRequest<'a> {
    pub(super) id: u64,
    pub(super) body: Bytes,
    pub(super) bytes_max: usize,
    pub(super) progress: Option<&'a mpsc::Sender<Bytes>>,
    /// Set once the program may have seen it.
    pub(super) dispatched: &'a AtomicBool,
    /// What is told to the program when nobody waits for the answer any more.
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

    /// An id for a request; never used twice for one program.
    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for its answer. The caller bounds the time.
    pub(super) async fn ask(&self, request: PipeRequest<'_>) -> Result<Answer, UpstreamError> {
        let ended =
            || UpstreamError::unsent(FailureKind::NotRunning { retry_s: Some(1) }, "it has just ended");
        let slot = self.outgoing.reserve().await.map_err(|_| ended())?;
        let (answer, answered) = oneshot::channel();
        let progress = request.progress.cloned();
        let waiter = Waiter { answer, progress, bytes_max: request.bytes_max };
        match self.waiting().as_mut() {
            Some(waiting) => drop(waiting.insert(request.id, waiter)),
            None => return Err(ended()),
        }
        let mut asked = Asked { wire: self, id: request.id, farewell: request.farewell };
        request.dispatched.store(true, Ordering::Relaxed);
        slot.send(line(&request.body));
        let answer = answered.await;
        // whoever answered has taken the waiter away
        asked.farewell = None;
        answer.unwrap_or_else(|_| Err(lost()))
    }

    /// Sends what has no answer, if there is room for it.
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

    /// Takes whoever waits for this answer.
    pub(super) fn take(&self, id: u64) -> Option<Waiter> {
        self.waiting().as_mut()?.remove(&id)
    }

    /// Hands progress to whoever asked for it; one that does not keep up misses some.
    pub(super) fn progress(&self, token: u64, params: Bytes) {
        let waiting = self.waiting();
        let waiter = waiting.as_ref().and_then(|waiting| waiting.get(&token));
        if let Some(progress) = waiter.and_then(|waiter| waiter.progress.as_ref()) {
            drop(progress.try_send(params));
        }
    }

    /// The longest line that anybody waits for.
    pub(super) fn bytes_max(&self) -> usize {
        let waiting = self.waiting();
        let longest = waiting.iter().flat_map(HashMap::values).map(|waiter| waiter.bytes_max).max();
        longest.unwrap_or_default().max(HELLO_BYTES_MAX)
    }

    /// Nothing can be asked any more; whoever waits learns that the answer is lost.
    pub(super) fn close(&self) {
        drop(self.waiting().take());
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request on its way. Dropped before its answer, it is taken back.
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

/// A message as one line. JSON has line ends only between its values, where a space means the same.
fn line(body: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(body.len() + 1);
    line.extend(body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    line.put_u8(b'\n');
    line.freeze()
}

/// Writes messages until the program takes no more, or nobody can send any.
pub(super) async fn write(mut input: ChildStdin, mut outgoing: Outgoing) {
    while let Some(line) = outgoing.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}
