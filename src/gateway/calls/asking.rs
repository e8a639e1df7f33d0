//! Calls of handshake clients that are asked while the call is held. Clients of the modern era repeat a call with their
//! answers; here the gateway does that for them, so that both eras pass the same checks.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Calls;
use super::line::{ClientLine, ClientQuestion, ToClient};
use super::pipeline::{CallOutcome, CallRequest, Refused, Replaced, RoundRequest, Unanswered};
use super::under_way::{CallStop, UnderWay};
use crate::domain::json;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::clock;
use crate::gateway::consent::{ConsentNews, cut_off};
use crate::gateway::log::Attempt;
use crate::gateway::mailbox::REPLY_BYTES_MAX;
use crate::upstream::{CallEvent, Hears, QuestionReply, ServerQuestion};

/// Most rounds of one call.
const ROUNDS_MAX: usize = 16;
/// Messages of an upstream on their way; more are dropped, as the protocol allows.
const EVENTS_MAX: usize = 64;
/// Most questions of one server in the middle of one call that wait at the same time; more are refused.
const QUESTIONS_MAX: usize = 8;
/// Longest wait for the answer to a question of a server.
const QUESTION_WAIT_MAX: Duration = Duration::from_secs(300);
/// Interval at which a client is told that its call waits: some give a call up that is silent for 30 s.
const TICK: Duration = Duration::from_secs(15);

/// Questions of one round.
struct RoundQuestions {
    /// Key, method and raw `params` of each.
    inputs: Vec<(String, String, Bytes)>,
    /// State for the next round, raw.
    state: Option<Bytes>,
    unanswered: Box<Unanswered>,
}

/// Time for which one call waits for a decision about it. It begins with the first question, and a question that is repeated
/// does not prolong it.
struct ConsentHold {
    max: Duration,
    until: Option<Instant>,
}

impl ConsentHold {
    /// Returns the time that is left; zero once it is over.
    fn left(&mut self, now: Instant) -> Duration {
        self.until.get_or_insert(now + self.max).saturating_duration_since(now)
    }
}

/// Way in which a wait for a client ended.
enum WaitEnd {
    Reply(QuestionReply),
    /// Decision of somebody else.
    Decided,
    /// The client cannot be asked, or did not reply in time.
    Nothing,
    /// The call was cancelled, or its turn ended.
    Stopped(CallStop),
}

/// Call and the client that can be asked about it.
struct Conversation<'a> {
    calls: &'a Arc<Calls>,
    attempt: &'a Attempt,
    line: &'a ClientLine,
    cancelled: &'a CancellationToken,
    under_way: &'a UnderWay,
}

/// Question that waits for a reply. A client is told when it does not any more.
struct OpenQuestion<'a> {
    line: &'a ClientLine,
    id: String,
    is_answered: bool,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // a client that does not read its messages is not helped by one more
            drop(self.line.events.try_send(ToClient::Withdraw(std::mem::take(&mut self.id))));
        }
    }
}

impl RoundQuestions {
    /// Reads the questions of a round; `None` if they are not of the form that was checked before.
    fn read(raw: &Bytes, state: Option<Replaced>, unanswered: Box<Unanswered>) -> Option<RoundQuestions> {
        let whole = match state {
            None => raw.clone(),
            Some((range, text)) => {
                let (before, after) = (raw.get(..range.start)?, raw.get(range.end..)?);
                Bytes::from([before, text.as_bytes(), after].concat())
            }
        };
        let text = std::str::from_utf8(&whole).ok()?;
        let part = |part: &str| whole.slice_ref(part.as_bytes());
        let [requests, state] = json::find_members(text, ["inputRequests", "requestState"]).ok()?;
        let mut inputs = Vec::new();
        for request in json::top_level_members(requests.unwrap_or("{}")).ok()? {
            let [method, params] = json::find_members(request.value, ["method", "params"]).ok()?;
            let params = params.filter(|raw| raw.starts_with('{')).map_or(Bytes::from_static(b"{}"), part);
            inputs.push((request.name.to_string(), serde_json::from_str(method?).ok()?, params));
        }
        Some(RoundQuestions { inputs, state: state.map(part), unanswered })
    }
}

impl Calls {
    /// Runs a call, and asks its client whatever comes up. The call goes on with the answers, or with the decision of somebody
    /// else. `under_way` keeps it registered meanwhile.
    pub(super) async fn run_asking(
        self: Arc<Self>,
        attempt: Attempt,
        mut request: CallRequest,
        line: ClientLine,
        cancelled: CancellationToken,
        under_way: UnderWay,
    ) -> CallOutcome {
        let conversation = Conversation {
            calls: &self,
            attempt: &attempt,
            line: &line,
            cancelled: &cancelled,
            under_way: &under_way,
        };
        let capabilities = request.round.capabilities.clone();
        let mut outcome = Box::pin(conversation.round(attempt.clone(), request.clone())).await;
        // the form whose answer was none of those on offer is shown once more
        let (mut answered, mut may_repeat) = (None, true);
        let mut hold = ConsentHold { max: self.options.consent_hold, until: None };
        for _ in 1..ROUNDS_MAX {
            let questions = match outcome {
                CallOutcome::InputRequired { raw, state, unanswered: Some(unanswered) } => {
                    RoundQuestions::read(&raw, state, unanswered)
                }
                CallOutcome::Refused(refused)
                    if may_repeat && refused.refusal.code == Code::ConsentMalformed =>
                {
                    may_repeat = false;
                    let Some(questions) = answered.take() else { return CallOutcome::Refused(refused) };
                    Some(questions)
                }
                outcome => return outcome,
            };
            let Some(questions) = questions else { return CallOutcome::InvalidState };
            let responses = match conversation.put(&questions, &mut hold).await {
                Ok(responses) => responses,
                Err(refusal) => return CallOutcome::Refused(questions.unanswered.refused_by(refusal)),
            };
            let state = questions.state.clone();
            request.round = RoundRequest { capabilities: capabilities.clone(), responses, state };
            answered = Some(questions);
            // the time of people is not that of the call
            let (started, started_at) = (Instant::now(), clock::now());
            let again = Attempt { started, started_at, ..attempt.clone() };
            outcome = Box::pin(conversation.round(again, request.clone())).await;
        }
        match outcome {
            CallOutcome::InputRequired { unanswered: Some(unanswered), .. } => {
                CallOutcome::Refused(unanswered.refused)
            }
            outcome => outcome,
        }
    }
}

impl Unanswered {
    /// Returns the refusal of the call; `None` for the reason that nobody answered.
    fn refused_by(self, refusal: Option<Refusal>) -> Refused {
        match refusal {
            None => self.refused,
            Some(refusal) => Refused { refusal, ..self.refused },
        }
    }
}

impl Conversation<'_> {
    /// Runs one round. Meanwhile the client gets what the upstream says, and is asked what the upstream asks.
    async fn round(&self, attempt: Attempt, mut request: CallRequest) -> CallOutcome {
        let (events, mut said) = mpsc::channel(EVENTS_MAX);
        let ClientLine { progress, log, .. } = *self.line;
        request.hears = Some(Hears { events, progress, log, questions: request.round.capabilities.clone() });
        let cancelled = self.cancelled.clone().cancelled_owned();
        let under_way = self.calls.register(&attempt, None);
        let mut run = pin!(Arc::clone(self.calls).run_whole(attempt, request, cancelled, under_way));
        let mut asked = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(event) = said.recv() => match event {
                    // a question beyond the bound is dropped, which refuses it
                    CallEvent::Question(question) if asked.len() < QUESTIONS_MAX => {
                        asked.push(self.relay(question));
                    }
                    event => self.tell(event),
                },
                Some(()) = asked.next() => {}
                outcome = &mut run => {
                    while let Ok(event) = said.try_recv() {
                        self.tell(event);
                    }
                    return outcome;
                }
            }
        }
    }

    /// Passes on what the client need not answer.
    fn tell(&self, event: CallEvent) {
        let message = match event {
            CallEvent::Progress(params) => ToClient::Progress(params),
            CallEvent::Log(params) => ToClient::Log(params),
            CallEvent::PageDone(params) => ToClient::PageDone(params),
            CallEvent::Question(_) | CallEvent::KeptBack { .. } => return,
        };
        drop(self.line.events.try_send(message));
    }

    /// Asks the client what an upstream asks in the middle of the call.
    async fn relay(&self, question: ServerQuestion) {
        let ServerQuestion { kind, params, mut reply } = question;
        let end = tokio::select! {
            biased;
            () = reply.closed() => return,
            end = self.ask((kind.as_str(), params), QUESTION_WAIT_MAX, None) => end,
        };
        if let WaitEnd::Reply(answer) = end {
            drop(reply.send(answer));
        }
    }

    /// Asks the questions of a round, one after the other. Returns the raw `inputResponses`; `None` if somebody else has
    /// decided.
    ///
    /// # Errors
    /// The refusal of the call; `None` for the one of a client that does not answer.
    async fn put(
        &self,
        questions: &RoundQuestions,
        hold: &mut ConsentHold,
    ) -> Result<Option<Bytes>, Option<Refusal>> {
        let consent = questions.unanswered.consent;
        let mut responses = String::from("{");
        for (key, method, params) in &questions.inputs {
            let wait = if consent.is_some() { hold.left(Instant::now()) } else { QUESTION_WAIT_MAX };
            if wait.is_zero() {
                return Err(None);
            }
            match self.ask((method, params.clone()), wait, consent).await {
                WaitEnd::Reply(QuestionReply::Result(raw)) => {
                    if responses.len() + raw.len() > REPLY_BYTES_MAX {
                        return Err(None);
                    }
                    if responses.len() > 1 {
                        responses.push(',');
                    }
                    json::escape_into(&mut responses, key);
                    responses.push(':');
                    responses.push_str(std::str::from_utf8(&raw).map_err(|_| None)?);
                }
                WaitEnd::Reply(_) | WaitEnd::Nothing => return Err(None),
                WaitEnd::Decided => return Ok(None),
                WaitEnd::Stopped(CallStop::Person(comment)) => {
                    return Err(Some(cut_off("The user", comment.as_deref())));
                }
                WaitEnd::Stopped(CallStop::Caller) => {
                    let message = "The call was cancelled by its caller while it waited for an answer";
                    return Err(Some(Refusal::new(Code::Cancelled, message)));
                }
            }
        }
        responses.push('}');
        Ok((!questions.inputs.is_empty()).then(|| responses.into()))
    }

    /// Asks the client something, and waits for its reply. `consent` is the permission request that the question is about, if
    /// it is the gateway's own.
    async fn ask(&self, (method, params): (&str, Bytes), hold: Duration, consent: Option<Uuid>) -> WaitEnd {
        let caller = &self.attempt.caller;
        let Some(session) = &self.attempt.session_id else { return WaitEnd::Nothing };
        let Some(mut awaited) = self.calls.mailbox.await_reply(caller, session, hold) else {
            return WaitEnd::Nothing;
        };
        // from now on, so that no decision is missed
        let news = consent.and_then(|_| self.calls.consent.follow(caller).ok());
        let question = ClientQuestion { id: awaited.id.clone(), method: method.to_owned(), params };
        let sent = timeout(TICK, self.line.events.send(ToClient::Ask(question))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return WaitEnd::Nothing;
        }
        let mut open = OpenQuestion { line: self.line, id: awaited.id.clone(), is_answered: false };
        let (mut over, mut decided) = (pin!(sleep(hold)), pin!(self.decided(consent, news)));
        let mut tick = interval_at(tokio::time::Instant::now() + TICK, TICK);
        let mut pulse = self.calls.life.pulse.subscribe();
        loop {
            if self.calls.life.is_draining() {
                return WaitEnd::Nothing;
            }
            tokio::select! {
                biased;
                () = self.cancelled.cancelled() => return WaitEnd::Stopped(CallStop::Caller),
                stop = self.under_way.ended() => return WaitEnd::Stopped(stop),
                () = self.line.events.closed() => return WaitEnd::Nothing,
                reply = awaited.reply() => {
                    open.is_answered = reply.is_some();
                    return reply.map_or(WaitEnd::Nothing, WaitEnd::Reply);
                }
                () = &mut decided => return WaitEnd::Decided,
                () = &mut over => return WaitEnd::Nothing,
                Ok(()) = pulse.changed() => {}
                _ = tick.tick() => drop(self.line.events.try_send(ToClient::Waiting)),
            }
        }
    }

    /// Waits until a permission request does not wait for a person any more; for ever without one.
    async fn decided(&self, consent: Option<Uuid>, news: Option<ConsentNews>) {
        match (consent, news) {
            (Some(id), Some(mut news)) => news.decided(&self.calls.consent, id).await,
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &'static str, state: Option<Replaced>) -> RoundQuestions {
        let refusal = Refusal::new(Code::UpstreamNeedsInput, "");
        let refused = Refused { refusal, tool: None, variant: None, declared: None, is_structured: true };
        let unanswered = Box::new(Unanswered { consent: None, refused });
        RoundQuestions::read(&Bytes::from_static(raw.as_bytes()), state, unanswered).unwrap()
    }

    #[test]
    fn questions_of_a_round_are_read_with_the_sealed_state() {
        let raw = r#"{"requestState":"own","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"x","params":{"n":1e400}}}}"#;
        let start = raw.find("\"own\"").unwrap();
        let questions = read(raw, Some((start..start + 5, "\"sealed\"".to_owned())));
        assert_eq!(questions.state.as_deref(), Some(&b"\"sealed\""[..]));
        let inputs: Vec<(&str, &str, &[u8])> =
            questions.inputs.iter().map(|(key, method, params)| (&**key, &**method, &**params)).collect();
        assert_eq!(inputs, [("a", "roots/list", &b"{}"[..]), ("b", "x", br#"{"n":1e400}"#)]);
        // a server without a state of its own, whose call has used a permission up
        let added = read(r#"{"inputRequests":{}}"#, Some((1..1, r#""requestState":"sealed","#.to_owned())));
        assert_eq!((added.state.as_deref(), added.inputs.len()), (Some(&b"\"sealed\""[..]), 0));
        assert_eq!(read(r#"{"inputRequests":{}}"#, None).state, None);
    }

    #[test]
    fn a_question_that_is_repeated_prolongs_no_hold() {
        let (mut hold, now) = (ConsentHold { max: Duration::from_secs(45), until: None }, Instant::now());
        let left = [0, 30, 44, 45, 50].map(|after| hold.left(now + Duration::from_secs(after)).as_secs());
        assert_eq!(left, [45, 15, 1, 0, 0]);
    }
}
