//! Id of a request, which its response, its record and its log lines carry, and other facts that the gate hands on.

use std::sync::Arc;

use axum::extract::Request;
use http::{HeaderMap, HeaderName};

use super::client::ClientAddress;
use crate::gateway::Caller;

/// Header of the id, in requests and responses.
pub(super) const ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id taken over from a client, in bytes.
const BYTES_MAX: usize = 100;

/// Id of a request: the client's own `X-Request-Id` if it is usable, else a fresh one.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// Facts about a request that passed the gate.
pub struct AdmittedRequest {
    /// Holder of the request's API key.
    pub caller: Arc<Caller>,
    /// Id of the request.
    pub id: RequestId,
    /// Address of the client; `None` without a connection.
    pub address: Option<ClientAddress>,
}

/// Returns the id that a request was given.
pub(super) fn id(request: &Request) -> Option<&str> {
    request.extensions().get::<RequestId>().map(|id| id.0.as_str())
}

/// Returns the id that a client chose, if it can be used.
pub(super) fn usable_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(ID)?.to_str().ok()?;
    let good = !text.is_empty() && text.len() <= BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    good.then(|| text.to_owned())
}
