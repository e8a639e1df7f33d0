//! Comparison of the tenants file with the state of the gateway.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Returns a field of a JSON object; `null` if absent.
pub(super) fn at<'a>(thing: &'a Value, name: &str) -> &'a Value {
    thing.get(name).unwrap_or(&Value::Null)
}

/// Changes of one thing: the fields to send, and the lines that show them.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) lines: Vec<String>,
    pub(super) body: Map<String, Value>,
}

impl Changes {
    /// Adds a field that changes.
    pub(super) fn add(&mut self, name: &str, from: &Value, to: &Value) {
        self.lines.push(format!("{name}: {} → {}", shown(from), shown(to)));
        self.body.insert(name.to_owned(), to.clone());
    }

    /// Adds a field if the file sets it to another value than `is`.
    pub(super) fn compare(&mut self, name: &str, is: &Value, wanted: Option<Value>) {
        if let Some(wanted) = wanted.filter(|wanted| wanted != is) {
            self.add(name, is, &wanted);
        }
    }

    /// Returns whether nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Compares wanted values with the values that the gateway shows as `{value, origin}`.
///
/// `own` is the origin of values set on the thing itself. `moving` names values that this run changes on the outer level: an
/// inherited value of that name will differ from the one shown.
pub(super) fn own_values(
    wanted: &Map<String, Value>,
    shown: &Value,
    own: &str,
    moving: &HashSet<String>,
) -> Changes {
    let mut changes = Changes::default();
    for (name, wanted) in wanted {
        let shown = at(shown, name);
        let (value, origin) = (at(shown, "value"), at(shown, "origin").as_str());
        let is_same = match (origin == Some(own), wanted.is_null()) {
            (true, _) => value == wanted,
            (false, true) => true,
            // a tighter inherited value hides the own one: it applies whether or not the own one is set
            (false, false) => !moving.contains(name) && value != wanted && is_tighter(name, value, wanted),
        };
        if !is_same {
            let inherited = origin != Some(own);
            changes.add(name, if inherited { &Value::Null } else { value }, wanted);
        }
    }
    changes
}

/// Returns whether a value is tighter than another one; `false` for settings whose tightest value does not win.
fn is_tighter(name: &str, here: &Value, there: &Value) -> bool {
    let rank = |value: &Value| match value.as_str() {
        Some("read") => Some(0),
        Some("write") => Some(1),
        Some("destructive") => Some(2),
        _ => value.as_u64(),
    };
    let combines = matches!(name, "max_operation" | "rate_limit" | "activity_retention_days");
    combines && matches!((rank(here), rank(there)), (Some(here), Some(there)) if here < there)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_own_values_are_compared() {
        let shown = json!({"max_operation": {"value": "read", "origin": "deployment"},
            "rate_limit": {"value": 5, "origin": "tenant"}, "tool_names": {"value": "safe", "origin": "deployment"}});
        for (wanted, changed) in [
            (json!({"max_operation": "write"}), false),
            (json!({"max_operation": "read"}), true),
            (json!({"max_operation": null}), false),
            (json!({"rate_limit": 5}), false),
            (json!({"rate_limit": 6}), true),
            (json!({"rate_limit": null}), true),
            (json!({"tool_names": "safe"}), true),
            (json!({"tool_names": "colon"}), true),
        ] {
            let changes = own_values(wanted.as_object().unwrap(), &shown, "tenant", &HashSet::new());
            assert_eq!(!changes.is_empty(), changed, "{wanted}");
        }
        // the value that hides it goes away: whether an own value is set cannot be seen
        let wanted = json!({"max_operation": "write"});
        let moving = HashSet::from(["max_operation".to_owned()]);
        assert!(!own_values(wanted.as_object().unwrap(), &shown, "tenant", &moving).is_empty());
    }
}
