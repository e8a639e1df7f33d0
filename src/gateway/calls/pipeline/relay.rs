//! Messages of a server to the caller of a request, with the server's name in them and a record of each question.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use ulid::Ulid;

use super::checks::Checked;
use super::record::{self, KnownSecrets};
use super::request::HeldAs;
use crate::domain::activity::{Record, RecordKind, Status};
use crate::domain::json;
use crate::domain::redact;
use crate::domain::rounds::{QuestionKind, attributed, attributed_log};
use crate::gateway::calls::Calls;
use crate::gateway::clock;
use crate::gateway::log::{Attempt, Pending};
use crate::upstream::{CallEvent, Era, QuestionReply, Request, ServerQuestion};

/// Messages of a server on their way; of those beyond that, only questions wait.
const EVENTS_MAX: usize = 64;
/// Longest action in the answer to a form that a record keeps, in bytes.
const ACTION_BYTES_MAX: usize = 40;
/// Longest text of a refused question that a record keeps, in bytes.
const MESSAGE_BYTES_MAX: usize = 1000;
/// Text of the record of a question that the server's `relay` keeps back.
const KEPT_BACK: &str = "the setting 'relay' of the server does not let it ask this";

/// Request whose server may say something before its answer.
#[derive(Clone, Copy)]
pub(super) struct Relayed<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) checked: &'a Checked,
    /// Record of the request.
    pub(super) record: Ulid,
    /// Record of the first round.
    pub(super) first: Ulid,
    /// Place for the binding of a state; `None` if the call is not held open for answers.
    pub(super) held_as: Option<&'a Arc<OnceLock<HeldAs>>>,
}

impl Relayed<'_> {
    /// Returns the record of a question of the server, at its beginning.
    fn record(&self, calls: &Calls, kind: QuestionKind, params: &Bytes) -> Record {
        let server = self.checked.server();
        let attempt = Attempt { started_at: clock::now(), ..self.attempt.clone() };
        let mut record = attempt.record(RecordKind::Question);
        record.server = Some(server.name.clone());
        record.tool = Some(kind.as_str().to_owned());
        record.parent_id = Some(self.record);
        record::question(
            &mut record,
            &KnownSecrets::of(server, &self.attempt.caller, &calls.upstreams),
            params,
            calls.options.preview_bytes,
        );
        record
    }

    /// Returns the record of a question that the server's `relay` keeps back.
    fn kept_back(&self, calls: &Calls, kind: QuestionKind, params: &Bytes) -> Record {
        let mut record = self.record(calls, kind, params);
        record.status = Status::Blocked;
        if let QuestionReply::Refused { code, .. } = QuestionReply::unsupported() {
            record.error_code = Some(code.to_string());
        }
        record.error_message = Some(KEPT_BACK.to_owned());
        record
    }
}

/// Relay between a server and the caller of one request.
pub(super) struct CallRelay<'a> {
    calls: &'a Calls,
    of: Relayed<'a>,
    said: mpsc::Receiver<CallEvent>,
    caller: mpsc::Sender<CallEvent>,
}

impl<'a> CallRelay<'a> {
    /// Takes the place of the caller for what its server says; `None` if only progress can come, or nothing.
    pub(super) fn between(calls: &'a Calls, of: Relayed<'a>, request: &mut Request) -> Option<CallRelay<'a>> {
        let hears = request.hears.as_mut()?;
        // servers of MCP 2026-07-28 ask in their answers
        let target = || of.checked.server().target_of(of.attempt.caller.to_servers());
        let is_modern = || calls.upstreams.connection(&target()).era() == Some(Era::Modern);
        if of.held_as.is_some() && is_modern() {
            hears.questions = None;
        }
        // whatever `relay` says here: the connection may be one of newer settings
        if hears.questions.is_none() && hears.log.is_none() {
            return None;
        }
        let (events, said) = mpsc::channel(EVENTS_MAX);
        let caller = std::mem::replace(&mut hears.events, events);
        Some(CallRelay { calls, of, said, caller })
    }

    /// Waits for the answer to the request, and passes on what its server says meanwhile.
    pub(super) async fn until<T>(mut self, answered: impl Future<Output = T>) -> T {
        let answer = tokio::select! {
            biased;
            answer = answered => answer,
            never = self.pass_on() => match never {},
        };
        // what came with the answer; nobody waits for the answers to questions any more
        while let Ok(event) = self.said.try_recv() {
            self.tell(event);
        }
        answer
    }

    async fn pass_on(&mut self) -> Infallible {
        let mut open = FuturesUnordered::new();
        loop {
            let said = tokio::select! {
                Some(()) = open.next(), if !open.is_empty() => continue,
                Some(said) = self.said.recv() => said,
                // the request holds the other end for as long as it runs
                else => std::future::pending().await,
            };
            match said {
                CallEvent::Question(question) => {
                    let asking = QuestionPut { calls: self.calls, of: self.of, caller: self.caller.clone() };
                    open.push(asking.put(question));
                }
                event => self.tell(event),
            }
        }
    }

    /// Passes on what needs no answer, or records it. A caller that does not keep up misses it.
    fn tell(&self, event: CallEvent) {
        let event = match event {
            CallEvent::Log(params) => {
                let params = std::str::from_utf8(&params).unwrap_or_default();
                CallEvent::Log(attributed_log(params, &self.of.checked.server().name).into())
            }
            CallEvent::Progress(_) | CallEvent::PageDone(_) => event,
            CallEvent::KeptBack { kind, params } => {
                return self.calls.log.write(self.of.kept_back(self.calls, kind, &params));
            }
            CallEvent::Question(_) => return,
        };
        drop(self.caller.try_send(event));
    }
}

/// Means to put one question.
struct QuestionPut<'a> {
    calls: &'a Calls,
    of: Relayed<'a>,
    caller: mpsc::Sender<CallEvent>,
}

impl QuestionPut<'_> {
    /// Puts a question to the caller, and gives its server the answer. A question that cannot be recorded is refused.
    async fn put(self, question: ServerQuestion) {
        // the raw text holds memory of its tenant, also for the copy
        let ServerQuestion { kind, params, mut reply } = question;
        let Some(mut step) = self.begin(kind, &params).await else {
            drop(reply.send(QuestionReply::unasked("The question cannot be recorded now")));
            return;
        };
        let text = std::str::from_utf8(&params).unwrap_or_default();
        let (answer, answered) = oneshot::channel();
        let named = attributed(kind, text, &self.of.checked.server().name).into();
        if let Some(held_as) = self.of.held_as {
            let Relayed { attempt, checked, first, .. } = self.of;
            held_as.get_or_init(|| HeldAs { first, digest: checked.digest(attempt) });
        }
        let asked = CallEvent::Question(ServerQuestion { kind, params: named, reply: answer });
        let put = async {
            self.caller.send(asked).await.ok()?;
            answered.await.ok()
        };
        let answer = tokio::select! {
            biased;
            answer = put => answer,
            // the server has taken it back, or waited for too long
            () = reply.closed() => return,
        };
        let answer = answer.unwrap_or_else(|| QuestionReply::unasked("The client cannot be asked now"));
        step.answered(kind, &answer);
        drop(reply.send(answer));
    }

    /// Commits the record of a question; `None` if that fails.
    async fn begin(&self, kind: QuestionKind, params: &Bytes) -> Option<QuestionStep> {
        let record = self.of.record(self.calls, kind, params);
        let pending = self.calls.log.activity.begin_call(record).await.ok()?.open().await.ok()?;
        Some(QuestionStep { pending: Some(pending), began: Instant::now() })
    }
}

/// Question that is open, with its record. One that is dropped has been taken back, or its request has ended.
struct QuestionStep {
    pending: Option<Pending>,
    began: Instant,
}

impl QuestionStep {
    /// Notes the answer. What is in it stays out of the record.
    fn answered(&mut self, kind: QuestionKind, answer: &QuestionReply) {
        let Some(pending) = &mut self.pending else { return };
        let record = &mut pending.record;
        match answer {
            QuestionReply::Result(raw) => {
                record.status = Status::Success;
                record.response_bytes = i64::try_from(raw.len()).ok();
                record.response = (kind == QuestionKind::Elicitation).then(|| action(raw)).flatten();
            }
            QuestionReply::Refused { code, message } => {
                // no fault of the gateway's, and none of the server's
                record.status = Status::Cancelled;
                record.error_code = Some(code.to_string());
                record.error_message = Some(redact::preview(message, MESSAGE_BYTES_MAX).text);
            }
        }
        self.close();
    }

    fn close(&mut self) {
        let Some(mut pending) = self.pending.take() else { return };
        pending.record.wait_ms = Some(clock::milliseconds(self.began.elapsed()));
        pending.close();
    }
}

impl Drop for QuestionStep {
    fn drop(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.record.status = Status::Cancelled;
        }
        self.close();
    }
}

/// Returns what a person did with a form, without what they wrote.
fn action(raw: &Bytes) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    let [action] = json::find_members(text, ["action"]).ok()?;
    let action = action.filter(|action| action.starts_with('"') && action.len() <= ACTION_BYTES_MAX)?;
    Some(format!(r#"{{"action":{action}}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_the_action_is_kept_and_nothing_else() {
        for (raw, kept) in [
            (r#"{"action":"accept","content":{"password":"p"}}"#, Some(r#"{"action":"accept"}"#)),
            (r#"{"content":{},"action" : "decline"}"#, Some(r#"{"action":"decline"}"#)),
            (r#"{"action":{"content":"secret"}}"#, None),
            (r#"{"action":"a text that is far too long for any action"}"#, None),
            ("{}", None),
        ] {
            assert_eq!(action(&Bytes::from_static(raw.as_bytes())).as_deref(), kept, "{raw}");
        }
    }
}
