//! Wishes of handshake sessions: `logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`.
//!
//! Modern clients state them in each request: the level in `_meta`, resources in `subscriptions/listen`.

use http::StatusCode;

use super::entry::McpEntry;
use super::jsonrpc::RpcError;
use super::session::Session;
use super::{ClientEra, Endpoint};
use crate::domain::json::Member;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relay::LogLevel;
use crate::gateway::SubscribeFault;

/// Returns whether a method of a handshake client states a wish at this endpoint.
pub(super) fn is_wish(endpoint: Endpoint, method: &str) -> bool {
    match method {
        "logging/setLevel" => true,
        // no resource is listed or read on `/mcp`
        "resources/subscribe" | "resources/unsubscribe" => endpoint == Endpoint::Direct,
        _ => false,
    }
}

/// Stores a wish.
///
/// # Errors
/// The request has no session, its parameters are wrong, or the wish is refused. `logging/setLevel` counts against the rate
/// as well.
pub(super) async fn store(
    entry: McpEntry<'_>,
    session: Option<&Session>,
    method: &str,
    params: &[Member<'_>],
) -> Result<(), RpcError> {
    let gateway = &entry.faces.gateway;
    let session = session.ok_or_else(|| {
        let text = format!("Invalid request: {method} needs a session (Mcp-Session-Id of initialize)");
        RpcError::refused(StatusCode::BAD_REQUEST, text)
    })?;
    let admit = || {
        let admitted = gateway.tenants.admit_list(entry.caller);
        admitted.map_err(|refusal| RpcError::rate_limited(ClientEra::Handshake, &refusal))
    };
    match method {
        "logging/setLevel" => {
            let level = text(params, "level").and_then(|level| LogLevel::parse(&level));
            let level = level.ok_or_else(|| {
                let text = format!("Invalid params: level must be one of {}", LogLevel::WORDS.join(", "));
                RpcError::invalid_params(text)
            })?;
            admit()?;
            let stored = gateway.sessions.set_log_level(entry.caller, &session.id, level).await;
            stored.map_err(|refusal| RpcError::refusal(&refusal))
        }
        "resources/subscribe" => {
            let uri = uri(params)?;
            let stored = gateway.calls.subscribe(&gateway.sessions, entry.caller, &session.id, &uri).await;
            stored.map_err(|fault| unsubscribed(&fault, &uri))
        }
        _ => {
            let uri = uri(params)?;
            admit()?;
            let stored = gateway.sessions.unsubscribe(entry.caller, &session.id, &uri).await;
            stored.map_err(|refusal| RpcError::refusal(&refusal))
        }
    }
}

fn unsubscribed(fault: &SubscribeFault, uri: &str) -> RpcError {
    match fault {
        SubscribeFault::Refused(refusal) => refused(refusal, uri),
        SubscribeFault::Unwatched(text) => RpcError::invalid_params(format!("Invalid params: {text}")),
        SubscribeFault::Full(max) => RpcError::invalid_params(format!(
            "Invalid params: this session is subscribed to {max} resources; unsubscribe from one first"
        )),
    }
}

fn refused(refusal: &Refusal, uri: &str) -> RpcError {
    match refusal.code {
        Code::NotFound => RpcError::no_resource(ClientEra::Handshake, Some(uri)),
        Code::RateLimited => RpcError::rate_limited(ClientEra::Handshake, refusal),
        _ => RpcError::refusal(refusal),
    }
}

fn uri(params: &[Member<'_>]) -> Result<String, RpcError> {
    text(params, "uri").ok_or_else(|| RpcError::invalid_params("Invalid params: uri must be a string"))
}

fn text(params: &[Member<'_>], name: &str) -> Option<String> {
    let member = params.iter().find(|member| member.name == name)?;
    serde_json::from_str(member.value).ok()
}
