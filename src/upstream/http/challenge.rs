//! Question to a server without credentials, whose refusal names its authorization server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::Method;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use tokio::time::timeout;
use uuid::Uuid;

use crate::domain::relay::Relay;
use crate::domain::server_login::TokenChallenge;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::discover::modern_headers;
use crate::upstream::http::post::Http;
use crate::upstream::http::wires::{Timeouts, Wires};
use crate::upstream::protocol::hello::VERSIONS;
use crate::upstream::protocol::jsonrpc::{self, Meta};
use crate::upstream::target::{Credential, HttpServer};

/// Longest time of the question.
const ASK_MAX: Duration = Duration::from_secs(5);

/// Sends the first request of each era without credentials, until one is refused, and returns the challenge of that answer; `None` if
/// there is none. A server of one era may refuse the other's before it looks for credentials.
pub(in crate::upstream) async fn ask(
    dialer: &Dialer,
    tenant: Uuid,
    url: &str,
) -> Result<Option<TokenChallenge>, UpstreamError> {
    let asked = timeout(ASK_MAX, ask_slowly(dialer.for_upstream_of(tenant), url)).await;
    asked.unwrap_or_else(|_| Err(UpstreamError::timeout(true)))
}

async fn ask_slowly(dialer: Dialer, url: &str) -> Result<Option<TokenChallenge>, UpstreamError> {
    let uri = dialer.check_url(url)?;
    let unsendable = |_| UpstreamError::unsent(FailureKind::Unsendable, "the URL cannot be sent");
    let target = uri.path_and_query().map_or("/", |path| path.as_str()).parse().map_err(unsendable)?;
    let server = HttpServer {
        url: url.to_owned(),
        credential: Credential::None,
        headers: Vec::new(),
        login: None,
        caller_token: None,
    };
    let headers = server.base_headers(&uri)?;
    let timeouts = Timeouts { connect: ASK_MAX, idle: Duration::ZERO };
    let http = Http { wires: Arc::new(Wires::new(dialer, uri, 1, timeouts)), target, login: None };
    let [version, ..] = VERSIONS;
    let mut modern = modern_headers(&headers);
    modern.insert("mcp-method", HeaderValue::from_static("server/discover"));
    let meta = Meta { modern: true, ..Meta::default() };
    let first_requests = [
        (modern, jsonrpc::request(1, "server/discover", &[], meta)),
        (headers, jsonrpc::initialize(1, version, &Relay::NOTHING.capabilities())),
    ];
    for (headers, body) in first_requests {
        let (_lease, response) = http.exchange(Method::POST, headers, body, &AtomicBool::new(false)).await?;
        let challenges = response.headers().get_all(WWW_AUTHENTICATE).into_iter();
        let challenge = challenges.filter_map(|value| value.to_str().ok()).find_map(TokenChallenge::read);
        if challenge.is_some() {
            return Ok(challenge);
        }
    }
    Ok(None)
}
