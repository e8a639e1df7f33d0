//! Requests to servers as they came.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::door::Door;
use crate::domain::rounds::Capabilities;

/// A request to a server as it came: raw JSON values, nothing checked yet.
#[derive(Clone, Debug)]
pub struct CallRequest {
    /// What is asked for.
    pub what: Callee,
    /// Members of `_meta` that travel on to the upstream.
    pub meta: Vec<(String, Bytes)>,
    /// Where progress goes, when the caller wants it: raw `params` of each notification.
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// What it says about its rounds.
    pub round: RoundRequest,
}

impl CallRequest {
    /// Returns a request for this alone: nothing travels on with it, and nobody wants progress.
    pub fn new(what: Callee) -> CallRequest {
        CallRequest { what, meta: Vec::new(), progress: None, round: RoundRequest::default() }
    }
}

/// What is asked for.
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

/// A tool call as it came: raw JSON values, nothing checked yet. Absent and `null` are the same. By [`Door::Direct`] only name
/// and `args` are looked at.
#[derive(Clone, Debug, Default)]
pub struct ToolRequest {
    /// `name`
    pub name: Option<Bytes>,
    /// `args`, an object.
    pub args: Option<Bytes>,
    /// `args_json`, a string holding an object.
    pub args_json: Option<Bytes>,
    /// An argument that is none of these, which must not be passed over.
    pub unknown: Option<String>,
    /// The nested `intent`.
    pub intent: Option<Bytes>,
    /// The flat spelling.
    pub intent_operation_type: Option<Bytes>,
    /// The flat spelling.
    pub intent_data_sensitivity: Option<Bytes>,
    /// The flat spelling.
    pub intent_reason: Option<Bytes>,
}

/// A request for a prompt, a resource or a completion.
#[derive(Clone, Debug)]
pub struct OfferRequest {
    /// What is wanted.
    pub wanted: Wanted,
    /// Members of `params` that travel on, raw; the `ref` of a completion is made anew.
    pub members: Vec<(&'static str, Bytes)>,
}

/// What a caller wants that is no tool call.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A prompt, by either spelling of its name.
    Prompt(String),
    /// What is at a URI.
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

/// What a request says about its rounds.
#[derive(Clone, Debug, Default)]
pub struct RoundRequest {
    /// What the caller can be asked; `None` for one that cannot be asked anything, nor answer.
    pub capabilities: Option<Capabilities>,
    /// `inputResponses`, an object.
    pub responses: Option<Bytes>,
    /// `requestState`, as it came.
    pub state: Option<Bytes>,
}
