//! Patches of JSON documents in a column: members that a patch does not name stay as stored, whichever release wrote
//! them.

use serde_json::{Map, Value};
use sqlx::types::Json;

/// Splits a patch for `(column || set) - unset` into the members to set, and the names of those to remove (`null`).
pub(super) fn split(patch: &Map<String, Value>) -> (Json<Map<String, Value>>, Vec<&str>) {
    let set = patch.iter().filter(|(_, value)| !value.is_null());
    let unset = patch.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.as_str());
    (Json(set.map(|(name, value)| (name.clone(), value.clone())).collect()), unset.collect())
}
