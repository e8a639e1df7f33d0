//! Floor 3: the faces. `mcp`, `rest`, `acp` and `console` share `http`, `auth`, `query` and `wire`, and know nothing of each other. `cli` is a client
//! of `rest`, and meets it on the wire only.

mod acp;
pub mod admin;
pub mod auth;
pub mod body;
pub mod cli;
mod client;
pub mod connections;
mod console;
mod hosts;
pub mod http;
mod impatient;
mod landing;
mod listener;
pub mod mcp;
mod query;
mod request;
pub mod rest;
mod session_cookie;
pub mod sse;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::connections::Connections;
use self::wire::managed::{ManagedAct, ManagedRequest, NotDone};
use crate::domain::measure::Measures;
use crate::gateway::{Attempt, Caller, Gateway};

/// Deployment settings of the faces.
#[derive(Clone, Debug)]
pub struct FaceOptions {
    /// Hosts that requests may name. One without a port matches any port; `*` matches any host.
    pub allowed_hosts: Vec<String>,
    /// Origins that browsers may send; `*` matches any.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub request_bytes_max: usize,
    /// Most open streams of one key on this replica.
    pub streams_per_key_max: usize,
    /// Time limit for a client to send its request head.
    pub header_read_timeout: Duration,
    /// Largest token of an identity provider, in bytes: the head of a request has that much more room.
    pub token_bytes_max: usize,
    /// Whether the deployment has `/mcp/direct` at all.
    pub direct_enabled: bool,
    /// True if the console is served.
    pub console_enabled: bool,
}

impl Faces {
    /// Returns whether a caller has `/mcp/direct`: both the deployment and the key must have it on.
    pub fn has_direct(&self, caller: &Caller) -> bool {
        self.options.direct_enabled && caller.settings.direct_endpoint
    }

    /// Runs an act of a management tool as the REST route does.
    pub(crate) async fn manage(
        self: &Arc<Self>,
        attempt: Attempt,
        act: ManagedAct,
        asked: ManagedRequest,
    ) -> Result<Bytes, NotDone> {
        rest::inward::run(self, attempt, act, asked).await
    }

    /// Records a call of a management tool that was refused before its act was run.
    pub(crate) fn refuse_managing(&self, attempt: &Attempt, tool: &str, arguments: &str, why: &NotDone) {
        rest::inward::refused(self, attempt, tool, arguments, why);
    }
}

/// State shared by all handlers.
pub struct Faces {
    /// Services of the gateway.
    pub gateway: Arc<Gateway>,
    /// Deployment settings.
    pub options: FaceOptions,
    /// Keys of session tokens.
    pub sessions: mcp::Sessions,
    /// Keys of event ids in the activity stream.
    pub places: rest::Places,
    /// Open streams by key.
    pub streams: sse::Streams,
    /// Histograms of request and session durations.
    pub measures: Measures,
    /// Client connections of the main listener.
    pub connections: Arc<Connections>,
}
