//! Requests of management tools, and their failures: `mcp` makes the requests, `rest` runs them like its routes.

use bytes::Bytes;

use crate::domain::operation::OperationType;
use crate::domain::refusal::Refusal;

/// Act that a management tool can request. No act approves or releases anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedAct {
    /// List the servers.
    List,
    /// List the servers in quarantine.
    ListQuarantined,
    /// Show a server.
    Inspect,
    /// List the tools of a server.
    InspectTools,
    /// List the prompts of a server.
    InspectPrompts,
    /// List the resources and templates of a server.
    InspectResources,
    /// Compare a tool with its approved definition.
    Diff,
    /// Compare a prompt with its approved definition.
    DiffPrompt,
    /// Compare a resource or template with its approved definition.
    DiffResource,
    /// Read the log of a server.
    Logs,
    /// Add a server, quarantined.
    Add,
    /// Change a server.
    Update,
    /// Remove a server.
    Remove,
    /// Enable a server.
    Enable,
    /// Disable a server.
    Disable,
    /// Put a server into quarantine, which hides it from agents.
    Quarantine,
    /// Connect to a server again, and list its offers.
    Restart,
    /// List the offers of a server now.
    Refresh,
}

/// Arguments of an act.
#[derive(Debug, Default)]
pub struct ManagedRequest {
    /// Name of the server, where the act is about one.
    pub server: Option<String>,
    /// Name of the tool, where the act is about one.
    pub tool: Option<String>,
    /// Name of the prompt, where the act is about one.
    pub prompt: Option<String>,
    /// Parameters: the part of a list, or the kind and URI of a resource.
    pub params: Vec<(&'static str, String)>,
    /// All other arguments, as a JSON object.
    pub body: Bytes,
}

/// Failure of an act, in the words of the API.
#[derive(Debug)]
pub struct NotDone {
    /// Code of the failure.
    pub code: &'static str,
    /// Message for the client.
    pub message: String,
    /// Name of the argument at fault, if it is one.
    pub field: Option<String>,
    /// Operation that the token's scopes do not allow; `None` if it failed for another reason.
    pub scope_for: Option<OperationType>,
}

impl From<Refusal> for NotDone {
    fn from(refusal: Refusal) -> NotDone {
        let scope_for = refusal.scope_for();
        NotDone { code: refusal.code.as_str(), message: refusal.message, field: None, scope_for }
    }
}
