//! Requests to servers, as received.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ulid::Ulid;

use super::door::Door;
use crate::domain::rounds::Capabilities;
use crate::gateway::calls::line::ClientLine;
use crate::gateway::catalog::{Catalog, ServerEntry};
use crate::gateway::tenants::Caller;
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
    /// Place for the binding of a state, which is known once a server asks in the middle of the call. `None` if the call is not
    /// held open then.
    pub(in crate::gateway::calls) held_as: Option<Arc<OnceLock<HeldAs>>>,
}

/// Binding of the state of a call that is held open.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway::calls) struct HeldAs {
    /// Record of the first round.
    pub(in crate::gateway::calls) first: Ulid,
    /// Digest of the request.
    pub(in crate::gateway::calls) digest: [u8; 32],
}

impl CallRequest {
    /// Returns a request without forwarded metadata, without a listener and without an earlier round.
    pub fn new(what: Callee) -> CallRequest {
        let round = RoundRequest::default();
        CallRequest { what, meta: Vec::new(), hears: None, line: None, round, held_as: None }
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

    /// Returns whether the server of this request may send clients log messages, as far as a look at names can tell: a URI is
    /// matched against no templates.
    pub fn has_logs(&self, caller: &Caller) -> bool {
        caller.relaying().is_some_and(|catalogue| self.has_logs_in(&catalogue))
    }

    fn has_logs_in(&self, catalogue: &Catalog) -> bool {
        let relays = |server: &ServerEntry| server.target.relay.logging;
        match self {
            Callee::Tool(door, request) => {
                let raw = request.name.as_ref().and_then(|raw| std::str::from_utf8(raw).ok());
                let name: Option<String> = raw.and_then(|raw| serde_json::from_str(raw).ok());
                let tool = name.as_deref().and_then(|name| match door {
                    Door::Direct => catalogue.by_either_name(name),
                    Door::Variant(_) => catalogue.tool(name),
                });
                tool.is_some_and(|tool| relays(&tool.server))
            }
            Callee::Offer(OfferRequest { wanted, .. }) => match wanted {
                Wanted::Prompt(name) | Wanted::PromptCompletion(name) => {
                    catalogue.offers().prompt(name).is_some_and(|offer| relays(&offer.server))
                }
                Wanted::Resource(uri) | Wanted::TemplateCompletion(uri) => {
                    catalogue.offers().may_lead_to(uri, relays)
                }
            },
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

impl ToolRequest {
    /// Names of the arguments of `call_tool_*`.
    pub const ARGUMENTS: [&str; 7] = [
        "name",
        "args",
        "args_json",
        "intent",
        "intent_operation_type",
        "intent_data_sensitivity",
        "intent_reason",
    ];
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

impl RoundRequest {
    /// Returns whether the caller declares that it can be asked anything.
    pub(super) fn may_be_asked(&self) -> bool {
        self.capabilities.as_ref().is_some_and(|declared| !declared.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sqlx::types::Json;

    use super::*;
    use crate::domain::operation::Variant;
    use crate::gateway::catalog::tests::{build_with_tools, server};
    use crate::store::Server;

    #[test]
    fn logs_are_wanted_of_the_server_that_is_called_and_of_no_other() {
        let tools =
            ["own"].map(|name| (name.to_owned(), format!(r#"{{"name":"{name}","inputSchema":{{}}}}"#)));
        let of = |relays: [bool; 2]| {
            let one = |(n, logging)| Server {
                relay: Some(Json(json!({ "logging": logging }))),
                relay_is_of_place: true,
                ..server(n, &[])
            };
            let servers = [1, 2].into_iter().zip(relays).map(one).collect();
            build_with_tools(1, servers, tools.clone(), &Catalog::empty())
        };
        let (own, other) = (of([true, false]), of([false, true]));
        let call = |door, name: &str| {
            let name = Some(Bytes::from(format!("\"{name}\"")));
            Callee::Tool(door, ToolRequest { name, ..ToolRequest::default() })
        };
        let variant = Door::Variant(Variant::Read);
        for (door, name) in [(variant, "s1:own"), (Door::Direct, "s1:own"), (Door::Direct, "safe__own")] {
            assert!(call(door, name).has_logs_in(&own), "{name}");
            assert!(!call(door, name).has_logs_in(&other), "{name}: another server has");
        }
        assert!(!call(variant, "s1:none").has_logs_in(&own));
        let wanted = Wanted::Resource("doc://a".to_owned());
        assert!(
            !Callee::Offer(OfferRequest { wanted, members: Vec::new() }).has_logs_in(&own),
            "nobody offers it"
        );
    }
}
