//! Section of `mcpproxy activity show` about the permission request of a record.

use serde_json::Value;

use super::super::client::{ApiClient, ApiQuery};
use super::super::output::text;
use super::super::show;

/// Fields of a permission request that are shown: what became of it, by whom, how and when.
const FIELDS: [&str; 5] = ["state", "decided_by", "decided_via", "decided_at", "comment"];

/// Returns the section about the permission request of a record; empty if there is none, or the key may not see it.
pub(super) async fn of(client: &ApiClient, record: &Value) -> String {
    let id = text(record, "consent_id");
    if id.is_empty() {
        return String::new();
    }
    let asked = client.get(&["consent", &id], &ApiQuery::default()).await;
    match asked.and_then(|answer| answer.json()) {
        Ok(request) => section(&request),
        Err(_) => String::new(),
    }
}

fn section(request: &Value) -> String {
    let there = |name: &&str| !request[*name].is_null();
    let line = |name: &str| format!("  {}", show::field(name, &request[name], "decided_via".len()));
    let lines: String = FIELDS.into_iter().filter(there).map(line).collect();
    format!("\nPermission\n{lines}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_decided_has_a_state_alone() {
        let pending =
            json!({"state": "pending", "decided_by": null, "decided_via": null, "decided_at": null});
        assert_eq!(section(&pending), "\nPermission\n  state:        pending\n");
        let granted = json!({"state": "granted", "decided_by": "eva", "decided_via": "cli", "decided_at": "T",
            "comment": null});
        let shown = "\nPermission\n  state:        granted\n  decided_by:   eva\n  decided_via:  cli\n  decided_at:   T\n";
        assert_eq!(section(&granted), shown);
    }
}
