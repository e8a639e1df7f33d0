//! Content types that a client sends and reads, by its headers (MCP, streamable HTTP).

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::jsonrpc::RpcError;

/// Checks that the body is declared as JSON, and that the client accepts JSON answers.
pub(super) fn check(headers: &HeaderMap) -> Result<(), RpcError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "Invalid request: Content-Type must be application/json";
        return Err(RpcError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let accept = text(header::ACCEPT).unwrap_or("*/*");
    if accept.contains("application/json") || accept.contains("*/*") || accept.contains("application/*") {
        return Ok(());
    }
    let message = "Invalid request: Accept must list application/json and text/event-stream";
    Err(RpcError::refused(StatusCode::NOT_ACCEPTABLE, message))
}

/// Returns whether the client reads event streams.
pub(super) fn reads_streams(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accept| accept.contains("text/event-stream") || accept.contains("*/*"))
}
