//! Requests of administrators about servers.

use serde_json::{Map, Value};

use crate::domain::web_page::settings::PageSettingsPatch;
use crate::gateway::credentials::{FieldSecrets, Headers};

/// Request to add a server.
#[derive(Clone, Debug, Default)]
pub struct ServerRequest {
    /// Name of the server, unique in its tenant.
    pub name: String,
    /// `http`, `stdio` or `web_page`.
    pub kind: String,
    /// URL of the server, for `http`.
    pub url: Option<String>,
    /// Name of the deployment's command, for `stdio`.
    pub command: Option<String>,
    /// True to switch the server on; default true.
    pub enabled: Option<bool>,
    /// True to approve new and changed definitions at once; default false.
    pub auto_approve: Option<bool>,
    /// Limits of the server itself, which may tighten the deployment's; none if absent.
    pub limits: Option<Map<String, Value>>,
    /// Messages of the server that reach the client of a call; the default if absent.
    pub relay: Option<Map<String, Value>>,
    /// Headers of requests to the server; none if absent.
    pub headers: Option<Headers>,
    /// Settings of web pages, for `web_page`.
    pub pages: PageSettingsPatch,
    /// Secrets for fields of web pages; none if absent.
    pub field_secrets: Option<FieldSecrets>,
    /// True to start in quarantine; servers added by operators always do.
    pub quarantined: Option<bool>,
}

/// Request to change a server; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct ServerChange {
    /// New URL.
    pub url: Option<String>,
    /// New command.
    pub command: Option<String>,
    /// True to switch the server on, false to switch it off.
    pub enabled: Option<bool>,
    /// True to approve new and changed definitions at once.
    pub auto_approve: Option<bool>,
    /// Limits of the server itself, which replace all former ones.
    pub limits: Option<Map<String, Value>>,
    /// Messages of the server that reach the client of a call; an absent member has its default.
    pub relay: Option<Map<String, Value>>,
    /// Headers of requests to the server, which replace all former ones; an empty set removes them.
    pub headers: Option<Headers>,
    /// New settings of web pages.
    pub pages: PageSettingsPatch,
    /// Secrets for fields of web pages, which replace all former ones; an empty set removes them.
    pub field_secrets: Option<FieldSecrets>,
    /// True to keep the credentials at a new URL; only admins may.
    pub keep_credentials: bool,
    /// Expected version of the server; `None` skips the check.
    pub version: Option<i64>,
    /// True for an agent's change over MCP: it must not set the baseline of a server that was never listed while released.
    pub over_mcp: bool,
}

impl ServerChange {
    /// Returns whether the change causes a listing, or may change what the server offers.
    pub(super) fn reaches_it_anew(&self) -> bool {
        let is_called_otherwise = self.url.is_some() || self.command.is_some() || self.headers.is_some();
        let is_read_otherwise = self.pages.changes_tools() || self.field_secrets.is_some();
        self.enabled == Some(true) || is_called_otherwise || is_read_otherwise
    }
}
