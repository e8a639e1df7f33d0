//! Floor 3: the faces. `mcp` and `rest` share the porch (`http`, `auth`, `wire`) and know nothing of each
//! other; `cli` is a client of `rest` and meets it on the wire only.

pub mod admin;
pub mod auth;
pub mod body;
pub mod cli;
mod client;
pub mod connections;
pub mod http;
mod impatient;
mod listener;
pub mod mcp;
mod request;
pub mod rest;
pub mod sse;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::connections::Connections;
use self::wire::managed::{ManagedAct, ManagedRequest, NotDone};
use crate::domain::measure::Measures;
use crate::gateway::{Attempt, Caller, Gateway};

/// What the faces need to know of the deployment.
#[derive(Clone, Debug)]
pub struct FaceOptions {
    /// Hosts that requests may name; a name without a port stands for any port.
    pub allowed_hosts: Vec<String>,
    /// Origins that browsers may send.
    pub allowed_origins: Vec<String>,
    /// Largest request body, bytes.
    pub request_bytes_max: usize,
    /// Open streams of one key on this replica.
    pub streams_per_key_max: usize,
    /// How long a client may take to send its request head.
    pub header_read_timeout: Duration,
    /// The master switch of `/mcp/direct`.
    pub direct_enabled: bool,
}

impl Faces {
    /// Whether a caller has `/mcp/direct`: the deployment and the key must both have it on.
    pub fn has_direct(&self, caller: &Caller) -> bool {
        self.options.direct_enabled && caller.settings.direct_endpoint
    }

    /// Does what a management tool asks for, as the routes of REST do it.
    pub(crate) async fn manage(
        self: &Arc<Self>,
        attempt: Attempt,
        act: ManagedAct,
        asked: ManagedRequest,
    ) -> Result<Bytes, NotDone> {
        rest::inward::run(self, attempt, act, asked).await
    }

    /// Records what was refused before it came to that.
    pub(crate) fn refuse_managing(&self, attempt: &Attempt, tool: &str, arguments: &str, why: &NotDone) {
        rest::inward::refused(self, attempt, tool, arguments, why);
    }
}

/// State of every handler.
pub struct Faces {
    /// The use cases.
    pub gateway: Arc<Gateway>,
    /// The deployment.
    pub options: FaceOptions,
    /// Session tokens.
    pub sessions: mcp::Sessions,
    /// Places in the activity log.
    pub places: rest::Places,
    /// Open streams by key.
    pub streams: sse::Streams,
    /// How long clients wait for answers.
    pub measures: Measures,
    /// Client connections of the main listener.
    pub connections: Arc<Connections>,
}
