//! What telemetry is told of a request that an upstream serves.

use bytes::Bytes;

use super::jsonrpc::RpcError;
use super::operation::{Ended, Operation};
use super::{Endpoint, Era};
use crate::domain::refusal::Code;
use crate::gateway::CallOutcome;

/// The request, and what it is about.
pub(super) struct Told {
    pub(super) operation: Operation,
    pub(super) era: Era,
    pub(super) about: About,
}

/// What it is about, where that is an upstream's: told only of what there is, since clients send any name.
pub(super) enum About {
    /// A tool by its own raw name, where it is not one of ours.
    Tool(Option<Bytes>),
    /// A prompt, asked for by this method.
    Prompt(&'static str, String),
    /// What is at a URI.
    Resource,
    /// Something else.
    Other,
}

impl Told {
    /// Tells how it ended.
    pub(super) fn ended(&self, endpoint: Endpoint, outcome: &CallOutcome) {
        let code = match outcome {
            CallOutcome::Refused(refused) => Some(refused.refusal.code),
            _ => None,
        };
        let is_known = !matches!(code, Some(Code::NotFound | Code::InvalidName | Code::RecordUnavailable));
        match &self.about {
            About::Tool(Some(raw)) if is_known && self.operation.is_recorded() => {
                if let Ok(name) = serde_json::from_slice::<String>(raw) {
                    self.operation.tool(&name);
                }
            }
            About::Prompt(method, name) if is_known => self.operation.prompt(method, name),
            _ => {}
        }
        self.operation.ended(|| match &self.about {
            About::Tool(_) => Ended::of_call(endpoint, self.era, outcome),
            About::Resource if code == Some(Code::NotFound) => RpcError::no_resource(self.era, None).ended(),
            _ => Ended::of_ask(self.era, outcome),
        });
    }

    /// The same, not over when the request has its first answer.
    pub(super) fn apart(self) -> Told {
        Told { operation: self.operation.apart(), ..self }
    }
}
