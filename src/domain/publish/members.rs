//! Type checks of a definition's members, on their raw JSON.

use crate::domain::json;

pub(super) fn is_string(raw: &str) -> bool {
    raw.starts_with('"')
}

pub(super) fn is_object(raw: &str) -> bool {
    raw.starts_with('{')
}

pub(super) fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

pub(super) fn all_elements(raw: &str, is_good: impl Fn(&str) -> bool) -> bool {
    json::elements(raw).is_some_and(|mut elements| elements.all(is_good))
}
