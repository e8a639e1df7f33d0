//! Prepared entries of search results: the start of each, which is the same for every caller, without the closing brace.

use crate::domain::header_hints::published_schema;
use crate::domain::json;
use crate::domain::signature::{signature, summary};
use crate::domain::tool::Definition;

/// Returns the full entry: `{name, server, description, inputSchema, annotations`.
pub(super) fn full(server: &str, name: &str, definition: &Definition<'_>) -> String {
    let mut out = String::from(r#"{"name":"#);
    json::escape_into(&mut out, &format!("{server}:{name}"));
    out.push_str(r#","server":"#);
    json::escape_into(&mut out, server);
    out.push_str(r#","description":"#);
    out.push_str(definition.description_raw.unwrap_or("\"\""));
    out.push_str(r#","inputSchema":"#);
    out.push_str(&published_schema(definition.input_schema.unwrap_or(r#"{"type":"object"}"#)));
    out.push_str(r#","annotations":"#);
    out.push_str(definition.annotations_raw.unwrap_or("{}"));
    out
}

/// Returns the compact entry, enough to choose a tool and often to call it: `{name, signature, summary, annotations`.
pub(super) fn compact(server: &str, name: &str, definition: &Definition<'_>) -> String {
    let mut out = String::from(r#"{"name":"#);
    json::escape_into(&mut out, &format!("{server}:{name}"));
    out.push_str(r#","signature":"#);
    json::escape_into(&mut out, &signature(name, definition.input_schema));
    out.push_str(r#","summary":"#);
    json::escape_into(&mut out, &summary(&definition.description));
    out.push_str(r#","annotations":"#);
    out.push_str(definition.annotations_raw.unwrap_or("{}"));
    out
}
