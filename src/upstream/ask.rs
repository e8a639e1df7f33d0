//! A request of the gateway to an upstream, and what becomes of its answer.

use bytes::Bytes;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::error::UpstreamError;
use super::jsonrpc::{Answer, Round};
use super::post::Reply;

/// A request of ours.
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    /// What `Mcp-Name` mirrors.
    pub(super) name: Option<&'a str>,
    /// Members of `params`, raw.
    pub(super) members: &'a [(&'a str, &'a [u8])],
    pub(super) meta: &'a [(String, Bytes)],
    pub(super) param_headers: &'a [(String, String)],
    pub(super) progress: Option<&'a mpsc::Sender<Bytes>>,
    /// What a caller's request says of its rounds.
    pub(super) round: Option<&'a Round>,
    /// The caller's API key, whose share of memory the answer takes.
    pub(super) key: Option<Uuid>,
    pub(super) bytes_max: usize,
}

impl<'a> Ask<'a> {
    /// A request with nothing special about it.
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

/// The answer, or that there is none.
pub(super) fn settle(reply: Reply) -> Result<Answer, UpstreamError> {
    let status = reply.status.as_u16();
    reply.answer.ok_or_else(|| UpstreamError::invalid(format!("HTTP status {status}")))
}

/// A refusal by the upstream of one of our own questions; its text stays out.
pub(super) fn refused(method: &str, code: i64) -> UpstreamError {
    UpstreamError::invalid(format!("{method} was refused with code {code}"))
}
