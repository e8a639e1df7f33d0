//! The body of a call: the names of the arguments of `call_tool_*`, for MCP and REST.

use bytes::Bytes;

use crate::domain::json::Member;
use crate::gateway::ToolRequest;

/// Names of the arguments of `call_tool_*`.
pub const ARGUMENTS: [&str; 7] = ToolRequest::ARGUMENTS;

/// Picks the arguments out of an object's members; the values stay raw and share `body`'s memory, which the
/// members must borrow from. Names that are not arguments are left alone.
pub fn read(body: &Bytes, members: &[Member<'_>]) -> ToolRequest {
    let raw = |name: &str| {
        members
            .iter()
            .find(|member| member.name == name)
            .map(|member| body.slice_ref(member.value.as_bytes()))
    };
    ToolRequest {
        name: raw("name"),
        args: raw("args"),
        args_json: raw("args_json"),
        intent: raw("intent"),
        intent_operation_type: raw("intent_operation_type"),
        intent_data_sensitivity: raw("intent_data_sensitivity"),
        intent_reason: raw("intent_reason"),
        ..ToolRequest::default()
    }
}
