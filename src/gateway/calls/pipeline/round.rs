//! Where a request stands among its rounds: what its caller can be asked and answers, and what a server asks.

use std::borrow::Cow;

use bytes::Bytes;
use ulid::Ulid;

use super::outcome::CallOutcome;
use super::request::RoundRequest;
use crate::domain::activity::{Record, Status};
use crate::domain::json;
use crate::domain::origin::Origin;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::rounds::{Asked, Bound, Capabilities, Misfit};
use crate::gateway::calls::Calls;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::clock;
use crate::gateway::log::Attempt;
use crate::gateway::rounds::Whose;
use crate::upstream;

/// What a record says of a request that a server answered with a question.
const ASKED: &str = "asked for input";
/// What a record calls a state that is not its request's.
const INVALID_STATE: &str = "invalid_request_state";

/// A state that was not given for this request, or not lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidState;

/// What is known of the rounds before.
#[derive(Debug, Default)]
pub(super) struct OpenedRound {
    /// What the state that came back is bound to.
    digest: Option<[u8; 32]>,
    /// What the caller can be asked.
    capabilities: Option<Capabilities>,
    /// The record of the first round.
    pub(super) first: Option<Ulid>,
    /// What goes to the upstream.
    pub(super) round: upstream::Round,
}

/// Who asks whom.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) server: &'a ServerEntry,
    pub(super) opened: &'a OpenedRound,
    /// The record of this round.
    pub(super) record: Ulid,
}

impl OpenedRound {
    /// Whether it is about this request, still.
    pub(super) fn is_of(&self, digest: impl FnOnce() -> [u8; 32]) -> bool {
        self.digest.is_none_or(|known| known == digest())
    }
}

/// Returns the digest of all that a state of a request is bound to. What has no pin or variant gives empty ones.
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
        origin: &origin(server),
        subject,
        pin,
        variant,
        arguments,
    }
    .digest()
}

/// Where a server is; what no origin can be read of stands for itself.
fn origin(server: &ServerEntry) -> String {
    let target = &server.target;
    match &target.program {
        Some(program) => format!("program {}", program.name),
        None => Origin::of(&target.url).map_or_else(|| target.url.clone(), |origin| origin.to_string()),
    }
}

impl Calls {
    /// Opens what came back from the round before.
    pub(super) fn open_round(
        &self,
        attempt: &Attempt,
        request: RoundRequest,
        digest: impl FnOnce() -> [u8; 32],
    ) -> Result<OpenedRound, InvalidState> {
        let mut opened = OpenedRound { capabilities: request.capabilities, ..OpenedRound::default() };
        let Some(capabilities) = &opened.capabilities else { return Ok(opened) };
        let round = &mut opened.round;
        round.capabilities = Bytes::copy_from_slice(capabilities.as_str().as_bytes());
        round.members.extend(request.responses.map(|raw| ("inputResponses", raw)));
        let Some(state) = request.state else { return Ok(opened) };
        let text: String = serde_json::from_slice(&state).map_err(|_| InvalidState)?;
        let digest = digest();
        let state = self.options.rounds.open(whose(attempt), &digest, &text, clock::now());
        let state = state.ok_or(InvalidState)?;
        round.members.push(("requestState", state.own.into()));
        Ok(OpenedRound { digest: Some(digest), first: Some(state.first), ..opened })
    }

    /// A server's question on its way to the caller, with a state that only this request can bring back.
    pub(super) fn ask_caller(
        &self,
        asking: &Asking<'_>,
        raw: Bytes,
        digest: impl FnOnce() -> [u8; 32],
    ) -> Result<CallOutcome, Refusal> {
        let Asking { attempt, server, opened, record } = *asking;
        let unasked = |what| Refusal::after_dispatch(Code::UpstreamNeedsInput, what);
        let era = self.upstreams.connection(&server.target).era();
        let capabilities = opened.capabilities.as_ref().filter(|_| era == Some(upstream::Era::Modern));
        let Some(capabilities) = capabilities else {
            return Err(unasked("the server wants input that cannot be asked for through this gateway"));
        };
        let text = std::str::from_utf8(&raw).unwrap_or_default();
        let asked = Asked::read(text, capabilities).map_err(|misfit| match misfit {
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
        })?;
        let state = match asked.state {
            None => None,
            Some(range) => {
                let own = text.get(range.clone()).unwrap_or_default();
                let first = opened.first.unwrap_or(record);
                let sealed = self.options.rounds.seal(whose(attempt), &digest(), first, own, clock::now());
                let sealed = sealed.ok_or_else(|| unasked("its question could not be sealed"))?;
                Some((range, format!("\"{sealed}\"")))
            }
        };
        Ok(CallOutcome::InputRequired { raw, state })
    }
}

fn whose(attempt: &Attempt) -> Whose {
    Whose::of(attempt.caller.tenant_id(), attempt.caller.key)
}

/// Notes that the upstream answered with a question.
pub(super) fn note_asked(record: &mut Record) {
    record.status = Status::Success;
    let before = record.warning.take();
    record.warning = Some(before.map_or(ASKED.to_owned(), |warning| format!("{warning}; {ASKED}")));
}

/// Notes that the state that came back is not this request's.
pub(super) fn note_invalid(record: &mut Record) {
    record.status = Status::Blocked;
    record.error_code = Some(INVALID_STATE.to_owned());
    record.error_message = Some("the state is not one that was given for this request of late".to_owned());
}

/// A server's question without the state that goes with it, which is nobody's to read.
pub(super) fn without_state(raw: &Bytes) -> Bytes {
    match json::without_members(std::str::from_utf8(raw).unwrap_or_default(), &["requestState"]) {
        Cow::Borrowed(_) => raw.clone(),
        Cow::Owned(text) => text.into(),
    }
}
