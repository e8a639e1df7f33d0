//! Checks of modern requests: their `_meta`, and the headers that repeat it (MCP 2026-07-28, transports).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

use super::jsonrpc::RpcError;
use super::{MODERN, methods};
use crate::domain::json::{Member, value_of};
use crate::domain::relay::LogLevel;
use crate::domain::rounds::{CAPABILITIES_BYTES_MAX, Capabilities, TooLarge};
use crate::gateway::Client;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Returns whether a request is modern, by its `_meta` or its header. The header alone does not make `initialize` modern:
/// such a client may still shake hands. Its `_meta` does, as the conformance suite expects.
pub(super) fn is_modern(headers: &HeaderMap, method: &str, meta: &[Member<'_>]) -> bool {
    value_of(meta, VERSION).is_some()
        || (method != "initialize" && header(headers, "mcp-protocol-version") == Some(MODERN))
}

/// Returns the revision in `_meta`, known or not. Without one, the request is modern by its header.
pub(super) fn said(meta: &[Member<'_>]) -> Option<String> {
    value_of(meta, VERSION).map_or_else(|| Some(MODERN.to_owned()), |raw| serde_json::from_str(raw).ok())
}

/// Checks a modern request. Returns the client as it describes itself.
pub(super) fn check(
    headers: &HeaderMap,
    method: &str,
    params: &[Member<'_>],
    meta: &[Member<'_>],
) -> Result<Client, RpcError> {
    let version: String = value_of(meta, VERSION)
        .and_then(|raw| serde_json::from_str(raw).ok())
        .ok_or_else(|| RpcError::missing_meta(format!("Invalid params: _meta must carry {VERSION}")))?;
    match header(headers, "mcp-protocol-version") {
        Some(said) if said == version => {}
        _ => {
            return Err(RpcError::header_mismatch(format!(
                "MCP-Protocol-Version must be {VERSION} of _meta"
            )));
        }
    }
    if version != MODERN {
        return Err(RpcError::unsupported_version(&version));
    }
    if !value_of(meta, CAPABILITIES).is_some_and(|raw| raw.starts_with('{')) {
        return Err(RpcError::missing_meta(format!("Invalid params: _meta must carry {CAPABILITIES}")));
    }
    capabilities(meta).map_err(|TooLarge| {
        RpcError::missing_meta(format!(
            "Invalid params: {CAPABILITIES}: more than {CAPABILITIES_BYTES_MAX} bytes about being asked"
        ))
    })?;
    if header(headers, "mcp-method") != Some(method) {
        return Err(RpcError::header_mismatch("Mcp-Method must be the request's method"));
    }
    check_name(headers, method, params)?;
    Ok(value_of(meta, CLIENT).map(methods::client).unwrap_or_default())
}

/// Returns the capabilities of a client to be asked something during a request.
pub(super) fn capabilities(meta: &[Member<'_>]) -> Result<Capabilities, TooLarge> {
    Capabilities::read(value_of(meta, CAPABILITIES).unwrap_or("{}"))
}

/// Returns whether a client opens pages for a person.
pub(super) fn opens_pages(meta: &[Member<'_>]) -> bool {
    // few clients name the mode at all, and every call asks
    let may = value_of(meta, CAPABILITIES).is_some_and(|raw| raw.contains("\"url\""));
    may && capabilities(meta).is_ok_and(|declared| declared.has_pages())
}

/// Returns the lowest level of log messages that a request asks for; `None` for none, and for a level that is not known.
pub(super) fn log_level(meta: &[Member<'_>]) -> Option<LogLevel> {
    LogLevel::parse(&serde_json::from_str::<String>(value_of(meta, LOG_LEVEL)?).ok()?)
}

/// Checks that `Mcp-Name` repeats the name or URI that a request is about.
fn check_name(headers: &HeaderMap, method: &str, params: &[Member<'_>]) -> Result<(), RpcError> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let raw = params.iter().find(|m| m.name == member).map(|m| m.value);
    let Some(name) = raw.and_then(|raw| serde_json::from_str::<String>(raw).ok()) else { return Ok(()) };
    let said = header(headers, "mcp-name").and_then(decode);
    if said.as_deref() == Some(name.as_str()) {
        return Ok(());
    }
    Err(RpcError::header_mismatch(format!("Mcp-Name must be params.{member}")))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// Decodes the value of a header: `=?base64?…?=` stands for a text that no header can carry.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(Cow::Borrowed(value)),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn encoded_names() {
        assert_eq!(decode("up:echo").as_deref(), Some("up:echo"));
        assert_eq!(decode("=?base64?w6k=?=").as_deref(), Some("é"));
        assert_eq!(decode("=?base64?!?="), None);
    }
}
