//! Small documents of identity providers and authorization servers: metadata, keys, registrations of clients. Each request passes the egress guard, on a connection of its
//! own, and follows no redirect.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use tokio::time::timeout;

use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::post::{Http, read_all};
use crate::upstream::http::wires::{Timeouts, Wires};

/// Longest time to open a connection, name look-up and TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest time of a fetch.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Reason why a document could not be fetched. The text repeats nothing of the answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DocumentError {
    /// No answer came, or not a whole one.
    #[error("no answer: {}{}", .0.kind.sentence(), detail(.0))]
    NoAnswer(UpstreamError),
    /// The answer was neither 200 nor 201.
    #[error("HTTP {}", .0.as_u16())]
    Status(StatusCode),
    /// The answer is no UTF-8 text.
    #[error("the answer is no text")]
    NoText,
}

fn detail(error: &UpstreamError) -> String {
    if error.detail.is_empty() { String::new() } else { format!(" ({})", error.detail) }
}

/// Fetches a document of at most `bytes_max` bytes, by a dialer for issuers.
pub(in crate::upstream) async fn fetch(
    dialer: Dialer,
    url: &str,
    bytes_max: usize,
) -> Result<String, DocumentError> {
    let fetched = timeout(FETCH_MAX, ask(dialer, url, None, bytes_max)).await;
    fetched.unwrap_or_else(|_| Err(DocumentError::NoAnswer(UpstreamError::timeout(true))))
}

/// Posts a JSON document, by a dialer for issuers, and returns that of the answer, of at most `bytes_max` bytes.
pub(in crate::upstream) async fn post(
    dialer: Dialer,
    url: &str,
    body: String,
    bytes_max: usize,
) -> Result<String, DocumentError> {
    let posted = timeout(FETCH_MAX, ask(dialer, url, Some(body), bytes_max)).await;
    posted.unwrap_or_else(|_| Err(DocumentError::NoAnswer(UpstreamError::timeout(true))))
}

async fn ask(
    dialer: Dialer,
    url: &str,
    body: Option<String>,
    bytes_max: usize,
) -> Result<String, DocumentError> {
    let uri = dialer.check_url(url).map_err(DocumentError::NoAnswer)?;
    let unsendable = || {
        let error = UpstreamError::unsent(FailureKind::Unsendable, "the URL cannot be sent");
        DocumentError::NoAnswer(error)
    };
    let target = uri.path_and_query().map_or("/", |path| path.as_str()).parse().map_err(|_| unsendable())?;
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| unsendable())?);
    headers.insert(USER_AGENT, HeaderValue::from_static(crate::upstream::target::USER_AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let timeouts = Timeouts { connect: CONNECT_MAX, idle: Duration::ZERO };
    let http = Http { wires: Arc::new(Wires::new(dialer, uri, 1, timeouts)), target, login: None };
    let sent = AtomicBool::new(false);
    let method = if body.is_some() { Method::POST } else { Method::GET };
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let body = body.map(Bytes::from).unwrap_or_default();
    let exchanged = http.exchange(method, headers, body, &sent).await;
    let (mut lease, response) = exchanged.map_err(DocumentError::NoAnswer)?;
    if !matches!(response.status(), StatusCode::OK | StatusCode::CREATED) {
        return Err(DocumentError::Status(response.status()));
    }
    let mut body = response.into_body();
    let bytes = read_all(&mut lease, &mut body, bytes_max, None).await.map_err(DocumentError::NoAnswer)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| DocumentError::NoText)
}
