//! Requests to servers, as received.

use bytes::Bytes;

use super::door::Door;
use crate::domain::rounds::Capabilities;
use crate::gateway::calls::line::ClientLine;
use crate::upstream::Hears;

/// A request to a server as received: raw JSON values, not checked yet.
#[derive(Clone, Debug)]
pub struct CallRequest {
    /// Subject of the request.
    pub what: Callee,
    /// Members of `_meta` that travel on to the upstream.
    pub meta: Vec<(String, Bytes)>,
    /// Queue for what the upstream says before its answer; `None` if nobody listens.
    pub hears: Option<Hears>,
    /// Line to a client that is asked while the call is held; `None` for one that is not.
    pub line: Option<ClientLine>,
    /// Members of the request about its rounds.
    pub round: RoundRequest,
}

impl CallRequest {
    /// Returns a request without forwarded metadata, without a listener and without an earlier round.
    pub fn new(what: Callee) -> CallRequest {
        CallRequest { what, meta: Vec::new(), hears: None, line: None, round: RoundRequest::default() }
    }
}

/// Subject of a request.
#[derive(Clone, Debug)]
pub enum Callee {
    /// The call of a tool, by a door.
    Tool(Door, ToolRequest),
    /// A prompt, a resource or a completion.
    Offer(OfferRequest),
}

impl Callee {
    pub(super) fn door(&self) -> Door {
        match self {
            Callee::Tool(door, _) => *door,
            Callee::Offer(_) => Door::Direct,
        }
    }

    /// Returns whether the request has a record. Completions, one for each key that is pressed, have none.
    pub(super) fn is_recorded(&self) -> bool {
        match self {
            Callee::Tool(..) => true,
            Callee::Offer(request) => !request.wanted.is_completion(),
        }
    }
}

/// A tool call as received: raw JSON values, not checked yet. Absent and `null` are equivalent. [`Door::Direct`] reads only
/// `name` and `args`.
#[derive(Clone, Debug, Default)]
pub struct ToolRequest {
    /// `name`
    pub name: Option<Bytes>,
    /// `args`, an object.
    pub args: Option<Bytes>,
    /// `args_json`, a string holding an object.
    pub args_json: Option<Bytes>,
    /// First argument with an unknown name. The call is refused for it.
    pub unknown: Option<String>,
    /// `intent`, the nested spelling.
    pub intent: Option<Bytes>,
    /// `intent_operation_type`, of the flat spelling.
    pub intent_operation_type: Option<Bytes>,
    /// `intent_data_sensitivity`, of the flat spelling.
    pub intent_data_sensitivity: Option<Bytes>,
    /// `intent_reason`, of the flat spelling.
    pub intent_reason: Option<Bytes>,
}

/// A request for a prompt, a resource or a completion.
#[derive(Clone, Debug)]
pub struct OfferRequest {
    /// Subject of the request.
    pub wanted: Wanted,
    /// Members of `params` to forward, raw. The `ref` of a prompt's completion gets the server's own name.
    pub members: Vec<(&'static str, Bytes)>,
}

/// Subject of a request that is not a tool call.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A prompt, by either spelling of its name.
    Prompt(String),
    /// A resource, by its URI.
    Resource(String),
    /// Values for an argument of a prompt.
    PromptCompletion(String),
    /// Values for a variable of a template.
    TemplateCompletion(String),
}

impl Wanted {
    /// Returns the name or URI, as the caller gave it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Prompt(name)
            | Self::Resource(name)
            | Self::PromptCompletion(name)
            | Self::TemplateCompletion(name) => name,
        }
    }

    /// Returns the method of the request.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Prompt(_) => "prompts/get",
            Self::Resource(_) => "resources/read",
            Self::PromptCompletion(_) | Self::TemplateCompletion(_) => "completion/complete",
        }
    }

    fn is_completion(&self) -> bool {
        matches!(self, Self::PromptCompletion(_) | Self::TemplateCompletion(_))
    }
}

/// Members of a request about its rounds (MCP 2026-07-28, multi-round-trip requests).
#[derive(Clone, Debug, Default)]
pub struct RoundRequest {
    /// Kinds of input that the caller can be asked for; `None` if it supports no input requests.
    pub capabilities: Option<Capabilities>,
    /// `inputResponses`, an object.
    pub responses: Option<Bytes>,
    /// `requestState`, raw.
    pub state: Option<Bytes>,
}
