//! What administrators ask for: a new server, or a change of one.

use serde_json::{Map, Value};

use crate::gateway::credentials::Headers;

/// A server to be added.
#[derive(Clone, Debug, Default)]
pub struct ServerRequest {
    /// Its name.
    pub name: String,
    /// `http` or `stdio`.
    pub kind: String,
    /// Where it is, for `http`.
    pub url: Option<String>,
    /// Which of the deployment's programs it is, for `stdio`.
    pub command: Option<String>,
    /// Switched on; true when absent.
    pub enabled: Option<bool>,
    /// Take changes of definitions at once; false when absent.
    pub auto_approve: Option<bool>,
    /// Bounds of its own.
    pub limits: Option<Map<String, Value>>,
    /// What it is called with.
    pub headers: Option<Headers>,
    /// Starts quarantined, whoever adds it; what an operator adds does so anyway.
    pub quarantined: Option<bool>,
}

/// A change to a server.
#[derive(Clone, Debug, Default)]
pub struct ServerChange {
    /// A new address.
    pub url: Option<String>,
    /// Another program.
    pub command: Option<String>,
    /// Switch.
    pub enabled: Option<bool>,
    /// Automatic approval.
    pub auto_approve: Option<bool>,
    /// Bounds of its own.
    pub limits: Option<Map<String, Value>>,
    /// What it is called with from now on; empty takes all away.
    pub headers: Option<Headers>,
    /// Keep the credentials at another place; only an admin may.
    pub keep_credentials: bool,
    /// Only when the server is still at this version.
    pub version: Option<i64>,
    /// An agent's: it must not be what sets the baseline of a server that was never listed while it was released.
    pub over_mcp: bool,
}

impl ServerChange {
    /// Whether the server is listed because of it, or offers something else.
    pub(super) fn reaches_it_anew(&self) -> bool {
        let is_called_otherwise = self.url.is_some() || self.command.is_some() || self.headers.is_some();
        self.enabled == Some(true) || is_called_otherwise
    }
}
