//! Values that a form was made from: by them it is told what its sender changes, and what somebody else changed meanwhile.

use serde_json::{Map, Value};

use super::page_visit::PageVisit;

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
