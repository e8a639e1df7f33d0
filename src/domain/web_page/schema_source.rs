//! Descriptions of forms by their authors: WAM's tool schemas and WebMCP's attributes, as one model.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use url::Url;

use super::dom::{DomNodeId, WebDom};
use super::file::{self, FileState, PAGE_FILE_BYTES_MAX, PageFile};
use super::gates::PageGates;
use super::spec::ParameterSpec;
use crate::domain::json;
use crate::domain::text_enum::text_enum;

/// Most parameters of one schema.
const PARAMETERS_MAX: usize = 200;
/// Type of a script that holds a tool schema.
const SCRIPT_TYPE: &str = "application/wam-tool+json";

text_enum! {
    /// Reason why a schema that a form names is not used.
    pub enum SchemaFault {
        /// The reference leads to no script of the right type in the page.
        Missing = "schema_missing",
        /// The reference is a `data:` URL, or leads to another origin.
        Origin = "schema_off_origin",
        /// The file could not be fetched, or is too long.
        Unreachable = "schema_unreachable",
        /// The file is still to be fetched.
        Wanted = "schema_wanted",
        /// The text is no tool schema.
        Malformed = "schema_malformed",
    }
}

/// Tool as a page's author describes it. All texts are as written, and nothing of it is verified.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthoredTool {
    /// Name of the tool.
    pub name: Option<String>,
    /// Description of the tool.
    pub description: Option<String>,
    /// Parameters by the names of their controls, each name once.
    pub parameters: Vec<(String, ParameterSpec)>,
    /// Names of the parameters that the author requires.
    pub required: BTreeSet<String>,
}

impl AuthoredTool {
    /// Reads a tool schema: `parameters` or `inputSchema`, a flat map or a JSON Schema of type object.
    ///
    /// # Errors
    /// [`SchemaFault::Malformed`]
    pub fn read(text: &str) -> Result<AuthoredTool, SchemaFault> {
        let text = text.trim();
        if text.len() > PAGE_FILE_BYTES_MAX || json::members(text).is_err() {
            return Err(SchemaFault::Malformed);
        }
        let Ok(Value::Object(root)) = serde_json::from_str(text) else { return Err(SchemaFault::Malformed) };
        let string = |name: &str| root.get(name).and_then(Value::as_str).map(str::to_owned);
        let given = root.get("parameters").or_else(|| root.get("inputSchema"));
        let empty = Map::new();
        let given = match given {
            None => &empty,
            Some(Value::Object(given)) => given,
            Some(_) => return Err(SchemaFault::Malformed),
        };
        let is_schema = given.get("type").is_some_and(|kind| kind == "object");
        let map = match given.get("properties") {
            Some(Value::Object(properties)) if is_schema => properties,
            _ if is_schema => &empty,
            _ => given,
        };
        if map.len() > PARAMETERS_MAX {
            return Err(SchemaFault::Malformed);
        }
        let mut tool =
            AuthoredTool { name: string("name"), description: string("description"), ..Default::default() };
        for (name, schema) in map {
            let Value::Object(schema) = schema else { continue };
            if schema.get("required") == Some(&Value::Bool(true)) {
                tool.required.insert(name.clone());
            }
            tool.parameters.push((name.clone(), ParameterSpec::read(schema)));
        }
        for of in [&root, given] {
            let listed = of.get("required").and_then(Value::as_array).into_iter().flatten();
            tool.required.extend(listed.filter_map(Value::as_str).map(str::to_owned));
        }
        tool.required.retain(|name| map.contains_key(name));
        Ok(tool)
    }
}

/// Finds the WAM schema of an element: its own attribute before the Global Policy's map. `None` without either.
///
/// # Errors
/// The reason why the schema is not used. The description of a form by itself does not depend on it.
pub fn wam_schema(
    dom: &WebDom,
    node: DomNodeId,
    page: &Url,
    gates: &PageGates<'_>,
    files: &[PageFile<'_>],
    wanted: &mut Vec<Url>,
) -> Option<Result<AuthoredTool, SchemaFault>> {
    let own =
        dom.attribute(node, "wam-intent-tool-schema").map(str::trim).filter(|written| !written.is_empty());
    let written = own.or_else(|| gates.schemas(node).next())?;
    if let Some(id) = written.strip_prefix('#') {
        return Some(inline(dom, id));
    }
    Some(match file::find(written, page, files, wanted) {
        FileState::Text(text) => AuthoredTool::read(text),
        FileState::Wanted => Err(SchemaFault::Wanted),
        FileState::Failed => Err(SchemaFault::Unreachable),
        FileState::Refused => Err(SchemaFault::Origin),
    })
}

fn inline(dom: &WebDom, id: &str) -> Result<AuthoredTool, SchemaFault> {
    let is_schema = |node: &DomNodeId| {
        let kind = dom.attribute(*node, "type").unwrap_or_default();
        dom.is(*node, "script") && kind.trim().eq_ignore_ascii_case(SCRIPT_TYPE)
    };
    let script = dom.by_id(id).filter(is_schema).ok_or(SchemaFault::Missing)?;
    AuthoredTool::read(&dom.text(script))
}

/// Returns the WebMCP description of a form without its parameters, which stand at its controls; `None` without the
/// attribute `toolname`.
pub fn webmcp_tool(dom: &WebDom, form: DomNodeId) -> Option<AuthoredTool> {
    let name = dom.attribute(form, "toolname").filter(|name| !name.trim().is_empty())?;
    let description = dom.attribute(form, "tooldescription").map(str::to_owned);
    Some(AuthoredTool { name: Some(name.to_owned()), description, ..AuthoredTool::default() })
}

/// Returns the WebMCP description of a control: `toolparamdescription` with `toolparamtitle`.
pub fn webmcp_parameter(dom: &WebDom, control: DomNodeId) -> Option<String> {
    let attribute = |name: &str| dom.attribute(control, name).map(str::trim).filter(|text| !text.is_empty());
    match (attribute("toolparamtitle"), attribute("toolparamdescription")) {
        (Some(title), Some(text)) => Some(format!("{title}: {text}")),
        (title, text) => title.or(text).map(str::to_owned),
    }
}
