//! Tool definitions: kept whole as the server sent them, with the parts that the gateway needs extracted once.

use super::annotations::Annotations;
use super::json::{self, JsonFault};
use super::text_enum::text_enum;

text_enum! {
    /// State of a tool against its definition pin (behaviour, section 6).
    pub enum PinState {
        /// May be listed and called.
        Approved = "approved",
        /// New on a server that is not on automatic approval: hidden until approved.
        Pending = "pending",
        /// Different from the approved definition: hidden until approved.
        Changed = "changed",
        /// Blocked by an administrator.
        Blocked = "blocked",
    }
}

impl PinState {
    /// Returns the state of a definition with this pin: a block counts first, then the approved pin.
    pub fn of(pin: &str, approved_pin: Option<&str>, is_blocked: bool) -> PinState {
        match approved_pin {
            _ if is_blocked => PinState::Blocked,
            Some(approved) if approved == pin => PinState::Approved,
            Some(_) => PinState::Changed,
            None => PinState::Pending,
        }
    }
}

/// Parts of a definition; raw texts are borrowed from it.
#[derive(Debug)]
pub struct Definition<'a> {
    /// `title`, or `annotations.title`.
    pub title: Option<String>,
    /// `description`, un-escaped; empty when absent.
    pub description: String,
    /// The raw value of `description`, as sent.
    pub description_raw: Option<&'a str>,
    /// The raw `inputSchema`.
    pub input_schema: Option<&'a str>,
    /// The raw `annotations` when it is an object.
    pub annotations_raw: Option<&'a str>,
    /// Hints that decide the tier.
    pub annotations: Annotations,
    /// Parameter names with their descriptions, for search.
    pub parameters: Vec<(String, String)>,
}

/// Most parameters of one tool that are searchable.
const PARAMETERS_MAX: usize = 200;
/// Levels of nested parameters that are searchable, besides the first.
const PARAMETERS_DEPTH_MAX: u32 = 2;
/// Most allowed values of one parameter that are searchable.
const CHOICES_MAX: usize = 50;

impl<'a> Definition<'a> {
    /// Reads a definition. Members of the wrong type count as absent.
    ///
    /// # Errors
    /// The faults of [`json::members`]: the definition is not a JSON object with unique names.
    pub fn read(raw: &'a str) -> Result<Definition<'a>, JsonFault> {
        let members = json::members(raw)?;
        let value = |name: &str| members.iter().find(|m| m.name == name).map(|m| m.value);
        let annotations_raw = value("annotations").filter(|raw| raw.starts_with('{'));
        let input_schema = value("inputSchema").filter(|raw| raw.starts_with('{'));
        let annotation_title = annotations_raw.and_then(|raw| member_text(raw, "title"));
        let description_raw = value("description").filter(|raw| raw.starts_with('"'));
        Ok(Definition {
            title: value("title").and_then(string).or(annotation_title),
            description: description_raw.and_then(string).unwrap_or_default(),
            description_raw,
            input_schema,
            annotations_raw,
            annotations: Annotations::read(annotations_raw),
            parameters: input_schema.map(parameters).unwrap_or_default(),
        })
    }
}

fn string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

fn member_text(object: &str, name: &str) -> Option<String> {
    json::members(object).ok()?.iter().find(|m| m.name == name).and_then(|m| string(m.value))
}

/// Returns the parameters of a schema, each with its description and allowed values.
fn parameters(schema: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    add_parameters(schema, 0, &mut found);
    found
}

fn add_parameters(schema: &str, depth: u32, found: &mut Vec<(String, String)>) {
    let Ok(members) = json::members(schema) else { return };
    let Some(properties) = members.iter().find(|m| m.name == "properties") else { return };
    let Ok(properties) = json::members(properties.value) else { return };
    for property in &properties {
        if found.len() == PARAMETERS_MAX {
            return;
        }
        let mut text = member_text(property.value, "description").unwrap_or_default();
        for value in choices(property.value) {
            text.push(' ');
            text.push_str(&value);
        }
        found.push((property.name.to_string(), text));
        if depth < PARAMETERS_DEPTH_MAX {
            add_parameters(property.value, depth + 1, found);
            let items = json::members(property.value).ok();
            let items = items.iter().flatten().find(|m| m.name == "items");
            if let Some(items) = items {
                add_parameters(items.value, depth + 1, found);
            }
        }
    }
}

/// Returns the texts among the values that a schema's `enum` allows.
fn choices(schema: &str) -> Vec<String> {
    let Ok(members) = json::members(schema) else { return Vec::new() };
    let allowed = members.iter().find(|m| m.name == "enum").map(|m| m.value).unwrap_or_default();
    let allowed: Vec<serde_json::Value> = serde_json::from_str(allowed).unwrap_or_default();
    let texts = allowed.into_iter().take(CHOICES_MAX).filter_map(|value| match value {
        serde_json::Value::String(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

/// Members of a tool call's result that the gateway itself reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResultHead {
    /// True if the result has `isError: true`.
    pub is_error: bool,
    /// `resultType`, when it is a string.
    pub result_type: Option<String>,
    /// True if there is a `resultType` of any type.
    pub has_result_type: bool,
}

impl ResultHead {
    /// Reads the head of a raw result; `None` when it is not a JSON object, or has one of the members twice.
    pub fn read(raw: &str) -> Option<ResultHead> {
        let [is_error, result_type] = json::find_members(raw, ["isError", "resultType"]).ok()?;
        Some(ResultHead {
            is_error: is_error == Some("true"),
            has_result_type: result_type.is_some(),
            result_type: result_type.and_then(string),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_and_oddities_count_as_absent() {
        let raw = r#"{"name":"x","description":"Reads\na file","annotations":{"readOnlyHint":true,"title":"T"},
            "inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"Where"},"n":{}}}}"#;
        let definition = Definition::read(raw).expect("reads");
        assert_eq!(definition.description, "Reads\na file");
        assert_eq!(definition.title.as_deref(), Some("T"));
        assert_eq!(definition.annotations.read_only, Some(true));
        let expected = vec![("path".to_owned(), "Where".to_owned()), ("n".to_owned(), String::new())];
        assert_eq!(definition.parameters, expected);
        let nested = r#"{"inputSchema":{"properties":{"filter":{"properties":{"state":{"description":"Which",
            "enum":["open",1,"closed"]}}},"rows":{"items":{"properties":{"cell":{}}}}}}}"#;
        let nested = Definition::read(nested).expect("reads").parameters;
        let nested: Vec<(&str, &str)> =
            nested.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(nested, [("filter", ""), ("state", "Which open closed"), ("rows", ""), ("cell", "")]);
        let odd =
            Definition::read(r#"{"description":7,"annotations":[],"inputSchema":true}"#).expect("reads");
        assert_eq!((odd.description.as_str(), odd.annotations_raw, odd.input_schema), ("", None, None));
    }

    #[test]
    fn result_heads() {
        let head = ResultHead::read(r#"{"content":[{"isError":true}],"resultType":"complete","_meta":{}}"#);
        let expected =
            ResultHead { is_error: false, result_type: Some("complete".into()), has_result_type: true };
        assert_eq!(head, Some(expected));
        assert_eq!(ResultHead::read(r#"{"isError":true}"#).map(|h| h.is_error), Some(true));
        assert_eq!(ResultHead::read("[]"), None);
        let odd = ResultHead::read(r#"{"resultType":null}"#).expect("reads");
        assert_eq!((odd.has_result_type, odd.result_type), (true, None));
    }
}
