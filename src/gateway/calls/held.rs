//! Calls of modern clients whose server asks in the middle, as servers of the handshake revisions do. The client gets the
//! question as the answer to its request. The call is held open here, until the client comes back to any replica.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Calls;
use super::cancel::CallName;
use super::pipeline::{AnswerLetter, CallOutcome, CallRequest, HeldAs, OutcomeLetter};
use super::under_way::UnderWay;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::rounds::{Asked, Capabilities, HeldQuestion, held_question};
use crate::gateway::log::Attempt;
use crate::gateway::mailbox::{AwaitedLetter, Letter, LetterAddress, LetterFault};
use crate::gateway::rounds::{Carried, Whose};
use crate::gateway::{clock, trace};
use crate::upstream::{CallEvent, Hears, QuestionReply, ServerQuestion};

/// Messages of an upstream on their way; more are dropped, as the protocol allows.
const EVENTS_MAX: usize = 64;
/// Most questions of one call that wait for a later round; more are refused.
const QUESTIONS_MAX: usize = 8;
/// Longest time for which a call is held open for the answer to one question.
const HOLD: Duration = Duration::from_secs(300);

/// Call that may be held open.
struct HeldCall {
    calls: Arc<Calls>,
    attempt: Attempt,
    run: Pin<Box<dyn Future<Output = CallOutcome> + Send>>,
    said: mpsc::Receiver<CallEvent>,
    held_as: Arc<OnceLock<HeldAs>>,
    /// Cancels the run.
    stop: CancellationToken,
    /// Outcome of a call that has ended while nobody waited for it.
    ended: Option<CallOutcome>,
    /// Questions for later rounds.
    later: VecDeque<ServerQuestion>,
}

/// Question to which the client has the state.
struct OpenQuestion {
    question: ServerQuestion,
    awaited: AwaitedLetter,
    /// Result that the client gets, raw.
    shown: Bytes,
    /// Time until which the answer is awaited.
    until: Instant,
}

/// Client that has come back, at any replica.
struct Returned {
    letter: AnswerLetter,
    back: LetterAddress,
}

impl Calls {
    /// Runs a call of a client that gets questions as answers. If its server asks in the middle, the question is the outcome of
    /// the request, and the call goes on in a task of its own.
    pub(super) async fn run_holding(
        self: Arc<Self>,
        attempt: Attempt,
        mut request: CallRequest,
        cancelled: CancellationToken,
        under_way: UnderWay,
    ) -> CallOutcome {
        let (events, said) = mpsc::channel(EVENTS_MAX);
        let line = request.hears.take();
        request.hears = Some(Hears {
            events,
            progress: line.as_ref().is_some_and(|line| line.progress),
            log: line.as_ref().and_then(|line| line.log),
            questions: request.round.capabilities.clone(),
        });
        let (stop, held_as) = (CancellationToken::new(), Arc::<OnceLock<HeldAs>>::default());
        request.held_as = Some(Arc::clone(&held_as));
        let stopped = stop.clone().cancelled_owned();
        let run = Box::pin(Arc::clone(&self).run_whole(attempt.clone(), request, stopped, under_way));
        let (calls, ended, later) = (self, None, VecDeque::new());
        let mut held = HeldCall { calls, attempt, run, said, held_as, stop, ended, later };
        let tell = |event| {
            if let Some(line) = &line {
                drop(line.events.try_send(event));
            }
        };
        let open = loop {
            tokio::select! {
                biased;
                () = cancelled.cancelled(), if !held.stop.is_cancelled() => held.stop.cancel(),
                Some(event) = held.said.recv() => match event {
                    CallEvent::Question(question) => match held.put(question) {
                        Some(open) => break open,
                        None => continue,
                    },
                    event => tell(event),
                },
                outcome = &mut held.run => {
                    while let Ok(event) = held.said.try_recv() {
                        tell(event);
                    }
                    return outcome;
                }
            }
        };
        let raw = open.shown.clone();
        held.calls.life.tasks.clone().spawn(trace::within(trace::current(), held.go_on(open)));
        CallOutcome::InputRequired { raw, state: None, unanswered: None }
    }
}

impl HeldCall {
    /// Puts a question: what the client gets, and the wait for the answer. `None` refuses the question: too many wait, this
    /// replica is shutting down, or the question cannot be asked so.
    fn put(&self, question: ServerQuestion) -> Option<OpenQuestion> {
        let awaited = self.calls.mailbox.await_letter(&self.attempt.caller)?;
        let (until, shown) = (Instant::now() + HOLD, self.shown(&question, awaited.address)?);
        (!self.calls.life.is_draining()).then_some(OpenQuestion { question, awaited, shown, until })
    }

    /// Returns the result with a question and the state, by which the answer finds this call.
    fn shown(&self, question: &ServerQuestion, address: LetterAddress) -> Option<Bytes> {
        let HeldAs { first, digest } = *self.held_as.get()?;
        let Attempt { caller, .. } = &self.attempt;
        let (replica, waiter, kind) = (self.calls.options.replica, address.waiter, question.kind);
        let held = Some(HeldQuestion { replica, waiter, kind });
        let (whose, carried) =
            (Whose::of(caller.tenant_id(), caller.key), Carried { first, consent: None, held, own: "" });
        let state = self.calls.options.rounds.seal(whose, &digest, carried, clock::now())?;
        let params = std::str::from_utf8(&question.params).ok()?;
        let raw = held_question(kind, params, &state);
        // checked against the capabilities before; here the whole is
        let all =
            Capabilities::read(r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#);
        Asked::read(&raw, &all.ok()?).ok()?;
        Some(raw.into())
    }

    /// Holds the call until it has ended and its client knows, or does not come back.
    async fn go_on(mut self, mut open: OpenQuestion) {
        while let Some(returned) = self.wait(&mut open).await {
            match self.answer(open, returned).await {
                Some(next) => open = next,
                None => return,
            }
        }
        // the server learns that nobody answers, and the call comes to its end for the record
        drop(open.question);
        self.later.clear();
        while self.ended.is_none() {
            self.step().await;
            self.later.clear();
        }
    }

    /// Waits for the client; `None` if it does not come back in time, or this replica shuts down.
    async fn wait(&mut self, open: &mut OpenQuestion) -> Option<Returned> {
        let mut pulse = self.calls.life.pulse.subscribe();
        loop {
            if self.calls.life.is_draining() {
                return None;
            }
            tokio::select! {
                biased;
                letter = open.awaited.letter() => {
                    let (text, back) = letter.ok()?;
                    let letter = serde_json::from_str(text.get()).ok()?;
                    return Some(Returned { letter, back: back? });
                }
                () = sleep_until(open.until) => return None,
                Ok(()) = pulse.changed() => {}
                // an outcome is kept for the client
                () = self.step(), if self.ended.is_none() => {}
            }
        }
    }

    /// Goes on with the call, to its end or to something that its server says. Cancel-safe.
    async fn step(&mut self) {
        tokio::select! {
            biased;
            Some(event) = self.said.recv() => match event {
                CallEvent::Question(question) if self.later.len() < QUESTIONS_MAX => self.later.push_back(question),
                // a question beyond the bound is dropped, which refuses it; for the rest nobody listens
                _ => {}
            },
            outcome = &mut self.run => self.ended = Some(outcome),
        }
    }

    /// Gives the server its answer, and tells the client what becomes of the call. Returns the next question, if there is one.
    async fn answer(&mut self, mut open: OpenQuestion, returned: Returned) -> Option<OpenQuestion> {
        let Returned { letter: AnswerLetter { answer, capabilities }, back } = returned;
        let Some(answer) = answer else {
            // without an answer the question stands; it is asked again
            open.awaited = self.calls.mailbox.await_letter(&self.attempt.caller)?;
            open.shown = self.shown(&open.question, open.awaited.address)?;
            self.tell(back, &asked(&open.shown)).await;
            return Some(open);
        };
        let answer = Bytes::from(String::from(Box::<str>::from(answer)));
        drop(open.question.reply.send(QuestionReply::Result(answer)));
        let caller = &self.attempt.caller;
        let _named = self
            .calls
            .register(&self.attempt, Some((CallName::of_round(caller, back.waiter), self.stop.clone())));
        // who declares nothing with an answer is not asked again
        let capabilities = Capabilities::read(&capabilities).ok();
        loop {
            if let Some(outcome) = self.ended.take() {
                self.tell(back, &outcome).await;
                return None;
            }
            if let Some(next) = self.later.pop_front() {
                let (method, params) =
                    (next.kind.as_str(), std::str::from_utf8(&next.params).unwrap_or_default());
                let may_ask = capabilities.as_ref().is_some_and(|declared| declared.allows(method, params));
                let Some(next) = may_ask.then(|| self.put(next)).flatten() else { continue };
                self.tell(back, &asked(&next.shown)).await;
                return Some(next);
            }
            self.step().await;
        }
    }

    /// Sends the client an outcome, by the replica that it has come back to.
    async fn tell(&mut self, back: LetterAddress, outcome: &CallOutcome) {
        let letter = OutcomeLetter::of(outcome).unwrap_or(OutcomeLetter::Invalid);
        let what = match self.send(back, &letter).await {
            Ok(()) | Err(LetterFault::Gone) => return,
            Err(LetterFault::TooLong) => {
                "its result is larger than 4 MB, and the answer reached another replica of the gateway"
            }
            Err(LetterFault::Lost) => "its outcome could not be passed on between replicas of the gateway",
        };
        let refusal = Refusal::after_dispatch(Code::UpstreamTooLarge, what);
        drop(self.send(back, &OutcomeLetter::refused(&refusal)).await);
    }

    async fn send(&mut self, back: LetterAddress, letter: &OutcomeLetter) -> Result<(), LetterFault> {
        let text = serde_json::value::to_raw_value(letter).map_err(|_| LetterFault::Lost)?;
        let tenant = self.attempt.caller.tenant_id();
        self.calls.mailbox.send_letter(tenant, back, Letter::new(text, None)).await
    }
}

fn asked(raw: &Bytes) -> CallOutcome {
    CallOutcome::InputRequired { raw: raw.clone(), state: None, unanswered: None }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use ulid::Ulid;

    use super::*;
    use crate::domain::activity::Source;
    use crate::domain::rounds::QuestionKind;
    use crate::gateway::tenants::example_caller;
    use crate::gateway::{Connect, Consent, Ground, Log, Mailbox, Tenants};

    /// A call without an end, and the way to what its server says.
    fn held() -> (HeldCall, mpsc::Sender<CallEvent>) {
        let ground = Ground::example();
        let tenants = Arc::new(Tenants::new(&ground));
        let log = Arc::new(Log::new(&ground, &tenants));
        let connect = Arc::new(Connect::new(&ground, &tenants));
        let asking = (&Arc::new(Consent::new(&ground, &tenants)), &Arc::new(Mailbox::new(&ground)), &connect);
        let (says, said) = mpsc::channel(EVENTS_MAX);
        let held = HeldCall {
            calls: Arc::new(Calls::new(&ground, &tenants, &log, asking)),
            attempt: Attempt::now(example_caller(), Source::Mcp),
            run: Box::pin(std::future::pending()),
            said,
            held_as: Arc::new(HeldAs { first: Ulid::nil(), digest: [0; 32] }.into()),
            stop: CancellationToken::new(),
            ended: None,
            later: VecDeque::new(),
        };
        (held, says)
    }

    fn question() -> (ServerQuestion, oneshot::Receiver<QuestionReply>) {
        let (reply, answer) = oneshot::channel();
        let params = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}"#;
        (ServerQuestion { kind: QuestionKind::Elicitation, params: params.into(), reply }, answer)
    }

    #[tokio::test]
    async fn a_replica_that_drains_holds_no_call() {
        let (held, _says) = held();
        assert!(held.put(question().0).is_some());
        held.calls.life.begin_drain();
        let (question, mut answer) = question();
        assert!(held.put(question).is_none());
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed), "it is refused");
    }

    #[tokio::test]
    async fn so_many_questions_wait_for_later_rounds_and_no_more() {
        let (mut held, says) = held();
        let (questions, mut answers): (Vec<_>, Vec<_>) = (0..=QUESTIONS_MAX).map(|_| question()).unzip();
        for question in questions {
            says.try_send(CallEvent::Question(question)).unwrap();
            held.step().await;
        }
        assert_eq!(held.later.len(), QUESTIONS_MAX);
        let refused = answers.pop().unwrap().try_recv();
        assert_eq!(refused, Err(oneshot::error::TryRecvError::Closed));
        for mut open in answers {
            assert_eq!(open.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        }
    }
}
