//! Detection of an upstream's era: modern, without sessions, or with a handshake.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;

use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::post::{Http, Post};
use crate::upstream::protocol::hello::{HELLO_BYTES_MAX, modern_offers};
use crate::upstream::protocol::jsonrpc::{self, MODERN, Meta};
use crate::upstream::protocol::offers::DeclaredOffers;

/// Returns the headers of every modern request, without those of its own method.
pub(in crate::upstream) fn modern_headers(base: &HeaderMap) -> HeaderMap {
    let mut headers = base.clone();
    headers.insert("mcp-protocol-version", HeaderValue::from_static(MODERN));
    headers
}

/// Asks an upstream whether it speaks the modern era, for at most `wait`. Returns its declaration if it does. Any
/// other answer, or silence, gives `None`: old servers answer unknown methods in every possible way.
///
/// # Errors
/// [`FailureKind::Unreachable`] or [`FailureKind::EgressRefused`], or the gateway could not log in: the upstream was not asked.
pub(in crate::upstream) async fn discover(
    http: &Http,
    base: &HeaderMap,
    id: u64,
    wait: Duration,
) -> Result<Option<DeclaredOffers>, UpstreamError> {
    let mut headers = modern_headers(base);
    headers.insert("mcp-method", HeaderValue::from_static("server/discover"));
    let meta = Meta { modern: true, ..Meta::default() };
    let dispatched = AtomicBool::new(false);
    let asked = http.post(Post {
        id,
        headers,
        body: jsonrpc::request(id, "server/discover", &[], meta),
        bytes_max: HELLO_BYTES_MAX,
        key: None,
        ear: None,
        reply_headers: None,
        dispatched: &dispatched,
    });
    match timeout(wait, asked).await {
        Ok(Ok(reply)) => Ok(reply.answer.and_then(|answer| modern_offers(&answer))),
        Ok(Err(error))
            if error.kind.is_of_login()
                || matches!(error.kind, FailureKind::Unreachable | FailureKind::EgressRefused) =>
        {
            Err(error)
        }
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}
