//! Requests from the gateway to an upstream.

use bytes::Bytes;

use crate::upstream::error::UpstreamError;
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::events::{CallerMark, PageCall};
use crate::upstream::protocol::jsonrpc::Round;
use crate::upstream::protocol::questions::Ear;

/// Request to an upstream, not yet in the form of its era.
pub(in crate::upstream) struct Ask<'a> {
    pub(in crate::upstream) method: &'static str,
    /// Value of the `Mcp-Name` header; `None` if the method has none.
    pub(in crate::upstream) name: Option<&'a str>,
    /// Members of `params`, as `(name, raw JSON)`.
    pub(in crate::upstream) members: &'a [(&'a str, &'a [u8])],
    pub(in crate::upstream) meta: &'a [(String, Bytes)],
    pub(in crate::upstream) param_headers: &'a [(String, String)],
    /// Caller as the upstream may talk to it; `None` if nobody listens.
    pub(in crate::upstream) ear: Option<Ear<'a>>,
    /// Form that the request fills in; `None` for any tool but a page's.
    pub(in crate::upstream) page: Option<&'a PageCall>,
    /// Multi-round-trip part of a caller's request; `None` for the gateway's own requests.
    pub(in crate::upstream) round: Option<&'a Round>,
    /// Caller of the request, whose share of memory the answer takes.
    pub(in crate::upstream) caller: CallerMark,
    /// Token of the caller that is exchanged for one at the server.
    pub(in crate::upstream) exchange_for: ExchangeFor,
    pub(in crate::upstream) bytes_max: usize,
}

impl<'a> Ask<'a> {
    /// Returns the token under which progress is asked for, if the caller wants any.
    pub(in crate::upstream) fn progress_token(&self, id: u64) -> Option<u64> {
        self.ear.is_some_and(|ear| ear.hears.progress).then_some(id)
    }

    /// Creates a request of the gateway's own: no name, `_meta`, extra headers, progress or API key.
    pub(in crate::upstream) fn plain(
        method: &'static str,
        members: &'a [(&'a str, &'a [u8])],
        bytes_max: usize,
    ) -> Self {
        Self {
            method,
            name: None,
            members,
            meta: &[],
            param_headers: &[],
            ear: None,
            page: None,
            round: None,
            caller: CallerMark::default(),
            exchange_for: ExchangeFor::Newest,
            bytes_max,
        }
    }
}

/// Returns the error for a JSON-RPC error that answered a request of the gateway's own. The upstream's text stays
/// out.
pub(in crate::upstream) fn refused(method: &str, code: i64) -> UpstreamError {
    UpstreamError::invalid(format!("{method} was refused with code {code}"))
}
