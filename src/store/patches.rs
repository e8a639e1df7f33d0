//! Patches of documents in a column: what is not named stays as it is stored, whichever release wrote it.

use serde_json::{Map, Value};
use sqlx::types::Json;

/// A patch for `(column || set) - unset`: what it sets, and the names that it takes away.
pub(super) fn split(patch: &Map<String, Value>) -> (Json<Map<String, Value>>, Vec<&str>) {
    let set = patch.iter().filter(|(_, value)| !value.is_null());
    let unset = patch.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.as_str());
    (Json(set.map(|(name, value)| (name.clone(), value.clone())).collect()), unset.collect())
}
