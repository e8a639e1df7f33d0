//! What management tools ask for, and what they are answered: `mcp` asks, `rest` does it as its routes do.

use bytes::Bytes;

/// What a tool can ask for. Nothing in it approves or releases anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedAct {
    /// The servers.
    List,
    /// Those that wait for a person.
    ListQuarantined,
    /// One of them.
    Inspect,
    /// Its tools.
    InspectTools,
    /// Prompts of a server.
    InspectPrompts,
    /// Resources and templates of a server.
    InspectResources,
    /// What differs from what was approved of a tool.
    Diff,
    /// Differences of a prompt from its approved definition.
    DiffPrompt,
    /// Differences of a resource or template from its approved definition.
    DiffResource,
    /// Its log.
    Logs,
    /// A server more, quarantined.
    Add,
    /// Changes it.
    Update,
    /// Takes it away.
    Remove,
    /// Switches it on.
    Enable,
    /// Switches it off.
    Disable,
    /// Hides it from agents.
    Quarantine,
    /// Connects to it anew.
    Restart,
    /// Lists it now.
    Refresh,
}

/// What is asked for.
#[derive(Debug, Default)]
pub struct ManagedRequest {
    /// The server, where it is about one.
    pub server: Option<String>,
    /// The tool, where it is about one.
    pub tool: Option<String>,
    /// Name of the prompt, where the act is about one.
    pub prompt: Option<String>,
    /// Parameters of a query: the part of a list, or the kind and URI of a resource.
    pub query: Vec<(&'static str, String)>,
    /// Everything else, as a body.
    pub body: Bytes,
}

/// Why something was not done, as the API says it.
#[derive(Debug)]
pub struct NotDone {
    /// The code.
    pub code: &'static str,
    /// What to do.
    pub message: String,
    /// The argument, when it is about one.
    pub field: Option<String>,
}
