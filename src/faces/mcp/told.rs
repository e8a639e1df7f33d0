//! What telemetry is told of a request that an upstream serves.

use bytes::Bytes;

use super::ended::Ended;
use super::jsonrpc::RpcError;
use super::operation::Operation;
use super::serving::Serving;
use super::{Endpoint, Era};
use crate::domain::refusal::Code;
use crate::gateway::CallOutcome;

/// The request, and what it is about.
pub(super) struct Told {
    pub(super) operation: Operation,
    pub(super) serving: Serving,
    pub(super) era: Era,
    pub(super) about: About,
    /// Whether the client reads event streams: then one that it took back is not answered at all.
    pub(super) streams: bool,
}

/// What it is about, where that is an upstream's: told only of what there is, since clients send any name.
pub(super) enum About {
    /// A tool by its own raw name, where it is not one of ours.
    Tool(Option<Bytes>),
    /// A prompt, asked for by this method.
    Prompt(&'static str, String),
    /// What is at a URI.
    Resource(String),
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
        if is_known && self.operation.is_recorded() {
            self.name();
        }
        let ended = match &self.about {
            About::Tool(_) => Ended::of_call(endpoint, self.era, outcome),
            _ if self.streams && code == Some(Code::Cancelled) => Ended::GIVEN_UP,
            About::Resource(_) if code == Some(Code::NotFound) => {
                RpcError::no_resource(self.era, None).ended()
            }
            _ => Ended::of_ask(self.era, outcome),
        };
        self.operation.ended(ended);
        self.serving.ended(ended);
    }

    fn name(&self) {
        match &self.about {
            About::Tool(Some(raw)) => {
                if let Ok(name) = serde_json::from_slice::<String>(raw) {
                    self.operation.tool(&name);
                }
            }
            About::Prompt(method, name) => self.operation.prompt(method, name),
            About::Resource(uri) => self.operation.resource(uri),
            About::Tool(None) | About::Other => {}
        }
    }

    /// The same, not over when the request has its first answer.
    pub(super) fn apart(self) -> Told {
        self.serving.streams();
        Told { operation: self.operation.apart(), ..self }
    }
}
