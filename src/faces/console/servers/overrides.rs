//! Override of a tool's annotations: the form, and what it asks for.

use serde_json::{Map, Value};

use super::change::version;
use super::fields::text;
use crate::domain::overrides::{Hints, TITLE_CHARS_MAX};
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{GatewayError, OverrideRequest, ToolView};

/// Words of a hint in the form, with their meanings.
const WORDS: [(&str, &str); 3] = [("", "as the server says"), ("true", "true"), ("false", "false")];

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
    pub(super) label: &'static str,
    /// True if the override has it.
    pub(super) is_chosen: bool,
}

/// Form of an override.
pub(super) struct OverrideForm {
    /// Hints to choose.
    pub(super) hints: Vec<HintField>,
    /// Title in place of the server's; empty for none.
    pub(super) title: String,
    /// Version of the present override, 0 for none.
    pub(super) version: i64,
    /// True if the override says both that the tool only reads and that it may destroy something.
    pub(super) is_contradictory: bool,
}

impl OverrideForm {
    /// Creates the form for a tool, filled in with the present override.
    pub(super) fn of(tool: &ToolView) -> OverrideForm {
        let said =
            tool.overridden.as_ref().map(|overridden| overridden.said.hints.clone()).unwrap_or_default();
        let hint = |name, label, value: Option<bool>| {
            let chosen = value.map(|value| value.to_string()).unwrap_or_default();
            let option = |(word, label): (&'static str, &'static str)| HintOption {
                word,
                label,
                is_chosen: word == chosen,
            };
            HintField { name, label, options: WORDS.map(option).into() }
        };
        let [read_only, destructive, idempotent, open_world, _] = Hints::NAMES;
        OverrideForm {
            is_contradictory: said.read_only_hint == Some(true) && said.destructive_hint == Some(true),
            hints: vec![
                hint(read_only, "Only reads", said.read_only_hint),
                hint(destructive, "May destroy something", said.destructive_hint),
                hint(idempotent, "A repeated call changes nothing more", said.idempotent_hint),
                hint(open_world, "Reaches systems outside its server", said.open_world_hint),
            ],
            title: said.title.unwrap_or_default(),
            version: tool.overridden.as_ref().map_or(0, |overridden| overridden.version),
        }
    }
}

/// Returns a fault of the form with the names that its fields have for people.
pub(super) fn in_words_of_form(error: GatewayError) -> GatewayError {
    let GatewayError::Invalid { field: Some(field), .. } = &error else { return error };
    let message = match field.as_str() {
        "annotations.title" => {
            format!("\"Title, for people\" must be no longer than {TITLE_CHARS_MAX} characters.")
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
