//! Methods that are answered without an upstream: `initialize`, `server/discover`, and the lists of `/mcp`.

use std::sync::Arc;

use serde_json::json;

use super::jsonrpc::RpcError;
use super::session::Session;
use super::{ClientEra, Endpoint, HANDSHAKE, MODERN, result, tools};
use crate::domain::intent::IntentMode;
use crate::domain::json::{self, Member};
use crate::faces::Faces;
use crate::gateway::{Caller, Catalog, Client};

/// Returns the instructions of an endpoint for a model.
fn instructions(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Search => {
            "Find tools with retrieve_tools, then call them with the variant named in call_with."
        }
        Endpoint::Direct => {
            "The tools of all servers behind this gateway, each under its server's name and its own."
        }
    }
}

/// Refuses cursors, for lists that have only one page.
pub(super) fn no_cursor(params: &[Member<'_>]) -> Result<(), RpcError> {
    match params.iter().find(|member| member.name == "cursor") {
        Some(cursor) if cursor.value != "null" => Err(RpcError::invalid_params("Invalid cursor")),
        _ => Ok(()),
    }
}

/// Returns the catalogue whose tools a caller sees. A platform key must name a tenant.
pub(super) fn catalogue(caller: &Caller) -> Result<Arc<Catalog>, RpcError> {
    caller.catalogue().ok_or_else(|| {
        RpcError::invalid_params(
            "a platform key has no tools of its own: name a tenant with the header X-Tenant",
        )
    })
}

/// Returns the result of `tools/list` on `/mcp`, prepared once per view.
pub(super) async fn tools_list(era: ClientEra, caller: &Caller) -> Result<bytes::Bytes, RpcError> {
    let catalogue = catalogue(caller)?;
    let view = catalogue.view_soon(&caller.settings).await;
    let is_required = caller.settings.intent_declaration == IntentMode::Required;
    // a view depends on the ceiling already, but not on the role
    let manages = caller.manages();
    let slot = 4 * usize::from(manages.is_some())
        + 2 * usize::from(is_required)
        + usize::from(era == ClientEra::Modern);
    Ok(view.body(slot, || tools::list_body(era, &caller.settings, manages, &view).into()))
}

/// Returns the result of `server/discover` (MCP 2026-07-28).
pub(super) fn discover(endpoint: Endpoint) -> String {
    let mut out = result::opening(ClientEra::Modern);
    let body = json!({
        "supportedVersions": [MODERN],
        "capabilities": capabilities(endpoint),
        "instructions": instructions(endpoint),
        "ttlMs": result::LIST_TTL_MS,
        "cacheScope": "private",
    });
    out.push_str(body.to_string().get(1..).unwrap_or("}"));
    out
}

/// Returns the capabilities of an endpoint. `listChanged` and `subscribe` are true only where changes are notified (behaviour,
/// section 4). `logging` always stands there: servers and their `relay` change during a session, and capabilities do not.
fn capabilities(endpoint: Endpoint) -> serde_json::Value {
    if endpoint == Endpoint::Direct {
        return json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "completions": {},
            "logging": {},
        });
    }
    json!({
        "tools": {"listChanged": false},
        "prompts": {"listChanged": false},
        "resources": {"listChanged": false, "subscribe": false},
        "logging": {},
    })
}

/// Returns the result of `initialize`, the token of the new session, and its revision.
pub(super) fn initialize(
    faces: &Faces,
    caller: &Caller,
    endpoint: Endpoint,
    params: &[Member<'_>],
) -> Result<(String, Option<String>, &'static str), RpcError> {
    let value = |name: &str| params.iter().find(|member| member.name == name).map(|member| member.value);
    let wanted: String = value("protocolVersion")
        .and_then(|raw| serde_json::from_str(raw).ok())
        .ok_or_else(|| RpcError::invalid_params("Invalid params: protocolVersion is required"))?;
    let version = HANDSHAKE.into_iter().find(|version| *version == wanted).unwrap_or(HANDSHAKE[0]);
    let client = value("clientInfo").map(client).unwrap_or_default();
    let declared = value("capabilities").unwrap_or("{}");
    let now = faces.gateway.upkeep.database_time_at_most();
    let session = Session::new(caller, endpoint, version, &client, declared, now);
    let result = json!({
        "protocolVersion": version,
        "capabilities": capabilities(endpoint),
        "serverInfo": {"name": "mcpproxy", "title": "mcpproxy", "version": env!("CARGO_PKG_VERSION")},
        "instructions": instructions(endpoint),
    });
    Ok((result.to_string(), faces.sessions.mint(&session), version))
}

/// Parses a raw `clientInfo`.
pub(super) fn client(raw: &str) -> Client {
    let text = |value: Option<&str>| value.and_then(|raw| serde_json::from_str(raw).ok());
    match json::find_members(raw, ["name", "version"]) {
        Ok([name, version]) => Client { name: text(name), version: text(version) },
        Err(_) => Client::default(),
    }
}
