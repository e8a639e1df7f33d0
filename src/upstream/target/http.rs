//! Servers that are reached over HTTP: their addresses, credentials and headers.

use std::sync::Arc;

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use super::Described;
use crate::domain::identity::CallerToken;
use crate::domain::origin::Origin;
use crate::domain::server_url::{ServerPlace, query};
use crate::domain::span::Span;
use crate::upstream::error::{FailureKind, UpstreamError};

pub(in crate::upstream) const USER_AGENT: &str = concat!("mcpproxy/", env!("CARGO_PKG_VERSION"));
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

/// Server that is reached over HTTP.
#[derive(Clone)]
pub struct HttpServer {
    /// URL of the server, as it is stored. One that cannot be parsed makes every request fail.
    pub url: String,
    /// Credential of the server.
    pub credential: Credential,
    /// Headers of the credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Login at the server, whose token goes with every request; `None` for no login.
    pub login: Option<TargetLogin>,
    /// Token of the caller, for a server whose tokens are given in exchange for it; `None` elsewhere, or if the caller has none.
    pub caller_token: Option<Arc<CallerToken>>,
}

/// Login at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TargetLogin {
    /// Generation of the login's configuration.
    pub client: Uuid,
    /// Holder of the login.
    pub holder: LoginHolder,
    /// True if callers have tokens that are given in exchange for their own.
    pub exchanges: bool,
    /// Number of connections that were made or removed: with another one, tokens are looked up anew.
    pub epoch: i64,
}

impl TargetLogin {
    /// Returns the parts that make another login: connections and sessions of one never carry calls of another.
    pub fn identity(self) -> (Uuid, LoginHolder) {
        (self.client, self.holder)
    }

    /// Returns whether all callers reach the server with one login.
    pub fn is_common(self) -> bool {
        self.holder == LoginHolder::Tenant && !self.exchanges
    }
}

/// Holder of a login at a server: whose tokens go with the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginHolder {
    /// The gateway itself, for all callers of the tenant.
    Tenant,
    /// Each caller for itself. Requests of nobody in particular have no token, and are not sent.
    Caller,
    /// Principal with this id: an API key, or a person.
    Principal(Uuid),
}

impl HttpServer {
    /// Returns whether both have the same origin and path. Their queries may differ.
    pub(super) fn has_place_of(&self, other: &HttpServer) -> bool {
        self.url == other.url
            || ServerPlace::of(&self.url).is_some_and(|own| Some(own) == ServerPlace::of(&other.url))
    }

    /// Returns the headers of every request to a server: ours, and its own that are not reserved. Fails if the server's
    /// credential cannot be opened.
    pub(in crate::upstream) fn base_headers(&self, uri: &Uri) -> Result<HeaderMap, UpstreamError> {
        if self.credential == Credential::Locked {
            return Err(UpstreamError::unsent(FailureKind::Locked, LOCKED));
        }
        let own = self.headers.as_slice();
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
}

impl Described for HttpServer {
    fn credential(&self) -> Credential {
        self.credential
    }

    fn secrets(&self) -> Vec<&str> {
        let headers = self.headers.iter().filter_map(|(_, value)| value.to_str().ok());
        // a query as a whole, and each of its values
        let query = query(&self.url);
        let values = query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        headers.chain(query).chain(values).collect()
    }

    fn binding(&self) -> String {
        Origin::of(&self.url).map_or_else(|| self.url.clone(), |origin| origin.to_string())
    }

    fn tell(&self, span: &mut Span) {
        span.set("network.transport", "tcp");
        span.set("network.protocol.name", "http");
        span.set("network.protocol.version", "1.1");
        let Ok(uri) = self.url.parse::<Uri>() else { return };
        if let Some(host) = uri.host() {
            span.set("server.address", host.trim_matches(['[', ']']).to_owned());
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
            span.set("server.port", i64::from(port));
        }
    }
}

/// Returns whether a server's settings cannot set this header.
pub fn is_reserved_header(name: &HeaderName) -> bool {
    let text = name.as_str();
    RESERVED_HEADERS.contains(&text) || text.starts_with("mcp-") || text.starts_with("proxy-")
}
