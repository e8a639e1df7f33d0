//! First answers of an upstream: which protocol versions it speaks, and what it declares.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::upstream::error::UpstreamError;
use crate::upstream::protocol::jsonrpc::{self, Answer, MODERN};
use crate::upstream::protocol::offers::DeclaredOffers;

/// Largest answer to `server/discover` or `initialize`, in bytes.
pub(in crate::upstream) const HELLO_BYTES_MAX: usize = 1024 * 1024;
/// Protocol revisions of the handshake era that we speak; the first is the one we offer.
pub(in crate::upstream) const VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Returns the declaration in an answer to `server/discover`; `None` if it is not from a modern server.
pub(in crate::upstream) fn modern_offers(answer: &Answer) -> Option<DeclaredOffers> {
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

/// Returns the revision that an `initialize` result settles on, if we speak it.
pub(in crate::upstream) fn version_of(result: &[u8]) -> Result<&'static str, UpstreamError> {
    #[derive(Deserialize)]
    struct Initialized<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        version: std::borrow::Cow<'a, str>,
    }
    let found: Initialized<'_> = serde_json::from_slice(result)
        .map_err(|_| UpstreamError::invalid("initialize was answered without a protocol version"))?;
    VERSIONS
        .into_iter()
        .find(|version| *version == found.version)
        .ok_or_else(|| UpstreamError::invalid("the upstream speaks no protocol version that we do"))
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
