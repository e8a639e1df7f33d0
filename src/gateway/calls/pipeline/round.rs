//! Rounds of a request: a server answers with a question, and the caller repeats the request with the answer and a sealed
//! state.

use std::borrow::Cow;

use bytes::Bytes;
use ulid::Ulid;
use uuid::Uuid;

use super::outcome::CallOutcome;
use super::request::RoundRequest;
use crate::domain::activity::{Record, Status};
use crate::domain::json;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relay::Relay;
use crate::domain::rounds::{
    Asked, Bound, CONSENT_KEY, Capabilities, HELD_KEY, HeldQuestion, LOGIN_KEY, Misfit, RoundConsent, State,
    attributed_result, is_answer,
};
use crate::gateway::calls::Calls;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::clock;
use crate::gateway::consent::PendingAsk;
use crate::gateway::log::Attempt;
use crate::gateway::rounds::{Carried, Whose};
use crate::gateway::tenants::Caller;
use crate::upstream;

/// Warning in the record of a request that a server answered with a question.
const ASKED: &str = "asked for input";
/// Error code in the record of a request whose state was not issued for it.
const INVALID_STATE: &str = "invalid_request_state";

/// Error: the state was not issued for this request, or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidState;

/// Facts about a request's earlier rounds.
#[derive(Debug, Default)]
pub(super) struct OpenedRound {
    /// Digest that the returned state is bound to; `None` without a state.
    digest: Option<[u8; 32]>,
    /// Kinds of input that the caller can be asked for; `None` for none.
    pub(super) capabilities: Option<Capabilities>,
    /// Record of the first round; `None` in the first round itself.
    pub(super) first: Option<Ulid>,
    /// Permission request of an earlier round; `None` if no person was asked.
    pub(super) consent: Option<RoundConsent>,
    /// True if a server asked in an earlier round: the call has run in part.
    pub(super) is_under_way: bool,
    /// The person's answer to the gateway's own question, raw; `None` without one.
    pub(super) answer: Option<Bytes>,
    /// Question of a call that is held open, and the answer to it; `None` for any other round.
    pub(super) held: Option<Box<HeldRound>>,
    /// Members for the upstream.
    pub(super) round: upstream::Round,
}

/// Round of a call that is held open.
#[derive(Debug)]
pub(super) struct HeldRound {
    pub(super) question: HeldQuestion,
    /// Answer to the question, raw; `None` if the client gave none.
    pub(super) answer: Option<Bytes>,
}

/// Context of a question: the caller's attempt, the server, and the round.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) server: &'a ServerEntry,
    pub(super) opened: &'a OpenedRound,
    /// Record of this round.
    pub(super) record: Ulid,
    /// Permission request that let the call run.
    pub(super) consent: Option<Uuid>,
}

impl OpenedRound {
    /// Returns whether a person at the caller's client can be asked about the call. A call that has run in part carries the
    /// answers to its server, which would be lost.
    pub(super) fn has_forms(&self, caller: &Caller) -> bool {
        let has_forms = self.capabilities.as_ref().is_some_and(Capabilities::has_forms);
        has_forms && caller.settings.in_band_answers && !self.is_under_way
    }

    /// Returns whether the state, if any, is still bound to this request.
    pub(super) fn is_of(&self, digest: impl FnOnce() -> [u8; 32]) -> bool {
        self.digest.is_none_or(|known| known == digest())
    }
}

/// Returns the digest of everything that a state of a request is bound to. Requests without pin or variant pass empty ones.
pub(super) fn digest(
    attempt: &Attempt,
    server: &ServerEntry,
    (method, subject): (&str, &str),
    (pin, variant): (&str, &str),
    arguments: &str,
) -> [u8; 32] {
    Bound {
        endpoint: attempt.source.as_str(),
        method,
        server: server.id,
        origin: &server.target.upstream.binding(),
        subject,
        pin,
        variant,
        arguments,
    }
    .digest()
}

impl Calls {
    /// Opens the state that the caller returned, and collects the members for the upstream.
    pub(super) fn open_round(
        &self,
        attempt: &Attempt,
        (request, relay): (RoundRequest, Relay),
        digest: impl FnOnce() -> [u8; 32],
    ) -> Result<OpenedRound, InvalidState> {
        let mut opened = OpenedRound { capabilities: request.capabilities, ..OpenedRound::default() };
        let Some(capabilities) = &opened.capabilities else { return Ok(opened) };
        let round = &mut opened.round;
        round.capabilities = Bytes::from(capabilities.within(relay).as_str().to_owned());
        let (answer, responses) = request.responses.map_or((None, None), |raw| split_answer(&raw));
        let Some(state) = request.state else {
            round.members.extend(responses.map(|raw| ("inputResponses", raw)));
            return Ok(opened);
        };
        let text: String = serde_json::from_slice(&state).map_err(|_| InvalidState)?;
        let digest = digest();
        let state = self.options.rounds.open(whose(attempt), &digest, &text, clock::now());
        let State { first, consent, own, held, .. } = state.ok_or(InvalidState)?;
        if let Some(question) = held {
            let held = Some(Box::new(HeldRound::read(question, responses.as_ref())?));
            return Ok(OpenedRound { digest: Some(digest), first: Some(first), held, ..opened });
        }
        let is_under_way = !own.is_empty() || matches!(consent, Some(RoundConsent::Used { .. }));
        if is_under_way {
            round.members.extend(responses.map(|raw| ("inputResponses", raw)));
        }
        if !own.is_empty() {
            round.members.push(("requestState", own.into()));
        }
        Ok(OpenedRound { digest: Some(digest), first: Some(first), consent, is_under_way, answer, ..opened })
    }

    /// Forwards a server's question to the caller, with the server's state sealed for this request alone.
    pub(super) fn ask_caller(
        &self,
        asking: &Asking<'_>,
        raw: &Bytes,
        digest: impl FnOnce() -> [u8; 32],
    ) -> Result<CallOutcome, Refusal> {
        let Asking { attempt, server, opened, record, consent } = *asking;
        let unasked = |what| Refusal::after_dispatch(Code::UpstreamNeedsInput, what);
        let era = self.upstreams.connection(&server.target_of(attempt.caller.to_servers())).era();
        let capabilities = opened.capabilities.as_ref().filter(|_| era == Some(upstream::Era::Modern));
        let Some(capabilities) = capabilities else {
            return Err(unasked("the server wants input that cannot be asked for through this gateway"));
        };
        let text = std::str::from_utf8(raw).unwrap_or_default();
        let allowed = capabilities.within(server.target.relay);
        let read = |text: &str| {
            Asked::read(text, &allowed).map_err(|misfit| match misfit {
                Misfit::NotDeclared if Asked::read(text, capabilities).is_ok() => {
                    unasked("the server wants input that its setting 'relay' does not let it ask for")
                }
                Misfit::NotDeclared => {
                    unasked("the server wants input that this client does not say it can be asked for")
                }
                Misfit::Malformed => Refusal::after_dispatch(
                    Code::UpstreamInvalid,
                    "what the server asks could not be read as MCP",
                ),
                Misfit::TooLarge => Refusal::after_dispatch(
                    Code::UpstreamTooLarge,
                    "what the server asks is larger than the limit",
                ),
            })
        };
        read(text)?;
        // the client sees whose question it is, and the state is replaced in what it sees
        let raw = Bytes::from(attributed_result(text, &server.name));
        let text = std::str::from_utf8(&raw).unwrap_or_default();
        let asked = read(text)?;
        if asked.state.is_none() && consent.is_none() {
            return Ok(CallOutcome::InputRequired { raw, state: None, unanswered: None });
        }
        let own = asked.state.clone().and_then(|range| text.get(range)).unwrap_or_default();
        let consent = consent.map(|id| RoundConsent::Used { id, after: record });
        let carried = Carried { first: opened.first.unwrap_or(record), consent, held: None, own };
        let sealed = self.options.rounds.seal(whose(attempt), &digest(), carried, clock::now());
        let sealed = sealed.ok_or_else(|| unasked("its question could not be sealed"))?;
        let state = match asked.state {
            Some(range) => (range, format!("\"{sealed}\"")),
            // a server without a state of its own: the permission must come back all the same
            None => {
                let start = text.find('{').map_or(0, |brace| brace + 1);
                (start..start, format!("\"requestState\":\"{sealed}\","))
            }
        };
        Ok(CallOutcome::InputRequired { raw, state: Some(state), unanswered: None })
    }

    /// Returns the gateway's own question to the person at the caller's client, if that can be asked about a request that
    /// waits.
    pub(super) fn question(
        &self,
        attempt: &Attempt,
        opened: &OpenedRound,
        ask: &PendingAsk,
        record: Ulid,
        digest: impl FnOnce() -> [u8; 32],
    ) -> Option<Bytes> {
        if !ask.is_in_band {
            return None;
        }
        let consent = Some(RoundConsent::Asked(ask.view.row.id));
        let carried = Carried { first: opened.first.unwrap_or(record), consent, held: None, own: "" };
        let sealed = self.options.rounds.seal(whose(attempt), &digest(), carried, clock::now())?;
        Some(ask.question(&sealed).into())
    }
}

impl HeldRound {
    /// Finds the answer to a question among those that the client gave.
    fn read(question: HeldQuestion, responses: Option<&Bytes>) -> Result<HeldRound, InvalidState> {
        let Some(responses) = responses else { return Ok(HeldRound { question, answer: None }) };
        let text = std::str::from_utf8(responses).map_err(|_| InvalidState)?;
        let [answer] = json::find_members(text, [HELD_KEY]).map_err(|_| InvalidState)?;
        let answer = answer.filter(|raw| *raw != "null");
        if answer.is_some_and(|raw| !is_answer(question.kind, raw)) {
            return Err(InvalidState);
        }
        Ok(HeldRound { question, answer: answer.map(|raw| responses.slice_ref(raw.as_bytes())) })
    }
}

/// Returns the answer to the gateway's own question, and the answers to those of the server without it. That a person opened the
/// page of a login says nothing: the call finds out.
fn split_answer(responses: &Bytes) -> (Option<Bytes>, Option<Bytes>) {
    let text = std::str::from_utf8(responses).unwrap_or_default();
    let Ok([answer, login]) = json::find_members(text, [CONSENT_KEY, LOGIN_KEY]) else {
        return (None, Some(responses.clone()));
    };
    if answer.is_none() && login.is_none() {
        return (None, Some(responses.clone()));
    }
    let rest = json::without_members(text, &[CONSENT_KEY, LOGIN_KEY]).into_owned();
    let is_alone = login.is_some() && json::top_level_members(&rest).is_ok_and(|rest| rest.is_empty());
    let rest = (!is_alone).then(|| rest.into());
    (answer.map(|answer| responses.slice_ref(answer.as_bytes())), rest)
}

fn whose(attempt: &Attempt) -> Whose {
    Whose::of(attempt.caller.tenant_id(), attempt.caller.key)
}

/// Notes that the upstream answered with a question.
pub(super) fn note_asked(record: &mut Record) {
    record.status = Status::Success;
    record.warn(ASKED);
}

/// Notes that the returned state was not issued for this request.
pub(super) fn note_invalid(record: &mut Record) {
    record.status = Status::Blocked;
    record.error_code = Some(INVALID_STATE.to_owned());
    record.error_message = Some("the state is not one that was given for this request of late".to_owned());
}

/// Returns a server's question without its state, which no record may hold.
pub(super) fn without_state(raw: &Bytes) -> Bytes {
    match json::without_members(std::str::from_utf8(raw).unwrap_or_default(), &["requestState"]) {
        Cow::Borrowed(_) => raw.clone(),
        Cow::Owned(text) => text.into(),
    }
}
