//! Checks 1 and 7 of a call on `/mcp/direct`, where the tool's name is the only declaration.

use std::sync::Arc;

use bytes::Bytes;

use super::{present, seen};
use crate::domain::activity::Record;
use crate::domain::annotations::Tier;
use crate::domain::id::split_canonical;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::calls::pipeline::door::Door;
use crate::gateway::calls::pipeline::outcome::Refused;
use crate::gateway::calls::pipeline::record;
use crate::gateway::calls::pipeline::request::ToolRequest;
use crate::gateway::catalog::Tool;
use crate::gateway::tenants::Caller;

/// Longest name that errors and records repeat, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 300;

/// Finds a tool by either spelling, and its tier. The refusal is the same for a tool that does not exist, is another
/// tenant's, or is out of scope. Tools above the key's ceiling are out of scope, so the variant is always permitted.
pub(super) fn resolve(
    caller: &Caller,
    request: &ToolRequest,
    about: &mut Refused,
    record: &mut Record,
) -> Result<(String, Arc<Tool>, Tier), Refusal> {
    let raw = present(request.name.as_ref());
    let name: String = raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let Some((tool, tier)) = find(caller, &name, record) else {
        about.tool = Some(shown(&name));
        return Err(unknown(&name));
    };
    about.tool = Some(tool.canonical.to_string());
    about.variant = Some(tier.call_with());
    about.is_structured = Door::Direct.is_structured(&tool);
    Ok((name, tool, tier))
}

/// Finds a tool by either spelling in the caller's scope. The record gets the tool's name, or the requested one if there is
/// none.
pub(in crate::gateway) fn find(
    caller: &Caller,
    name: &str,
    record: &mut Record,
) -> Option<(Arc<Tool>, Tier)> {
    let tool = caller.tenant.as_ref().and_then(|tenant| tenant.catalogue().by_either_name(name).cloned());
    let Some((tool, tier)) = tool.and_then(|tool| seen(caller, tool)) else {
        match split_canonical(name) {
            Some((server, tool)) => record::tool(record, Some(server), tool),
            None => record::tool(record, None, &shown(name)),
        }
        return None;
    };
    record::tool(record, Some(&tool.server.name), &tool.name);
    record::variant(record, tier.call_with());
    record.tier = Some(tier.as_str());
    Some((tool, tier))
}

/// Returns the refusal for a tool that does not exist for this caller.
pub(super) fn unknown(name: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("Unknown tool: {}", shown(name)))
}

fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN_CHARS_MAX).collect()
}

/// Returns the arguments, an object; empty if absent.
pub(super) fn arguments(
    request: &ToolRequest,
    record: &mut Record,
    preview_bytes: usize,
) -> Result<Bytes, Refusal> {
    let arguments = match present(request.args.as_ref()) {
        None => Bytes::from_static(b"{}"),
        // the parser of the request refused duplicate members already
        Some(raw) if raw.starts_with('{') => request.args.clone().unwrap_or_default(),
        Some(_) => {
            let message = "Invalid arguments: they must be a JSON object";
            return Err(Refusal::new(Code::InvalidArguments, message));
        }
    };
    record::arguments(record, &arguments, preview_bytes);
    Ok(arguments)
}
