//! What the rest of the program says about an upstream and about a call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::breaker::BreakerRules;
use super::command::{NoCommand, ProgramCommand};
use super::era::Era;
use super::error::{FailureKind, UpstreamError};
use super::jsonrpc::Round;
use super::sent::Sent;

pub(super) const USER_AGENT: &str = concat!("mcpproxy/", env!("CARGO_PKG_VERSION"));
/// What an operator can do about credentials that do not open.
const LOCKED: &str =
    "set its headers again, or put the master key that sealed them back into secrets.master_key";
/// Headers that a server's settings cannot set: they belong to the protocol or to the connection.
const RESERVED_HEADERS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The bounds of one upstream on this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most calls at once. Each needs a connection of its own, so `connections` bounds it too.
    pub concurrency: usize,
    /// Most calls that wait for their turn.
    pub queue: usize,
    /// Longest wait for a turn.
    pub queue_wait: Duration,
    /// When calls are kept away from an upstream that fails.
    pub breaker: BreakerRules,
    /// Most open connections, idle ones included. Of four or more, two are kept free for answers to the
    /// upstream's own requests and for the gateway's own questions; of two or three, one.
    pub connections: usize,
    /// Longest time to open a connection: name look-up, TCP and TLS.
    pub connect_timeout: Duration,
    /// Longest time of a call, waiting included.
    pub call_timeout: Duration,
    /// Longest time of a whole listing.
    pub listing_timeout: Duration,
    /// How long an unused connection stays open.
    pub idle_timeout: Duration,
    /// Largest answer to a call, in bytes.
    pub response_bytes_max: usize,
}

/// Which credential a server is called with: connections and sessions of one never carry calls with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// None.
    None,
    /// This one, whose headers are at hand.
    Is(Uuid),
    /// One that cannot be opened: nothing is sent at all.
    Locked,
}

/// An upstream server, as its row describes it.
#[derive(Clone)]
pub struct Target {
    /// The tenant that owns the server.
    pub tenant: Uuid,
    /// The server.
    pub server: Uuid,
    /// The version of its row: another one means another connection.
    pub version: i64,
    /// Where it is; empty for a program.
    pub url: String,
    /// The program, where it is one.
    pub program: Option<Program>,
    /// Its credential.
    pub credential: Credential,
    /// What it is called with: the headers of the credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The era found last time.
    pub era: Option<Era>,
    /// Its bounds.
    pub limits: Limits,
}

/// The program that a server is.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of its entry in the deployment.
    pub name: String,
    /// The entry, or why there is none for this tenant.
    pub command: Result<Arc<ProgramCommand>, NoCommand>,
}

impl Target {
    /// The name of the program, where it is one.
    pub(super) fn program_name(&self) -> Option<&str> {
        self.program.as_ref().map(|program| program.name.as_str())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither headers nor the URL, whose query may hold a key.
        f.debug_struct("Target")
            .field("tenant", &self.tenant)
            .field("server", &self.server)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What a caller's request asks of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `tools/call` of the tool of this name.
    Tool(String),
    /// `prompts/get` of the prompt of this name.
    Prompt(String),
    /// `resources/read` of this URI.
    Resource(String),
    /// `completion/complete`
    Completion,
}

impl Subject {
    /// The method, and the member of `params` that names the subject, whose value `Mcp-Name` mirrors.
    pub(super) fn wire(&self) -> (&'static str, Option<(&'static str, &str)>) {
        match self {
            Self::Tool(name) => ("tools/call", Some(("name", name))),
            Self::Prompt(name) => ("prompts/get", Some(("name", name))),
            Self::Resource(uri) => ("resources/read", Some(("uri", uri))),
            Self::Completion => ("completion/complete", None),
        }
    }
}

/// A caller's request to send.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub subject: Subject,
    /// Members of `params` besides the subject and `_meta`, as `(name, raw JSON)`, sent byte for byte.
    pub members: Vec<(&'static str, Bytes)>,
    /// Members of `_meta` as `(name, raw JSON)`; those that belong to this hop are left out.
    pub meta: Vec<(String, Bytes)>,
    /// `Mcp-Param-*` headers, from [`super::param_headers()`]; sent in the modern era only.
    pub param_headers: Vec<(String, String)>,
    /// Where the raw `params` of progress notifications go; without, no progress is asked for.
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// What it says of its rounds.
    pub round: Round,
    /// The API key whose share of memory the answer takes; `None` without one.
    pub key: Option<Uuid>,
    /// Longest time for this request; the upstream's own bound holds too.
    pub timeout: Duration,
    /// What becomes of it.
    pub sent: Arc<Sent>,
}

/// Whether a server's settings cannot set this header.
pub fn is_reserved_header(name: &HeaderName) -> bool {
    let text = name.as_str();
    RESERVED_HEADERS.contains(&text) || text.starts_with("mcp-") || text.starts_with("proxy-")
}

/// The headers of every request to a server: ours, and its own that are not reserved. Without its credential
/// nothing is sent to it at all.
pub(super) fn base_headers(uri: &Uri, target: &Target) -> Result<HeaderMap, UpstreamError> {
    if target.credential == Credential::Locked {
        return Err(UpstreamError::unsent(FailureKind::Locked, LOCKED));
    }
    let own = target.headers.as_slice();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(host)
        .map_err(|_| UpstreamError::unsent(FailureKind::EgressRefused, "the host is refused"))?;
    // Room for what sessions and calls add, so that copies do not grow.
    let mut headers = HeaderMap::with_capacity(own.len() + 12);
    headers.insert(header::HOST, host);
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in own {
        if is_reserved_header(name) {
            continue;
        }
        let mut value = value.clone();
        value.set_sensitive(true);
        // Replaces ours where there is one: the user agent.
        headers.insert(name, value);
    }
    Ok(headers)
}
