//! Bodies for snapshots.

use serde_json::Value;

/// The body with the type in the place of each value of these fields, at any depth. Null stays: it says that there is none.
pub fn masked(body: &Value, fields: &[&str]) -> Value {
    let mask = |(name, value): (&String, &Value)| {
        let shown = match value {
            Value::String(_) if fields.contains(&&**name) => Value::from("[text]"),
            Value::Number(_) if fields.contains(&&**name) => Value::from("[number]"),
            other => masked(other, fields),
        };
        (name.clone(), shown)
    };
    match body {
        Value::Object(members) => members.iter().map(mask).collect(),
        Value::Array(items) => items.iter().map(|item| masked(item, fields)).collect(),
        other => other.clone(),
    }
}
