//! Form of a tool's arguments, made from its input schema, and the arguments that a filled-in form stands for.

use std::collections::HashSet;

use serde_json::Value;

use crate::domain::json;
use crate::domain::redact::preview_member;
use crate::faces::console::text::short;

/// Most fields of a form; further properties are given as JSON.
const FIELDS_MAX: usize = 60;
/// Most values of a field to choose from.
const CHOICES_MAX: usize = 100;
/// Longest value to choose, in bytes.
const CHOICE_BYTES_MAX: usize = 200;
/// Longest description of a field, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;
/// Longest name of a property that a field is named by, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Deepest example of a value.
const EXAMPLE_DEPTH_MAX: usize = 3;
/// Longest example of a value, in bytes.
const EXAMPLE_BYTES_MAX: usize = 200;
/// Most properties of an object in an example.
const EXAMPLE_MEMBERS_MAX: usize = 4;
/// Example of a list that says nothing of its items.
const EXAMPLE_OF_LIST: &str = r#"["one", "two"]"#;
/// Example of an object that says nothing of its properties.
const EXAMPLE_OF_OBJECT: &str = r#"{"name": "value"}"#;

/// Kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Text of a string.
    Text,
    /// Number as it is written.
    Number,
    /// Choice among a few values.
    Choice,
    /// JSON of any other value.
    Json,
}

/// Value to choose.
#[derive(Debug)]
pub(super) struct ArgumentChoice {
    /// Value as JSON.
    pub(super) raw: String,
    /// True if it is chosen.
    pub(super) is_chosen: bool,
}

/// Field for an argument.
#[derive(Debug)]
pub(super) struct ArgumentField {
    /// Name in the form.
    pub(super) name: String,
    /// Path of the property, of one or two names.
    path: Vec<String>,
    /// Kind of the field.
    pub(super) kind: FieldKind,
    /// Description, in the server's words.
    pub(super) description: String,
    /// True if the schema needs the property.
    pub(super) is_required: bool,
    /// Values to choose from; none for other kinds.
    pub(super) choices: Vec<ArgumentChoice>,
    /// Value, as it was filled in.
    pub(super) value: String,
    /// Example of a value, as JSON; empty for fields that are no JSON.
    pub(super) example: String,
    /// Reason why the value was not understood, or is missing; `None` for a fine one.
    pub(super) fault: Option<String>,
}

/// Form of a tool's arguments.
#[derive(Debug, Default)]
pub(super) struct ArgumentForm {
    /// Fields, in the order of the schema.
    pub(super) fields: Vec<ArgumentField>,
    /// True if properties have no field.
    pub(super) has_more: bool,
}

impl ArgumentField {
    /// Returns the name of the property with those around it, such as `a.b`.
    pub(super) fn label(&self) -> String {
        self.path.join(".")
    }

    /// Returns whether the field is a large one.
    pub(super) fn is_json(&self) -> bool {
        self.kind == FieldKind::Json
    }

    /// Returns whether the field is for a number.
    pub(super) fn is_number(&self) -> bool {
        self.kind == FieldKind::Number
    }

    /// Returns whether the field may hold a secret: JSON may, at any depth, and records mask values of such a name.
    pub(super) fn is_secret(&self) -> bool {
        self.is_json()
            || self.path.iter().any(|name| preview_member(name, "plain", NAME_BYTES_MAX) != "plain")
    }

    /// Returns the value as JSON; `None` for an empty field.
    ///
    /// # Errors
    /// Kind of value that the field takes.
    fn raw(&self) -> Result<Option<String>, String> {
        let wrong = |kind: &str| Err(format!("must be {kind}"));
        let trimmed = self.value.trim();
        match self.kind {
            FieldKind::Text if self.value.is_empty() => Ok(None),
            FieldKind::Text => {
                let mut out = String::new();
                // browsers send line ends as CR and LF
                json::escape_into(&mut out, &self.value.replace("\r\n", "\n"));
                Ok(Some(out))
            }
            _ if trimmed.is_empty() => Ok(None),
            FieldKind::Number => {
                let is_number = trimmed.starts_with(|c: char| c == '-' || c.is_ascii_digit());
                if is_number && json::check(trimmed).is_ok() {
                    Ok(Some(trimmed.to_owned()))
                } else {
                    wrong("a number")
                }
            }
            FieldKind::Choice => match self.choices.iter().any(|choice| choice.raw == trimmed) {
                true => Ok(Some(trimmed.to_owned())),
                false => wrong("one of its choices"),
            },
            FieldKind::Json => match json::check(trimmed) {
                Ok(()) => Ok(Some(trimmed.to_owned())),
                Err(fault) => Err(format!("must be JSON, such as {}: {fault}", self.example)),
            },
        }
    }
}

impl ArgumentForm {
    /// Creates the form of an input schema. A schema without properties has no fields.
    pub(super) fn of(schema: &str) -> ArgumentForm {
        let mut form = ArgumentForm::default();
        form.add(schema, &[], true);
        form
    }

    fn add(&mut self, schema: &str, above: &[String], is_needed: bool) {
        let Ok([properties, required]) = json::find_members(schema, ["properties", "required"]) else {
            return;
        };
        let required: Vec<String> =
            required.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        for property in json::top_level_members(properties.unwrap_or("{}")).unwrap_or_default() {
            let path = [above, &[property.name.to_string()]].concat();
            let is_required = is_needed && required.iter().any(|name| *name == property.name);
            let (kind, choices) = kind_of(property.value);
            if above.is_empty() && kind == FieldKind::Json && has_properties(property.value) {
                self.add(property.value, &path, is_required);
                continue;
            }
            if self.fields.len() == FIELDS_MAX {
                self.has_more = true;
                return;
            }
            let name = name_of(&path).unwrap_or_else(|| format!("#{}", self.fields.len()));
            let description = member(property.value, "description").and_then(text).unwrap_or_default();
            self.fields.push(ArgumentField {
                name: format!("arg.{name}"),
                path,
                kind,
                description: short(&description, DESCRIPTION_CHARS_MAX),
                is_required,
                choices,
                value: String::new(),
                example: if kind == FieldKind::Json { example_of(property.value) } else { String::new() },
                fault: None,
            });
        }
    }

    /// Fills the form in.
    pub(super) fn fill(&mut self, value_of: impl Fn(&str) -> String) {
        for field in &mut self.fields {
            field.value = value_of(&field.name);
            field.fault = None;
            for choice in &mut field.choices {
                choice.is_chosen = choice.raw == field.value.trim();
            }
        }
    }

    /// Marks the needed fields that are empty. Returns their names.
    pub(super) fn mark_missing(&mut self) -> Vec<String> {
        let is_missing = |field: &&mut ArgumentField| field.is_required && matches!(field.raw(), Ok(None));
        let missing = self.fields.iter_mut().filter(is_missing);
        missing
            .map(|field| {
                field.fault = Some("is needed".to_owned());
                field.label()
            })
            .collect()
    }

    /// Returns the arguments of the filled-in form, a JSON object. Empty fields are left out. Fields that cannot be read are marked.
    ///
    /// # Errors
    /// Text with each field that cannot be read, and what it takes.
    pub(super) fn arguments(&mut self) -> Result<String, String> {
        for field in &mut self.fields {
            field.fault = field.raw().err();
        }
        let fault = |field: &ArgumentField| Some(format!("{}: {}", field.label(), field.fault.as_ref()?));
        let faults: Vec<String> = self.fields.iter().filter_map(fault).collect();
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        // fields of one object stand together
        let mut members: Vec<(&str, Vec<String>, bool)> = Vec::new();
        for field in &self.fields {
            let Ok(Some(raw)) = field.raw() else { continue };
            let (Some(first), Some(last)) = (field.path.first(), field.path.last()) else { continue };
            let is_nested = field.path.len() > 1;
            let value = if is_nested { member_text(last, &raw) } else { raw };
            match members.last_mut() {
                Some((name, values, true)) if is_nested && *name == first => values.push(value),
                _ => members.push((first, vec![value], is_nested)),
            }
        }
        let member = |(name, values, is_nested): &(&str, Vec<String>, bool)| {
            let values = values.join(",");
            member_text(name, &if *is_nested { format!("{{{values}}}") } else { values })
        };
        Ok(format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(",")))
    }
}

fn member_text(name: &str, raw: &str) -> String {
    let mut out = String::new();
    json::escape_into(&mut out, name);
    out.push(':');
    out.push_str(raw);
    out
}

/// Returns the name of a field, such as `a.b`; `None` for names that forms may change, or that could be taken for others.
fn name_of(path: &[String]) -> Option<String> {
    let is_plain = |name: &String| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    path.iter().all(is_plain).then(|| path.join("."))
}

fn member<'a>(schema: &'a str, name: &str) -> Option<&'a str> {
    json::find_members(schema, [name]).ok().and_then(|[value]| value)
}

fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

fn has_properties(schema: &str) -> bool {
    let properties = member(schema, "properties").and_then(|raw| json::top_level_members(raw).ok());
    type_of(schema).as_deref() == Some("object")
        && properties.is_some_and(|properties| !properties.is_empty())
}

/// Returns the type that a schema names, beside `null`; `None` for none and for several.
fn type_of(schema: &str) -> Option<String> {
    match serde_json::from_str(member(schema, "type")?).ok()? {
        Value::String(one) => Some(one),
        Value::Array(all) => {
            let mut names = all.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            let first = names.next()?.to_owned();
            names.next().is_none().then_some(first)
        }
        _ => None,
    }
}

/// Returns an example of a value of a schema that has no plain field: as deep as it stays short.
fn example_of(schema: &str) -> String {
    let mut examples = (1..=EXAMPLE_DEPTH_MAX).rev().filter_map(|depth| example_within(schema, depth));
    let short = examples.find(|example| example.len() <= EXAMPLE_BYTES_MAX);
    short.unwrap_or_else(|| {
        let plain = match type_of(schema).as_deref() {
            Some("array") => EXAMPLE_OF_LIST,
            Some("object") => EXAMPLE_OF_OBJECT,
            _ => r#""a text", 7 or ["one", "two"]"#,
        };
        plain.to_owned()
    })
}

/// Returns an example with objects and lists up to a depth; `None` for a schema that says no type.
fn example_within(schema: &str, depth: usize) -> Option<String> {
    if let Some(first) = choices_of(schema).and_then(|choices| choices.into_iter().next()) {
        return Some(first.raw);
    }
    let example = match type_of(schema).as_deref()? {
        "string" => r#""text""#.to_owned(),
        "number" | "integer" => "1".to_owned(),
        "boolean" => "true".to_owned(),
        "array" if depth == 0 => "[]".to_owned(),
        "array" => match member(schema, "items") {
            Some(items) if type_of(items).as_deref() != Some("string") || choices_of(items).is_some() => {
                example_within(items, depth - 1)
                    .map_or_else(|| EXAMPLE_OF_LIST.to_owned(), |item| format!("[{item}]"))
            }
            _ => EXAMPLE_OF_LIST.to_owned(),
        },
        "object" if depth == 0 => "{}".to_owned(),
        "object" => example_object(schema, depth),
        _ => return None,
    };
    Some(example)
}

/// Returns an example of an object: with the properties that it needs, else with its first ones.
fn example_object(schema: &str, depth: usize) -> String {
    let [properties, required] = json::find_members(schema, ["properties", "required"]).unwrap_or_default();
    let required: HashSet<String> =
        required.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let all = json::top_level_members(properties.unwrap_or("{}")).unwrap_or_default();
    let is_needed = |name: &str| required.is_empty() || required.contains(name);
    let members: Vec<String> = all
        .iter()
        .take(FIELDS_MAX)
        .filter(|property| is_needed(&property.name))
        .filter_map(|property| Some((&property.name, example_within(property.value, depth - 1)?)))
        .take(EXAMPLE_MEMBERS_MAX)
        .map(|(name, value)| {
            let mut out = String::new();
            json::escape_into(&mut out, name);
            format!("{out}: {value}")
        })
        .collect();
    if members.is_empty() { EXAMPLE_OF_OBJECT.to_owned() } else { format!("{{{}}}", members.join(", ")) }
}

/// Returns the kind of field for a property's schema, with its choices.
fn kind_of(schema: &str) -> (FieldKind, Vec<ArgumentChoice>) {
    if let Some(choices) = choices_of(schema) {
        return (FieldKind::Choice, choices);
    }
    match type_of(schema).as_deref() {
        Some("string") => (FieldKind::Text, Vec::new()),
        Some("number" | "integer") => (FieldKind::Number, Vec::new()),
        Some("boolean") => (FieldKind::Choice, vec![choice("true"), choice("false")]),
        _ => (FieldKind::Json, Vec::new()),
    }
}

fn choice(raw: &str) -> ArgumentChoice {
    ArgumentChoice { raw: raw.to_owned(), is_chosen: false }
}

/// Returns the values that a schema allows; `None` if it names none, too many, or others than short plain ones.
fn choices_of(schema: &str) -> Option<Vec<ArgumentChoice>> {
    let [allowed, only] = json::find_members(schema, ["enum", "const"]).ok()?;
    let raws: Vec<&str> = match (allowed, only) {
        (Some(allowed), _) => json::elements(allowed)?.take(CHOICES_MAX + 1).collect(),
        (None, Some(only)) => vec![only],
        (None, None) => return None,
    };
    let is_plain = |raw: &&str| !raw.starts_with(['{', '[']) && raw.len() <= CHOICE_BYTES_MAX;
    let fits = !raws.is_empty() && raws.len() <= CHOICES_MAX && raws.iter().all(is_plain);
    fits.then(|| raws.into_iter().map(choice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","required":["text","at"],"properties":{
        "text":{"type":"string","description":"Words"}, "n":{"type":"integer"}, "x":{"type":["number","null"]},
        "on":{"type":"boolean"}, "level":{"enum":["low","high",1e400,null]}, "list":{"type":"array"},
        "at":{"type":"object","required":["city"],"properties":{"city":{"type":"string"},
            "deep":{"type":"object","properties":{"a":{}}}}},
        "a.b":{"type":"string"}, "odd name":{"type":"string"}, "free":{}}}"#;

    fn filled(values: &[(&str, &str)]) -> Result<String, String> {
        let mut form = ArgumentForm::of(SCHEMA);
        form.fill(|name| {
            let found = values.iter().find(|(known, _)| format!("arg.{known}") == name);
            found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
        });
        form.arguments()
    }

    #[test]
    fn fields_are_those_of_the_schema() {
        let form = ArgumentForm::of(SCHEMA);
        let shown: Vec<_> = form
            .fields
            .iter()
            .map(|field| (field.name.as_str(), field.label(), field.kind, field.is_required))
            .collect();
        let expected = [
            ("arg.text", "text", FieldKind::Text, true),
            ("arg.n", "n", FieldKind::Number, false),
            ("arg.x", "x", FieldKind::Number, false),
            ("arg.on", "on", FieldKind::Choice, false),
            ("arg.level", "level", FieldKind::Choice, false),
            ("arg.list", "list", FieldKind::Json, false),
            ("arg.at.city", "at.city", FieldKind::Text, true),
            ("arg.at.deep", "at.deep", FieldKind::Json, false),
            ("arg.#8", "a.b", FieldKind::Text, false),
            ("arg.#9", "odd name", FieldKind::Text, false),
            ("arg.free", "free", FieldKind::Json, false),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(name, label, kind, needed)| (name, label.to_owned(), kind, needed))
            .collect();
        assert_eq!(shown, expected);
        assert_eq!(form.fields.first().map(|field| field.description.as_str()), Some("Words"));
        assert!(!form.has_more);
    }

    #[test]
    fn a_filled_form_stands_for_arguments_as_they_are_spelt() {
        assert_eq!(filled(&[]).as_deref(), Ok("{}"));
        let all = filled(&[
            ("text", "a\r\n\"b\""),
            ("n", " -1e400 "),
            ("on", "false"),
            ("level", "1e400"),
            ("list", "[1, 2]"),
            ("at.city", "Rome"),
            ("at.deep", "{\"a\":1}"),
            ("#8", "dotted"),
            ("free", "null"),
        ]);
        assert_eq!(
            all.as_deref(),
            Ok(
                r#"{"text":"a\n\"b\"","n":-1e400,"on":false,"level":1e400,"list":[1, 2],"at":{"city":"Rome","deep":{"a":1}},"a.b":"dotted","free":null}"#
            )
        );
        for (name, value, says) in [
            ("n", "one", "n: must be a number"),
            ("n", "[1]", "n: must be a number"),
            ("on", "maybe", "on: must be one of its choices"),
            ("list", "[1", "list: must be JSON, such as [\"one\", \"two\"]: invalid JSON"),
            ("list", "{\"a\":1,\"a\":2}", "list: must be JSON, such as [\"one\", \"two\"]: duplicate member"),
        ] {
            let fault = filled(&[(name, value)]).unwrap_err();
            assert!(fault.starts_with(says), "{fault}");
        }
        let both = filled(&[("n", "one"), ("on", "maybe")]).unwrap_err();
        assert_eq!(both, "n: must be a number; on: must be one of its choices");
    }

    #[test]
    fn examples_are_those_of_the_schema() {
        let edits = r#"{"type":"array","items":{"type":"object","required":["old","new"],"properties":{
            "old":{"type":"string"},"note":{"type":"string"},"new":{"type":["string","null"]}}}}"#;
        let deep = r#"{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"array",
            "items":{"type":"object","properties":{"c":{"type":"integer"}}}}}},"on":{"type":"boolean"}}}"#;
        let long = format!(
            r#"{{"type":"array","items":{{"type":"object","properties":{{"{}":{{"type":"string"}}}}}}}}"#,
            "x".repeat(300)
        );
        for (schema, example) in [
            (edits, r#"[{"old": "text", "new": "text"}]"#),
            (deep, r#"{"a": {"b": [{}]}, "on": true}"#),
            (long.as_str(), "[{}]"),
            (r#"{"type":"array","items":{"type":"string"}}"#, EXAMPLE_OF_LIST),
            (r#"{"type":"array","items":{"enum":["low","high"]}}"#, r#"["low"]"#),
            (r#"{"type":"array","items":{"type":"number"}}"#, "[1]"),
            (r#"{"type":"array","items":{}}"#, EXAMPLE_OF_LIST),
            (r#"{"type":"object","properties":{"a\"b":{"type":"string"}}}"#, r#"{"a\"b": "text"}"#),
            (r#"{"type":"object","properties":{"free":{}}}"#, EXAMPLE_OF_OBJECT),
        ] {
            let found = example_of(schema);
            assert_eq!(found, example, "{schema}");
            assert!(json::check(&found).is_ok(), "{found}");
        }
    }

    #[test]
    fn every_needed_field_that_is_empty_is_named() {
        let mut form = ArgumentForm::of(SCHEMA);
        form.fill(|_| String::new());
        assert_eq!(form.mark_missing(), ["text", "at.city"]);
        form.fill(|name| if name == "arg.text" { "a".to_owned() } else { String::new() });
        assert_eq!(form.mark_missing(), ["at.city"]);
    }

    #[test]
    fn strange_schemas_have_forms_too() {
        for schema in ["{}", "[]", "true", r#"{"properties":7}"#, r#"{"properties":{"a":true},"required":7}"#]
        {
            let form = ArgumentForm::of(schema);
            assert!(form.fields.iter().all(ArgumentField::is_json) && !form.has_more, "{schema}: {form:?}");
        }
        let many: String = (0..100).map(|n| format!("\"p{n}\":{{}},")).collect();
        let form = ArgumentForm::of(&format!("{{\"properties\":{{{}}}}}", many.trim_end_matches(',')));
        assert_eq!((form.fields.len(), form.has_more), (FIELDS_MAX, true));
    }
}
