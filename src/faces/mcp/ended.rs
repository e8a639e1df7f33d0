//! How a request of a client ended: the one source of what traces and histograms say of it.

use super::jsonrpc::RpcError;
use super::{Endpoint, Era, jsonrpc};
use crate::domain::json;
use crate::domain::measure::{TOOL_ERROR, code_name};
use crate::domain::refusal::Code;
use crate::domain::span::Span;
use crate::gateway::CallOutcome;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// As it should, or with a question to the client.
    Well,
    /// The tool said that it failed.
    ToolError,
    /// With a result that says what was refused, or, taken back, with nothing.
    Refused(&'static str),
    /// With a JSON-RPC error of this code, for a reason of ours.
    Error { code: i64, reason: Option<&'static str> },
}

impl Ended {
    /// Nobody waits for it any more.
    pub(super) const GIVEN_UP: Ended = Ended::Refused("cancelled");

    /// How a call of a tool ended.
    pub(super) fn of_call(endpoint: Endpoint, era: Era, outcome: &CallOutcome) -> Ended {
        match outcome {
            CallOutcome::Refused(refused)
                if endpoint == Endpoint::Search || refused.refusal.code != Code::NotFound =>
            {
                Ended::Refused(refused.refusal.code.as_str())
            }
            CallOutcome::UpstreamError(raw) => Ended::error(upstream_code(raw)),
            outcome => Ended::of_ask(era, outcome),
        }
    }

    /// How anything else ended that an upstream was asked.
    pub(super) fn of_ask(era: Era, outcome: &CallOutcome) -> Ended {
        match outcome {
            CallOutcome::Result { head, .. } if head.is_error => Ended::ToolError,
            CallOutcome::Result { .. } | CallOutcome::InputRequired { .. } => Ended::Well,
            CallOutcome::InvalidState => RpcError::invalid_state().ended(),
            CallOutcome::UpstreamError(raw) => Ended::error(jsonrpc::code_in(era, upstream_code(raw))),
            CallOutcome::Refused(refused) => match refused.refusal.code {
                Code::NotFound => RpcError::invalid_params("").ended(),
                Code::RateLimited => RpcError::rate_limited(era, &refused.refusal).ended(),
                _ => RpcError::refusal(&refused.refusal).ended(),
            },
        }
    }

    fn error(code: i64) -> Ended {
        Ended::Error { code, reason: None }
    }

    /// Notes it on a span, with the number as it is.
    pub(super) fn note(self, span: &mut Span) {
        match self {
            Ended::Well => {}
            Ended::ToolError => span.fail(TOOL_ERROR),
            Ended::Refused(code) => span.fail(code),
            Ended::Error { code, reason } => {
                span.set("rpc.response.status_code", code.to_string());
                match reason {
                    Some(reason) => span.fail(reason),
                    // what the caller did wrong is no fault of the server
                    None if jsonrpc::is_callers_fault(code) => {}
                    None => span.fail(code.to_string()),
                }
            }
        }
    }

    /// The type of the error and the JSON-RPC code, each out of a closed list.
    pub(super) fn labels(self) -> (Option<&'static str>, Option<&'static str>) {
        match self {
            Ended::Well => (None, None),
            Ended::ToolError => (Some(TOOL_ERROR), None),
            Ended::Refused(code) => (Some(code), None),
            Ended::Error { code, reason } => {
                let name = code_name(code);
                let fault = (!jsonrpc::is_callers_fault(code)).then_some(name);
                (reason.or(fault), Some(name))
            }
        }
    }
}

/// The code of an upstream's error. One that is no number was refused when it was read.
fn upstream_code(raw: &[u8]) -> i64 {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let code = json::find_members(text, ["code"]).ok().and_then(|[code]| code?.parse().ok());
    code.unwrap_or_default()
}
