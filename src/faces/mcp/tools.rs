//! Definitions of the built-in tools, as listed (behaviour, section 5).

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{ClientEra, management, result};
use crate::domain::brief::listed;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::intent::IntentMode;
use crate::domain::operation::{OperationType, Variant};
use crate::domain::settings::Effective;
use crate::gateway::{Detail, LIMIT_DEFAULT, LIMIT_MAX, View};

/// Name of the search tool.
pub(super) const RETRIEVE_TOOLS: &str = "retrieve_tools";
/// Name of the tool that reads what was cut off a result.
pub(super) const READ_CACHE: &str = "read_cache";
/// Most servers named in the description of `retrieve_tools`.
const SERVERS_NAMED_MAX: usize = 50;

/// Returns the gateway's own tools on `/mcp/direct`, which has neither search nor `call_tool_*`.
pub(super) fn on_direct(manages: Option<OperationType>) -> Vec<Value> {
    let mut tools = management::definitions(manages);
    tools.push(read_cache());
    tools
}

/// Returns the fingerprint of the texts of [`on_direct`], computed once per value of `manages`.
pub(super) fn print_on_direct(manages: Option<OperationType>) -> Fingerprint {
    static PRINTS: [OnceLock<Fingerprint>; 4] = [const { OnceLock::new() }; 4];
    let make = || {
        let mut making = Fingerprinting::default();
        on_direct(manages).iter().for_each(|tool| making.field(&tool.to_string()));
        making.finish()
    };
    let place = match manages {
        None => 0,
        Some(OperationType::Read) => 1,
        Some(OperationType::Write) => 2,
        Some(OperationType::Destructive) => 3,
    };
    PRINTS.get(place).map_or_else(make, |print| *print.get_or_init(make))
}

/// Returns the body of a `tools/list` result for a caller with these settings.
pub(super) fn list_body(
    era: ClientEra,
    settings: &Effective,
    manages: Option<OperationType>,
    view: &View,
) -> String {
    let mode = settings.intent_declaration;
    let mut tools = vec![retrieve_tools(mode, view)];
    let allowed = |variant: &Variant| variant.operation() <= settings.max_operation;
    tools.extend(Variant::ALL.into_iter().filter(allowed).map(|variant| call_tool(variant, mode)));
    tools.push(read_cache());
    tools.extend(management::definitions(manages));
    result::list_result(era, "tools", &Value::Array(tools).to_string())
}

fn retrieve_tools(mode: IntentMode, view: &View) -> Value {
    let intent = match mode {
        IntentMode::Required => "Intent must match tool variant.",
        IntentMode::Inferred => "The operation type is inferred from the tool variant.",
    };
    let description = format!(
        "Search for tools across all upstream servers. Results include annotations (readOnlyHint, destructiveHint) \
         and recommended call_with variant. Use call_tool_read for read-only operations, call_tool_write for \
         modifications, call_tool_destructive for deletions. {intent}{}",
        servers(view)
    );
    json!({
        "name": RETRIEVE_TOOLS,
        "title": "Search tools",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in plain words, or its name"},
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT,
                    "description": "How many tools to return"
                },
                "server": {"type": "string", "description": "Only tools of this server"},
                "read_only_only": {"type": "boolean", "description": "Only tools that read and change nothing"},
                "exclude_destructive": {"type": "boolean", "description": "No tools that may delete or destroy"},
                "include_site_tools": {"type": "boolean", "description": "Also tools that web pages describe themselves, which are otherwise found by the host of their page"},
                "detail": {
                    "type": "string", "enum": Detail::ALL, "default": "full",
                    "description": "compact: a signature and one sentence of each tool, for a quarter of the tokens"
                }
            },
            "required": ["query"]
        },
        "annotations": {
            "title": "Search tools", "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
            "openWorldHint": false
        }
    })
}

/// Returns the sentence that names the enabled servers that this key can see, at most [`SERVERS_NAMED_MAX`]. Connection
/// states are never in it.
fn servers(view: &View) -> String {
    if view.servers.is_empty() {
        return String::new();
    }
    format!(" Servers: {}.", listed(view.servers.iter().map(String::as_str), SERVERS_NAMED_MAX))
}

fn call_tool(variant: Variant, mode: IntentMode) -> Value {
    let (title, what, last) = match variant {
        Variant::Read => (
            "Call a read-only tool",
            "Execute a read-only tool discovered via retrieve_tools. Use for operations that query data without \
             modifying state.",
            "Will be rejected if server marks tool as destructive.",
        ),
        Variant::Write => (
            "Call a tool that writes",
            "Execute a state-modifying tool discovered via retrieve_tools. Use for operations that create or update \
             resources.",
            "Will be rejected if server marks tool as destructive.",
        ),
        Variant::Destructive => (
            "Call a destructive tool",
            "Execute a destructive tool discovered via retrieve_tools. Use for operations that delete or permanently \
             modify resources.",
            "Most permissive - allowed regardless of server annotations.",
        ),
    };
    let operation = variant.operation().as_str();
    let intent = match mode {
        IntentMode::Required => format!("Requires intent.operation_type='{operation}'."),
        IntentMode::Inferred => {
            format!("The operation type '{operation}' is inferred from the tool variant.")
        }
    };
    json!({
        "name": variant,
        "title": title,
        "description": format!("{what} {intent} {last}"),
        "inputSchema": schema(variant, mode),
        "annotations": {
            "title": title,
            "readOnlyHint": variant == Variant::Read,
            "destructiveHint": variant == Variant::Destructive,
            "openWorldHint": true
        }
    })
}

fn read_cache() -> Value {
    let title = "Read the rest of a long result";
    json!({
        "name": READ_CACHE,
        "title": title,
        "description": "Read what was cut off a result that was too long. The end of the text that was cut names the \
                        key and the arguments to go on with. Answers with records when the whole is a JSON list, \
                        else with text, and with next_offset until there is no more. Kept for 2 hours at most.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "key": {"type": "string", "description": "The key that the end of the text names"},
                "offset": {
                    "type": "integer", "minimum": 0, "default": 0,
                    "description": "Records, or characters, to skip: next_offset of the page before"
                },
                "limit": {
                    "type": "integer", "minimum": 1,
                    "description": "Records (50 when absent, at most 1000), or characters, to read; as many as fit"
                }
            },
            "required": ["key"]
        },
        "annotations": {
            "title": title, "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
            "openWorldHint": false
        }
    })
}

/// Returns the input schema. It is flat for keys whose intent is inferred, since some models fail on nested objects.
fn schema(variant: Variant, mode: IntentMode) -> Value {
    let sensitivity = json!({
        "type": "string", "enum": ["public", "internal", "private", "unknown"],
        "description": "How sensitive the data is, for the audit log"
    });
    let reason = json!({
        "type": "string", "maxLength": 1000, "description": "Why this call is made, for the audit log"
    });
    let mut properties = json!({
        "name": {"type": "string", "description": "The tool's name as server:tool, as retrieve_tools gives it"},
        "args": {"type": "object", "description": "The tool's arguments"},
        "args_json": {"type": "string", "description": "The tool's arguments as a JSON text, instead of args"},
        "intent_data_sensitivity": sensitivity,
        "intent_reason": reason
    });
    let mut required = vec!["name"];
    if mode == IntentMode::Required
        && let Some(properties) = properties.as_object_mut()
    {
        required.push("intent");
        let intent = json!({
            "type": "object",
            "properties": {
                "operation_type": {
                    "type": "string", "enum": [variant.operation()],
                    "description": "Must match the tool variant"
                },
                "data_sensitivity": sensitivity,
                "reason": reason
            },
            "required": ["operation_type"]
        });
        properties.insert("intent".to_owned(), intent);
    }
    json!({"type": "object", "properties": properties, "required": required})
}
