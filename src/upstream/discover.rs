//! Detection of an upstream's era: modern, without sessions, or with a handshake.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::error::{FailureKind, UpstreamError};
use super::jsonrpc::{self, Answer, MODERN, Meta};
use super::offers::DeclaredOffers;
use super::post::{Http, Post};

/// Largest answer to `server/discover` or `initialize`, in bytes.
pub(super) const HELLO_BYTES_MAX: usize = 1024 * 1024;

/// Returns the headers of every modern request, without those of its own method.
pub(super) fn modern_headers(base: &HeaderMap) -> HeaderMap {
    let mut headers = base.clone();
    headers.insert("mcp-protocol-version", HeaderValue::from_static(MODERN));
    headers
}

/// Asks an upstream whether it speaks the modern era, for at most `wait`. Returns its declaration if it does. Any
/// other answer, or silence, gives `None`: old servers answer unknown methods in every possible way.
///
/// # Errors
/// [`FailureKind::Unreachable`] or [`FailureKind::EgressRefused`]: the upstream was not asked.
pub(super) async fn discover(
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
        progress: None,
        reply_headers: None,
        dispatched: &dispatched,
    });
    match timeout(wait, asked).await {
        Ok(Ok(reply)) => Ok(reply.answer.and_then(|answer| modern_offers(&answer))),
        Ok(Err(error)) if matches!(error.kind, FailureKind::Unreachable | FailureKind::EgressRefused) => {
            Err(error)
        }
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

/// Returns the declaration in an answer to `server/discover`; `None` if it is not from a modern server.
pub(super) fn modern_offers(answer: &Answer) -> Option<DeclaredOffers> {
    match answer {
        Answer::Result(result) if speaks_modern(result) => Some(DeclaredOffers::of(result)),
        Answer::Result(_) | Answer::Error { .. } => None,
    }
}

fn speaks_modern(result: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Discovered<'a> {
        #[serde(borrow, rename = "supportedVersions")]
        versions: Vec<&'a RawValue>,
    }
    let modern = jsonrpc::quoted(MODERN);
    serde_json::from_slice::<Discovered<'_>>(result)
        .is_ok_and(|found| found.versions.iter().any(|version| version.get().as_bytes() == modern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_modern() {
        let table = [
            (r#"{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{}}"#, true),
            (r#"{"supportedVersions":["2025-11-25"]}"#, false),
            (r#"{"supportedVersions":"2026-07-28"}"#, false),
            (r#"{"supportedVersions":[{"2026-07-28":1}]}"#, false),
            ("{}", false),
        ];
        for (result, want) in table {
            assert_eq!(speaks_modern(result.as_bytes()), want, "{result}");
        }
    }
}
