//! Many requests at a time over the pipes of one program, matched to their answers by id.

mod past;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::past::Past;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::events::CallEvent;
use crate::upstream::protocol::events::CallerMark;
use crate::upstream::protocol::hello::HELLO_BYTES_MAX;
use crate::upstream::protocol::jsonrpc::{self, Answer};
use crate::upstream::protocol::questions::{Ear, LogFilter, Talk, UPSTREAM_REQUESTS_MAX};

/// Most messages on their way to a program; later senders wait until it has taken one.
const OUTGOING_MAX: usize = 8;

/// Carries requests to a program, and answers back to their callers.
pub(super) struct PipeWire {
    outgoing: mpsc::Sender<Bytes>,
    /// Callers that wait, by request id; `None` once the program has ended.
    waiting: Mutex<Option<HashMap<u64, Waiter>>>,
    past: Mutex<Past>,
    next_id: AtomicU64,
    /// Whether the program announced a change of a list since that was last taken.
    announced: AtomicBool,
}

/// Receiver of the messages for a program.
pub(super) type Outgoing = mpsc::Receiver<Bytes>;

/// Caller that waits for an answer.
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Result<Answer, UpstreamError>>,
    pub(super) bytes_max: usize,
    /// Caller that waits; `None` for the gateway itself.
    caller: Option<CallerMark>,
    /// Queue for progress; `None` if none is wanted.
    progress: Option<mpsc::Sender<CallEvent>>,
    /// Queue for log messages, with the filter that they pass; `None` if none are wanted.
    log: Option<(mpsc::Sender<CallEvent>, LogFilter)>,
    /// Queue for what the program asks; `None` if the caller cannot be asked anything.
    asked: Option<mpsc::Sender<ProgramSays>>,
}

/// Request of a program for the caller of one of ours, or its end.
pub(super) enum ProgramSays {
    /// Request of the program.
    Asks {
        /// Method of the request.
        method: Box<str>,
        /// Id of the request, raw.
        id: Box<RawValue>,
        /// Raw `params`; `None` if there are none.
        params: Option<Bytes>,
    },
    /// Raw id of a request that the program takes back.
    TakesBack(Box<RawValue>),
    /// Raw `params` of the notification that a page is done.
    EndsPage(Bytes),
}

/// Request to a program.
pub(super) struct PipeRequest<'a> {
    pub(super) id: u64,
    pub(super) body: Bytes,
    pub(super) bytes_max: usize,
    /// Caller of the request; `None` for the gateway itself.
    pub(super) caller: Option<CallerMark>,
    /// Caller as the program may talk to it; `None` if nobody listens.
    pub(super) ear: Option<Ear<'a>>,
    /// True if the program speaks in an era in which it may ask the caller something.
    pub(super) may_ask: bool,
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
        let wire = Self { outgoing, waiting, past: Mutex::default(), next_id, announced };
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
        let ear = request.ear;
        let (asked, asks) = ear
            .filter(|ear| request.may_ask && ear.can_be_asked())
            .map(|_| mpsc::channel(UPSTREAM_REQUESTS_MAX))
            .unzip();
        let waiter = Waiter {
            answer,
            bytes_max: request.bytes_max,
            caller: request.caller,
            progress: ear.filter(|ear| ear.hears.progress).map(|ear| ear.hears.events.clone()),
            log: ear.and_then(|ear| {
                let level = ear.log_level()?;
                Some((ear.hears.events.clone(), LogFilter::new(Some(level))))
            }),
            asked,
        };
        match self.waiting.lock().as_mut() {
            Some(waiting) => drop(waiting.insert(request.id, waiter)),
            None => return Err(ended()),
        }
        let mut asked =
            Asked { wire: self, id: request.id, caller: request.caller, farewell: request.farewell };
        request.dispatched.store(true, Ordering::Relaxed);
        slot.send(line(&request.body));
        let answer = match asks {
            // boxed: large and rare, it must not be part of every call's future
            Some(asks) => Box::pin(self.answer_meanwhile(ear, asks, answered)).await,
            None => answered.await,
        };
        // the caller's entry was removed with the answer
        asked.farewell = None;
        answer.unwrap_or_else(|_| Err(lost()))
    }

    /// Waits for an answer, and answers what the program asks meanwhile.
    async fn answer_meanwhile<T>(
        &self,
        ear: Option<Ear<'_>>,
        mut asks: mpsc::Receiver<ProgramSays>,
        mut answered: oneshot::Receiver<T>,
    ) -> Result<T, oneshot::error::RecvError> {
        let (mut talk, mut left) = (Talk::new(ear), UPSTREAM_REQUESTS_MAX);
        loop {
            let says = tokio::select! {
                biased;
                answer = &mut answered => return answer,
                Some(says) = asks.recv() => says,
                never = talk.go_on() => match never {},
            };
            let (method, id, params) = match says {
                ProgramSays::Asks { method, id, params } => (method, id, params),
                ProgramSays::TakesBack(id) => {
                    talk.withdraw(&id);
                    continue;
                }
                ProgramSays::EndsPage(params) => {
                    if serde_json::from_slice(&params).is_ok_and(|raw| talk.ends_page(raw)) {
                        talk.tell(CallEvent::PageDone(params));
                    }
                    continue;
                }
            };
            let raw = params.as_deref().map(serde_json::from_slice::<&RawValue>).and_then(Result::ok);
            let admitted = match left.checked_sub(1) {
                Some(fewer) => {
                    left = fewer;
                    talk.admit(&method, &id, raw)
                }
                None => Err(jsonrpc::unsupported(&id)),
            };
            match admitted {
                Ok(kind) => {
                    let params = params.unwrap_or_else(|| Bytes::from_static(b"{}"));
                    talk.ask(kind, id.get(), params, |body| self.reply(body));
                }
                Err(reply) => self.tell(&reply),
            }
        }
    }

    /// Sends the answer to a question, once the program takes it.
    async fn reply(&self, body: Bytes) {
        // fails only when the program has ended
        drop(self.outgoing.send(line(&body)).await);
    }

    /// Gives a request of the program to the only caller whom it can be meant for. Returns whether there is one.
    pub(super) fn ask_caller(&self, says: ProgramSays) -> bool {
        let waiting = self.waiting.lock();
        let asked = waiting.as_ref().and_then(|waiting| self.only_call(waiting.values()));
        let asked = asked.and_then(|waiter| waiter.asked.as_ref());
        asked.is_some_and(|asked| asked.try_send(says).is_ok())
    }

    /// Tells all callers that the program has taken a request back: one of them may have it.
    pub(super) fn take_back(&self, id: &RawValue) {
        self.tell_askable(|| ProgramSays::TakesBack(id.to_owned()));
    }

    /// Tells all callers that a page is done: one of them may have been asked to open it.
    pub(super) fn end_page(&self, params: &Bytes) {
        self.tell_askable(|| ProgramSays::EndsPage(params.clone()));
    }

    fn tell_askable(&self, says: impl Fn() -> ProgramSays) {
        for waiter in self.waiting.lock().iter().flat_map(HashMap::values) {
            if let Some(asked) = &waiter.asked {
                drop(asked.try_send(says()));
            }
        }
    }

    /// Passes a log message on to the only caller whom it can be meant for; a slow caller misses some.
    pub(super) fn log(&self, params: &RawValue, bytes: impl FnOnce() -> Bytes) {
        let mut waiting = self.waiting.lock();
        let only = waiting.as_mut().and_then(|waiting| self.only_call(waiting.values_mut()));
        if let Some((events, filter)) = only.and_then(|waiter| waiter.log.as_mut())
            && filter.passes(params)
        {
            drop(events.try_send(CallEvent::Log(bytes())));
        }
    }

    /// Returns the only call under way; `None` if there are several, or if the program may still speak of earlier ones.
    fn only_call<W: Borrow<Waiter>>(&self, waiting: impl Iterator<Item = W>) -> Option<W> {
        let mut calls =
            waiting.filter_map(|waiter| Some((Borrow::<Waiter>::borrow(&waiter).caller?, waiter)));
        let (caller, first) = calls.next()?;
        (calls.next().is_none() && self.past.lock().is_over_for(caller, Instant::now())).then_some(first)
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
        let found = self.waiting.lock().as_mut()?.remove(&id);
        match &found {
            Some(waiter) => self.past.lock().ended(waiter.caller, Instant::now()),
            None => self.past.lock().answered_late(id, Instant::now()),
        }
        found
    }

    /// Passes progress on to the caller that asked for it; a slow caller misses some.
    pub(super) fn progress(&self, token: u64, params: Bytes) {
        let waiting = self.waiting.lock();
        let waiter = waiting.as_ref().and_then(|waiting| waiting.get(&token));
        if let Some(progress) = waiter.and_then(|waiter| waiter.progress.as_ref()) {
            drop(progress.try_send(CallEvent::Progress(params)));
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
    caller: Option<CallerMark>,
    farewell: Option<Bytes>,
}

impl Asked<'_> {
    /// Removes the caller's entry; returns whether it was there. From then on a call counts as given up.
    fn give_up(&self) -> bool {
        let mut waiting = self.wire.waiting.lock();
        let was_open = waiting.as_mut().is_some_and(|waiting| waiting.remove(&self.id).is_some());
        if let Some(caller) = self.caller.filter(|_| was_open) {
            self.wire.past.lock().given_up(self.id, caller, Instant::now());
        }
        was_open
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let was_open = self.give_up();
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

#[cfg(test)]
mod tests;
