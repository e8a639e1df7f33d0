//! Values that a form was made from: by them it is told what its sender changes, and what somebody else changed meanwhile.

use serde_json::{Map, Value};

use super::page_visit::PageVisit;
use crate::gateway::GatewayError;

/// Values of a form that is shown for the first time, or again after a fault. After a conflict the form is made from the values of now, but for
/// what its sender changed; after another fault from those of before, so that whoever changes them meanwhile is noticed.
pub(super) struct FormValues<'a> {
    visit: &'a PageVisit,
    is_again: bool,
    /// Values that the form was made from that was sent; none at the first.
    pub(super) before: Map<String, Value>,
    /// Values of now.
    pub(super) now: Map<String, Value>,
    /// True after a conflict.
    pub(super) is_late: bool,
    /// Version that the form was made from that was sent; `None` where the form is made from the values of now.
    pub(super) version: Option<i64>,
}

impl FormValues<'_> {
    /// Creates the values of a form, which is shown again after `fault`.
    pub(super) fn of<'a>(
        visit: &'a PageVisit,
        now: Map<String, Value>,
        fault: Option<&GatewayError>,
    ) -> FormValues<'a> {
        let is_late = matches!(fault, Some(GatewayError::Conflict(_)));
        let version = visit.field("version").parse().ok().filter(|_| fault.is_some() && !is_late);
        FormValues { visit, is_again: fault.is_some(), before: was(visit), now, is_late, version }
    }

    /// Returns the values that the form is made from.
    pub(super) fn made_from(&self) -> &Map<String, Value> {
        if self.version.is_some() { &self.before } else { &self.now }
    }

    /// Returns the content of a field: what was typed, or the value of now.
    pub(super) fn field(&self, name: &str) -> String {
        let typed = Some(self.visit.field(name).trim()).filter(|_| self.is_again);
        // somebody else's change stays where the sender typed nothing else
        let typed = typed.filter(|typed| !self.is_late || *typed != word(&self.before, name));
        typed.map_or_else(|| word(&self.now, name), str::to_owned)
    }
}

/// Returns a value as a form has it; empty for none.
pub(super) fn word(values: &Map<String, Value>, name: &str) -> String {
    let value = values.get(name);
    value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default()
}

/// Reads the values in the form's field `was`; none for a form without one.
pub(super) fn was(visit: &PageVisit) -> Map<String, Value> {
    serde_json::from_str(visit.field("was")).unwrap_or_default()
}

/// Returns the names whose values differ.
pub(super) fn differing<'a>(
    names: impl IntoIterator<Item = &'a str>,
    was: &Map<String, Value>,
    now: &Map<String, Value>,
) -> Vec<String> {
    names.into_iter().filter(|name| was.get(*name) != now.get(*name)).map(str::to_owned).collect()
}
