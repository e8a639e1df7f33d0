//! Descriptions of an upstream and of a request to it, as the rest of the program gives them.

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
/// Advice for the operator on credentials that cannot be opened.
const LOCKED: &str =
    "set its headers again, or put the master key that sealed them back into secrets.master_key";
/// Headers that a server's settings cannot set: they belong to the protocol or to the connection. Bodies are read without
/// compression. `X-API-Key`, `Cookie` and `User-Agent` can be set, since servers ask for them.
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

/// Limits of one upstream on this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most calls at once. Each needs a connection of its own, so `connections` bounds it too.
    pub concurrency: usize,
    /// Most calls that wait for admission.
    pub queue: usize,
    /// Longest wait for admission.
    pub queue_wait: Duration,
    /// Rules of the circuit breaker.
    pub breaker: BreakerRules,
    /// Most open connections, idle ones included. Of four or more, two are kept free for answers to the
    /// upstream's own requests and for the gateway's own questions; of two or three, one.
    pub connections: usize,
    /// Longest time to open a connection: name look-up, TCP and TLS.
    pub connect_timeout: Duration,
    /// Longest time of a call, its wait for admission included.
    pub call_timeout: Duration,
    /// Longest time of a whole listing, all pages.
    pub listing_timeout: Duration,
    /// Time after which an unused connection is closed.
    pub idle_timeout: Duration,
    /// Largest answer to a call, in bytes.
    pub response_bytes_max: usize,
}

/// Credential that a server is called with. Connections and sessions of one credential never carry calls with
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// No credential.
    None,
    /// Credential with this id, whose headers are at hand.
    Is(Uuid),
    /// Credential that cannot be opened: no request is sent.
    Locked,
}

/// Upstream server, as its database row describes it.
#[derive(Clone)]
pub struct Target {
    /// Tenant that owns the server.
    pub tenant: Uuid,
    /// Id of the server.
    pub server: Uuid,
    /// Version of the server's row. Another version means another connection.
    pub version: i64,
    /// URL of the server; empty for a program.
    pub url: String,
    /// Program of a stdio server; `None` over HTTP.
    pub program: Option<Program>,
    /// Credential of the server.
    pub credential: Credential,
    /// Headers of the credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Era that was found last time; `None` if it is unknown.
    pub era: Option<Era>,
    /// Limits of the server.
    pub limits: Limits,
}

/// Program of a stdio server.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the program's entry in the deployment.
    pub name: String,
    /// Entry of the program, or the reason why this tenant has none.
    pub command: Result<Arc<ProgramCommand>, NoCommand>,
}

impl Target {
    /// Returns the name of the program; `None` over HTTP.
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

/// Method of a caller's request, and the thing that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `tools/call` of the tool of this name.
    Tool(String),
    /// `prompts/get` of the prompt of this name.
    Prompt(String),
    /// `resources/read` of this URI.
    Resource(String),
    /// `completion/complete`.
    Completion,
}

impl Subject {
    /// Returns the method, and the member of `params` that names the subject, whose value `Mcp-Name` mirrors.
    pub(super) fn wire(&self) -> (&'static str, Option<(&'static str, &str)>) {
        match self {
            Self::Tool(name) => ("tools/call", Some(("name", name))),
            Self::Prompt(name) => ("prompts/get", Some(("name", name))),
            Self::Resource(uri) => ("resources/read", Some(("uri", uri))),
            Self::Completion => ("completion/complete", None),
        }
    }
}

/// Request of a caller to an upstream.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method of the request, and the thing that it is about.
    pub subject: Subject,
    /// Members of `params` besides the subject and `_meta`, as `(name, raw JSON)`, sent byte for byte.
    pub members: Vec<(&'static str, Bytes)>,
    /// Members of `_meta` as `(name, raw JSON)`; those that belong to this hop are left out.
    pub meta: Vec<(String, Bytes)>,
    /// `Mcp-Param-*` headers, from [`super::param_headers()`]; sent in the modern era only.
    pub param_headers: Vec<(String, String)>,
    /// Queue for the raw `params` of progress notifications; `None` asks for no progress.
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// Multi-round-trip part of the request.
    pub round: Round,
    /// API key whose share of memory the answer takes; `None` if there is none.
    pub key: Option<Uuid>,
    /// Longest time for this request; the upstream's own limit holds too.
    pub timeout: Duration,
    /// Progress of the request, filled in on the way.
    pub sent: Arc<Sent>,
}

/// Returns whether a server's settings cannot set this header.
pub fn is_reserved_header(name: &HeaderName) -> bool {
    let text = name.as_str();
    RESERVED_HEADERS.contains(&text) || text.starts_with("mcp-") || text.starts_with("proxy-")
}

/// Returns the headers of every request to a server: ours, and its own that are not reserved. Fails if the server's
/// credential cannot be opened.
pub(super) fn base_headers(uri: &Uri, target: &Target) -> Result<HeaderMap, UpstreamError> {
    if target.credential == Credential::Locked {
        return Err(UpstreamError::unsent(FailureKind::Locked, LOCKED));
    }
    let own = target.headers.as_slice();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(host)
        .map_err(|_| UpstreamError::unsent(FailureKind::EgressRefused, "the host is refused"))?;
    // Capacity for the headers of sessions and calls, so that copies do not grow.
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
