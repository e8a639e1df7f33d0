//! Faults of tool definitions: parts that differ from the protocol.
//!
//! Official clients check a list as a whole: one tool with `"readOnlyHint": null`, and the client has no tools at all.
//! Optional parts that cannot be read count as absent. A tool without a usable input schema cannot be listed (MCP
//! 2025-11-25 and 2026-07-28, `Tool`).

use super::members::{all_elements, is_object, is_string, text};
use super::{Reader, output};
use crate::domain::json;

/// Reason why a definition is missing from the lists of `/mcp/direct`, or from those of some clients. The text is the end
/// of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotListed(pub &'static str);

/// Members of `annotations` with boolean values.
const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// Checks whether a tool can be listed to these clients at all.
pub(super) fn check(definition: &str, reader: Reader) -> Result<(), NotListed> {
    let Ok([schema]) = json::find_members(definition, ["inputSchema"]) else {
        return Err(NotListed("its definition is not an object"));
    };
    let Some(schema) = schema.filter(|schema| has_type_object(schema)) else {
        return Err(NotListed("its inputSchema is not a JSON schema of type object"));
    };
    if !has_readable_dialect(schema) {
        return Err(NotListed("the $schema of its inputSchema is not a string"));
    }
    if json::has_infinite_number(schema) {
        return Err(NotListed("its inputSchema has a number that is infinite to many clients"));
    }
    if reader == Reader::Handshake && !has_readable_parameters(schema) {
        return Err(NotListed(
            "clients of 2025-11-25 and before cannot read the properties, or required, of its inputSchema",
        ));
    }
    Ok(())
}

/// Returns the names of a definition's members that are left out for these clients.
pub(super) fn members_left_out(definition: &str, reader: Reader) -> Vec<&'static str> {
    let mut names = Vec::new();
    json::for_each_member(definition, |member| {
        let raw = member.value;
        let (name, is_readable) = match &*member.name {
            "title" => ("title", is_string(raw)),
            "description" => ("description", is_string(raw)),
            "annotations" => ("annotations", is_object(raw)),
            "_meta" => ("_meta", is_object(raw)),
            "icons" => ("icons", are_icons(raw)),
            // no longer in the newer revision
            "execution" => ("execution", reader == Reader::Handshake && is_execution(raw)),
            "outputSchema" => ("outputSchema", is_output_schema(raw, reader)),
            _ => return,
        };
        if !is_readable {
            names.push(name);
        }
    });
    names
}

/// Returns the names of the members of `annotations` with values of a wrong type.
pub(super) fn hints_left_out(annotations: &str) -> Vec<&'static str> {
    let mut left_out = Vec::new();
    json::for_each_member(annotations, |member| {
        let hint = HINTS.into_iter().find(|hint| *hint == member.name);
        if let Some(hint) = hint.filter(|_| !matches!(member.value, "true" | "false")) {
            left_out.push(hint);
        }
        if member.name == "title" && !is_string(member.value) {
            left_out.push("title");
        }
    });
    left_out
}

/// Returns whether these clients can read an output schema. Before the newer revision, it must be an object, and some
/// clients compile all of them to read a list.
fn is_output_schema(raw: &str, reader: Reader) -> bool {
    let is_readable = is_object(raw) && has_readable_dialect(raw) && !json::has_infinite_number(raw);
    let is_safe = || has_type_object(raw) && has_readable_parameters(raw) && output::is_safe(raw);
    is_readable && (reader == Reader::Modern || is_safe())
}

fn has_type_object(schema: &str) -> bool {
    let Ok([kind]) = json::find_members(schema, ["type"]) else { return false };
    kind.and_then(text).is_some_and(|kind| kind == "object")
}

fn has_readable_dialect(schema: &str) -> bool {
    json::find_members(schema, ["$schema"]).is_ok_and(|[dialect]| dialect.is_none_or(is_string))
}

/// Checks the parts of a schema that handshake clients read: `properties` of schemas, `required` of strings.
fn has_readable_parameters(schema: &str) -> bool {
    let Ok([properties, required]) = json::find_members(schema, ["properties", "required"]) else {
        return false;
    };
    let is_schema = |raw: &str| is_object(raw) || matches!(raw, "true" | "false");
    properties.is_none_or(|raw| is_object(raw) && all_values(raw, is_schema))
        && required.is_none_or(|raw| all_elements(raw, is_string))
}

pub(super) fn are_icons(raw: &str) -> bool {
    all_elements(raw, |icon| {
        let Ok([src, kind, sizes, theme]) = json::find_members(icon, ["src", "mimeType", "sizes", "theme"])
        else {
            return false;
        };
        src.is_some_and(is_string)
            && kind.is_none_or(is_string)
            && sizes.is_none_or(|sizes| all_elements(sizes, is_string))
            && theme.is_none_or(|theme| text(theme).is_some_and(|theme| theme == "light" || theme == "dark"))
    })
}

fn is_execution(raw: &str) -> bool {
    let Ok([support]) = json::find_members(raw, ["taskSupport"]) else { return false };
    let known = ["forbidden", "optional", "required"];
    support.is_none_or(|raw| text(raw).is_some_and(|support| known.contains(&support.as_str())))
}

fn all_values(raw: &str, is_good: impl Fn(&str) -> bool) -> bool {
    let mut good = true;
    json::for_each_member(raw, |member| good &= is_good(member.value));
    good
}
