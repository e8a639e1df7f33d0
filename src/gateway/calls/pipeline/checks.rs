//! Checks before a request is sent, one module per kind of request; this file holds their common parts.

pub(super) mod offer;
pub(in crate::gateway::calls) mod tool;

use std::borrow::Cow;
use std::sync::Arc;

use uuid::Uuid;

use self::offer::CheckedOffer;
use self::tool::CheckedTool;
use super::logins::{login_refused, login_unavailable};
use super::request::CallRequest;
use super::round;
use super::sending::SpanSubject;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::server_login::LoginState;
use crate::domain::tool::PinState;
use crate::gateway::calls::own::{OwnCall, OwnTool, ToolWay};
use crate::gateway::catalog::ServerEntry;
use crate::gateway::log::Attempt;
use crate::upstream::{CallerMark, ExchangeFor, Request, Round, Sent, Subject};

/// A request that passed its checks and may be sent.
#[derive(Debug)]
pub(super) enum Checked {
    /// A tool call.
    Tool(CheckedTool),
    /// A request for a prompt, a resource or a completion.
    Offer(CheckedOffer),
}

impl Checked {
    /// Returns the server of the request.
    pub(super) fn server(&self) -> &Arc<ServerEntry> {
        match self {
            Self::Tool(call) => &call.tool.server,
            Self::Offer(asked) => &asked.offer.server,
        }
    }

    /// Returns the digest of everything that a round state of this request is bound to.
    pub(super) fn digest(&self, attempt: &Attempt) -> [u8; 32] {
        match self {
            Self::Tool(call) => {
                let (what, how) =
                    (("tools/call", &*call.tool.name), (&**call.tool.shape.pin(), call.variant.as_str()));
                let arguments = std::str::from_utf8(&call.arguments).unwrap_or_default();
                round::digest(attempt, self.server(), what, how, arguments)
            }
            Self::Offer(asked) => {
                let what = (asked.method(), asked.own_name());
                round::digest(attempt, self.server(), what, ("", ""), asked.arguments())
            }
        }
    }

    /// Returns the call with its task, if the gateway itself answers it; `None` if the server does.
    pub(super) fn own_call<'a>(&'a self, attempt: &'a Attempt) -> Option<(OwnTool, OwnCall<'a>)> {
        let Self::Tool(call) = self else { return None };
        let ToolWay::Own(own) = ToolWay::of(&call.tool) else { return None };
        Some((own, OwnCall { attempt, tool: &call.tool, arguments: &call.arguments }))
    }

    /// Returns the method and the subject of the request's span.
    pub(super) fn about(&self) -> (&'static str, SpanSubject<'_>) {
        match self {
            Self::Tool(call) => ("tools/call", SpanSubject::Tool(&call.tool.name)),
            Self::Offer(asked) => (asked.method(), asked.about()),
        }
    }

    /// Returns the upstream request: subject under the server's own names, forwarded members, and limits.
    pub(super) fn to_send(
        &self,
        request: CallRequest,
        attempt: &Attempt,
        round: Round,
        sent: Arc<Sent>,
    ) -> Request {
        let (subject, members) = match self {
            Self::Tool(call) => {
                (Subject::Tool(call.tool.name.to_string()), vec![("arguments", call.arguments.clone())])
            }
            Self::Offer(asked) => asked.to_send(),
        };
        let param_headers = match self {
            Self::Tool(call) => call.param_headers(),
            Self::Offer(_) => Vec::new(),
        };
        Request {
            subject,
            members,
            meta: request.meta,
            param_headers,
            hears: request.hears,
            page: None,
            round,
            caller: CallerMark {
                key: attempt.caller.key.map(|key| key.0),
                session: attempt.session_id.as_deref().and_then(|id| Uuid::try_parse(id).ok()),
            },
            exchange_for: attempt
                .caller
                .sent
                .as_ref()
                .map_or(ExchangeFor::Nobody, |token| ExchangeFor::Token(token.mark)),
            timeout: self.server().target.limits.call_timeout,
            sent,
        }
    }
}

/// Runs check 8 for the server: enabled and not quarantined.
pub(super) fn open(server: &ServerEntry) -> Result<(), Refusal> {
    let name = &server.name;
    if !server.enabled {
        return Err(Refusal::new(Code::ServerDisabled, format!("Server '{name}' is disabled")));
    }
    if server.quarantined {
        let message = format!(
            "Server '{name}' is quarantined until a person releases it (POST /api/v1/servers/{name}/unquarantine)"
        );
        return Err(Refusal::new(Code::ServerQuarantined, message));
    }
    Ok(())
}

/// Description of an item with a definition pin, for refusals.
pub(super) struct Pinned<'a> {
    /// Noun, in lower case.
    pub(super) what: &'static str,
    /// Name as callers see it.
    pub(super) name: Cow<'a, str>,
    /// Name of the server.
    pub(super) server: &'a str,
    /// Last segment of the REST route that lists it.
    pub(super) list: &'static str,
}

/// Runs check 8 for the definition: approved.
pub(super) fn approved<'a>(state: PinState, of: impl FnOnce() -> Pinned<'a>) -> Result<(), Refusal> {
    let (code, says) = match state {
        PinState::Approved => return Ok(()),
        PinState::Pending => (Code::ToolPending, "is new and waits for a person's approval"),
        PinState::Changed => (Code::ToolChanged, "changed and waits for a person's approval"),
        PinState::Blocked => (Code::ToolBlocked, "is blocked"),
    };
    let Pinned { what, name, server, list } = of();
    let (first, rest) = what.split_at(1);
    let subject = match state {
        PinState::Changed => format!("The definition of {what} '{name}'"),
        _ => format!("{}{rest} '{name}'", first.to_uppercase()),
    };
    let hint = match state {
        PinState::Blocked => String::new(),
        _ => format!(" (GET /api/v1/servers/{server}/{list})"),
    };
    Err(Refusal::new(code, format!("{subject} {says}{hint}")))
}

/// Runs check 12 as far as it can be known before dispatch: the server is connected.
pub(super) fn reachable(server: &ServerEntry) -> Result<(), Refusal> {
    if server.connected {
        return Ok(());
    }
    let name = &server.name;
    match server.login {
        // whoever lists the server is logged out, and others may not be
        Some(_) if server.has_own_logins() => return Ok(()),
        Some(LoginState::LoginRequired) => return Err(login_refused(name)),
        Some(LoginState::Waiting) => return Err(login_unavailable(name, None)),
        Some(LoginState::None | LoginState::Connected) | None => {}
    }
    let message = match server.target.upstream.obstacle() {
        Some(why) => format!("Server '{name}' cannot be run: {why}; nothing was run"),
        None => format!("Server '{name}' is not connected now; nothing was run, a retry may help later"),
    };
    Err(Refusal::new(Code::ServerUnavailable, message))
}
