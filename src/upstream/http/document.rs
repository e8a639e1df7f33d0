//! Fetches of small documents of identity providers: metadata and keys. Each passes the egress guard, on a connection of its
//! own, and follows no redirect.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderMap, HeaderValue, USER_AGENT};
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
    /// The answer was not 200.
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
    let fetched = timeout(FETCH_MAX, fetch_slowly(dialer, url, bytes_max)).await;
    fetched.unwrap_or_else(|_| Err(DocumentError::NoAnswer(UpstreamError::timeout(true))))
}

async fn fetch_slowly(dialer: Dialer, url: &str, bytes_max: usize) -> Result<String, DocumentError> {
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
    let exchanged = http.exchange(Method::GET, headers, Bytes::new(), &sent).await;
    let (mut lease, response) = exchanged.map_err(DocumentError::NoAnswer)?;
    if response.status() != StatusCode::OK {
        return Err(DocumentError::Status(response.status()));
    }
    let mut body = response.into_body();
    let bytes = read_all(&mut lease, &mut body, bytes_max, None).await.map_err(DocumentError::NoAnswer)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| DocumentError::NoText)
}
