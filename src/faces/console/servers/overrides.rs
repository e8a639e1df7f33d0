//! Override of a tool's annotations: the form, and what it asks for.

use serde_json::{Map, Value};

use super::change::version;
use super::faults::FormNotice;
use super::fields::text;
use crate::domain::json;
use crate::domain::overrides::{Hints, TITLE_CHARS_MAX};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::was::{FormValues, differing};
use crate::gateway::{GatewayError, OverrideRequest, ToolView};

/// Words of a hint in the form; the empty one leaves what the server says.
const WORDS: [&str; 3] = ["", "true", "false"];

/// Words that the title has for people.
pub(super) const TITLE: &str = "Title, for people";
/// Words that the annotations have for people, in the order of [`Hints::NAMES`].
const LABELS: [&str; 5] = [
    "Only reads",
    "May destroy something",
    "A repeated call changes nothing more",
    "Reaches systems outside its server",
    TITLE,
];
/// Name of the definition among the values of the form.
const DEFINITION: &str = "definition";

/// Hint in the form.
pub(super) struct HintField {
    /// Name of the annotation.
    pub(super) name: &'static str,
    /// Question that the hint answers.
    pub(super) label: &'static str,
    /// Words to choose from.
    pub(super) options: Vec<HintOption>,
}

/// Word of a hint.
pub(super) struct HintOption {
    /// Value of the field.
    pub(super) word: &'static str,
    /// Meaning of the word.
    pub(super) label: String,
    /// True if the override has it.
    pub(super) is_chosen: bool,
}

/// Form of an override.
pub(super) struct OverrideForm {
    /// Hints to choose.
    pub(super) hints: Vec<HintField>,
    /// Title in place of the server's; empty for none.
    pub(super) title: String,
    /// Pin of the definition that the form is for.
    pub(super) pin: String,
    /// Version of the override that the form is made from, 0 for none.
    pub(super) version: i64,
    /// Values that the form is made from, as JSON: a conflict says by them what was changed.
    pub(super) was: String,
    /// True if the form says both that the tool only reads and that it may destroy something.
    pub(super) is_contradictory: bool,
    /// Fault of the form that was sent; `None` without one.
    pub(super) again: Option<FormNotice>,
}

impl OverrideForm {
    /// Creates the form for a tool, filled in with the present override, or with what was typed, after a fault.
    pub(super) fn of(visit: &PageVisit, tool: &ToolView, fault: Option<&GatewayError>) -> OverrideForm {
        let values = FormValues::of(visit, values_of(tool), fault);
        let hint = |(name, label)| {
            let chosen = values.field(name);
            let option = |word: &'static str| HintOption {
                word,
                label: if word.is_empty() { said(&tool.definition, name) } else { word.to_owned() },
                is_chosen: word == chosen,
            };
            HintField { name, label, options: WORDS.map(option).into() }
        };
        let [read_only, destructive, .., title] = Hints::NAMES;
        let now = tool.overridden.as_ref().map_or(0, |overridden| overridden.version);
        OverrideForm {
            hints: Hints::NAMES
                .into_iter()
                .zip(LABELS)
                .filter(|(name, _)| *name != title)
                .map(hint)
                .collect(),
            title: values.field(title),
            pin: if values.version.is_some() { visit.field("pin") } else { &tool.pin }.to_owned(),
            version: values.version.unwrap_or(now),
            is_contradictory: [read_only, destructive].iter().all(|name| values.field(name) == "true"),
            again: fault.map(|error| match values.is_late {
                true => FormNotice::late(visit, "The tool", changed(&values)),
                false => FormNotice::of(visit, error),
            }),
            was: Value::Object(values.made_from().clone()).to_string(),
        }
    }
}

/// Returns the words for an annotation as the server gives it.
fn said(definition: &str, name: &str) -> String {
    let annotations = json::find_members(definition, ["annotations"]).ok().and_then(|[raw]| raw);
    let value = annotations.and_then(|raw| json::find_members(raw, [name]).ok()).and_then(|[raw]| raw);
    match value.filter(|raw| ["true", "false"].contains(raw)) {
        Some(value) => format!("as the server says: {value}"),
        None => "as the server says: nothing".to_owned(),
    }
}

/// Returns the values that the form of a tool is made from: the override's, and the definition that it is for.
fn values_of(tool: &ToolView) -> Map<String, Value> {
    let hints =
        tool.overridden.as_ref().and_then(|overridden| serde_json::to_value(&overridden.said.hints).ok());
    let mut values = hints.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    values.insert(DEFINITION.to_owned(), Value::from(tool.pin.as_str()));
    values
}

/// Returns what was changed, in the words of the form.
fn changed(values: &FormValues<'_>) -> Vec<String> {
    let definition = (DEFINITION, "the definition, which is above as it is now");
    let fields = Hints::NAMES.into_iter().zip(LABELS).chain([definition]);
    let changed = fields.filter(|(name, _)| !differing([*name], &values.before, &values.now).is_empty());
    changed.map(|(_, label)| label.to_owned()).collect()
}

/// Returns a fault of the form with the names that its fields have for people.
pub(super) fn in_words_of_form(error: GatewayError) -> GatewayError {
    let GatewayError::Invalid { field: Some(field), .. } = &error else { return error };
    let message = match field.as_str() {
        "annotations.title" => {
            format!("\"{TITLE}\" must be no longer than {TITLE_CHARS_MAX} characters.")
        }
        "annotations" => "The override says nothing: choose a value, or give a title.".to_owned(),
        _ => return error,
    };
    GatewayError::invalid(field.clone(), message)
}

/// Fields of the form, as far as they can be read.
pub(super) struct AskedOverride {
    hints: Hints,
    pin: String,
    version: Result<i64, GatewayError>,
}

/// Reads the form.
pub(super) fn asked(visit: &PageVisit) -> AskedOverride {
    let flag = |name: &str| match visit.field(name) {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    let [read_only, destructive, idempotent, open_world, title] = Hints::NAMES;
    let hints = Hints {
        read_only_hint: flag(read_only),
        destructive_hint: flag(destructive),
        idempotent_hint: flag(idempotent),
        open_world_hint: flag(open_world),
        title: text(visit, title),
    };
    AskedOverride { hints, pin: visit.field("pin").to_owned(), version: version(visit) }
}

impl AskedOverride {
    /// Returns the body that REST would be sent.
    pub(super) fn body(&self) -> Map<String, Value> {
        let members = [
            ("annotations", serde_json::to_value(&self.hints).ok()),
            ("pin", Some(Value::from(self.pin.as_str()))),
            ("version", self.version.as_ref().ok().copied().map(Value::from)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Returns the request.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] for a form without a version.
    pub(super) fn request(self) -> Result<OverrideRequest, GatewayError> {
        Ok(OverrideRequest { pin: self.pin, hints: self.hints, version: Some(self.version?) })
    }
}
