//! Checks 1 and 7 of a call on `/mcp/direct`, where the tool's name is the only declaration.

use std::sync::Arc;

use bytes::Bytes;

use super::{present, seen};
use crate::domain::annotations::Tier;
use crate::domain::id::split_canonical;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::calls::pipeline::door::Door;
use crate::gateway::calls::pipeline::facts::Facts;
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
    facts: &mut Facts,
) -> Result<(String, Arc<Tool>, Tier), Refusal> {
    let raw = present(request.name.as_ref());
    let name: String = raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let (tool, tier) = identify(caller, &name, facts).ok_or_else(|| unknown(&name))?;
    Ok((name, tool, tier))
}

/// Finds a tool by either spelling in the caller's scope, and notes it; of an unknown one, the requested name.
pub(in crate::gateway::calls) fn identify(
    caller: &Caller,
    name: &str,
    facts: &mut Facts,
) -> Option<(Arc<Tool>, Tier)> {
    let found = find(caller, name);
    match &found {
        Some((tool, tier)) => {
            facts.note_tool(Some(&tool.server.name), &tool.name);
            facts.subject = Some(tool.canonical.to_string());
            facts.variant = Some(tier.call_with());
            facts.tier = Some(*tier);
            facts.is_structured = Door::Direct.is_structured(tool);
        }
        None => {
            match split_canonical(name) {
                Some((server, tool)) => facts.note_tool(Some(server), tool),
                None => facts.note_tool(None, &shown(name)),
            }
            facts.subject = Some(shown(name));
        }
    }
    found
}

/// Finds a tool by either spelling in the caller's scope.
pub(super) fn find(caller: &Caller, name: &str) -> Option<(Arc<Tool>, Tier)> {
    let tool = caller.tenant.as_ref().and_then(|tenant| tenant.catalogue().by_either_name(name).cloned());
    tool.filter(|tool| tool.server.is_on_direct()).and_then(|tool| seen(caller, tool))
}

/// Returns the refusal for a tool that does not exist for this caller.
pub(super) fn unknown(name: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("Unknown tool: {}", shown(name)))
}

fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN_CHARS_MAX).collect()
}

/// Returns the arguments, an object; empty if absent.
pub(super) fn arguments(request: &ToolRequest) -> Result<Bytes, Refusal> {
    match present(request.args.as_ref()) {
        None => Ok(Bytes::from_static(b"{}")),
        // the parser of the request refused duplicate members already
        Some(raw) if raw.starts_with('{') => Ok(request.args.clone().unwrap_or_default()),
        Some(_) => {
            let message = "Invalid arguments: they must be a JSON object";
            Err(Refusal::new(Code::InvalidArguments, message))
        }
    }
}
