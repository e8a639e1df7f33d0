//! Requests from the gateway to an upstream.

use bytes::Bytes;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::error::UpstreamError;
use super::jsonrpc::Round;

/// Request to an upstream, not yet in the form of its era.
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    /// Value of the `Mcp-Name` header; `None` if the method has none.
    pub(super) name: Option<&'a str>,
    /// Members of `params`, as `(name, raw JSON)`.
    pub(super) members: &'a [(&'a str, &'a [u8])],
    pub(super) meta: &'a [(String, Bytes)],
    pub(super) param_headers: &'a [(String, String)],
    pub(super) progress: Option<&'a mpsc::Sender<Bytes>>,
    /// Multi-round-trip part of a caller's request; `None` for the gateway's own requests.
    pub(super) round: Option<&'a Round>,
    /// API key whose share of memory the answer takes; `None` if there is none.
    pub(super) key: Option<Uuid>,
    pub(super) bytes_max: usize,
}

impl<'a> Ask<'a> {
    /// Creates a request of the gateway's own: no name, `_meta`, extra headers, progress or API key.
    pub(super) fn plain(method: &'static str, members: &'a [(&'a str, &'a [u8])], bytes_max: usize) -> Self {
        Self {
            method,
            name: None,
            members,
            meta: &[],
            param_headers: &[],
            progress: None,
            round: None,
            key: None,
            bytes_max,
        }
    }
}

/// Returns the error for a JSON-RPC error that answered a request of the gateway's own. The upstream's text stays
/// out.
pub(super) fn refused(method: &str, code: i64) -> UpstreamError {
    UpstreamError::invalid(format!("{method} was refused with code {code}"))
}
