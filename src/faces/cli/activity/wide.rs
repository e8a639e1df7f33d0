//! Columns of `--wide`, for `mcpproxy activity list` and `watch`.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::client::{ApiClient, ApiQuery};
use super::super::output::{self, Column, text};
use crate::domain::brief;

/// Most characters of the arguments that are shown.
const ARGUMENTS_CHARS_MAX: usize = 80;
/// Most permission requests whose answers are kept.
const ANSWERS_MAX: usize = 1000;
/// Member that is added to records: who or what allowed the call.
const ALLOWED_BY: &str = "allowed_by";

pub(super) const COLUMNS: [Column; 11] = [
    ("CODE", |record| text(record, "error_code")),
    ("TYPE", |record| text(record, "type")),
    ("TIER", |record| text(record, "tier")),
    ("OWNER", |record| text(record, "owner")),
    ("KEY", |record| text(record, "key_name")),
    ("KEY ID", |record| text(record, "key_id")),
    ("SOURCE", |record| text(record, "source")),
    ("CLIENT", client),
    ("ADDRESS", |record| text(record, "client_address")),
    ("ALLOWED BY", |record| text(record, ALLOWED_BY)),
    ("ARGUMENTS", arguments),
];

/// Returns name and version of the client program, as it gave them.
fn client(record: &Value) -> String {
    let client = record.get("client").unwrap_or(&Value::Null);
    let (name, version) = (text(client, "name"), text(client, "version"));
    format!("{name} {version}").trim().to_owned()
}

/// Returns the arguments as the record has them, where secrets are masked, cut to one short line.
fn arguments(record: &Value) -> String {
    brief::short(&output::one_line(&text(record, "arguments")), ARGUMENTS_CHARS_MAX).into_owned()
}

/// Answers of persons to permission requests, by the id of the request.
#[derive(Default)]
pub(super) struct Answers(HashMap<String, String>);

impl Answers {
    /// Adds to each record who or what allowed the call.
    pub(super) async fn added_to(
        &mut self,
        client: &ApiClient,
        records: Vec<Box<RawValue>>,
    ) -> Vec<Box<RawValue>> {
        let mut shown = Vec::with_capacity(records.len());
        for raw in records {
            let mut record = output::parsed(&raw);
            self.add_to(client, &mut record).await;
            shown.push(to_raw_value(&record).unwrap_or(raw));
        }
        shown
    }

    /// Adds to the record of a call that ran who or what allowed it: a rule, the policy's mode, or a person.
    pub(super) async fn add_to(&mut self, client: &ApiClient, record: &mut Value) {
        let request = request_of(record);
        let allowed = match &*request {
            "" if has_run(record) => by_policy(record),
            "" => String::new(),
            _ => match self.person(client, &request).await {
                unknown if unknown.is_empty() => format!("request {request}"),
                person => person,
            },
        };
        if let Some(members) = record.as_object_mut() {
            members.insert(ALLOWED_BY.to_owned(), allowed.into());
        }
    }

    /// Returns who answered a request; empty if that cannot be found out.
    async fn person(&mut self, client: &ApiClient, request: &str) -> String {
        if let Some(known) = self.0.get(request) {
            return known.clone();
        }
        let asked = client.get(&["consent", request], &ApiQuery::default()).await;
        let person = person(&asked.and_then(|answer| answer.json()).unwrap_or_default());
        if self.0.len() >= ANSWERS_MAX {
            self.0.clear();
        }
        self.0.insert(request.to_owned(), person.clone());
        person
    }
}

fn has_run(record: &Value) -> bool {
    !matches!(&*text(record, "status"), "blocked" | "rejected" | "waiting")
}

/// Returns the id of the permission request of a call that ran; empty without one.
fn request_of(record: &Value) -> String {
    match has_run(record) && text(record, "type") != "consent" {
        true => text(record, "consent_id"),
        false => String::new(),
    }
}

/// Returns who decided a permission request, and how; empty if nobody did.
fn person(request: &Value) -> String {
    match (text(request, "decided_by"), text(request, "decided_via")) {
        (owner, _) if owner.is_empty() => String::new(),
        (owner, via) => format!("{owner} ({via})"),
    }
}

/// Returns what of the policy allowed a call.
fn by_policy(record: &Value) -> String {
    match (&*text(record, "decision"), text(record, "rule")) {
        ("allowed", rule) if rule.is_empty() => "policy".to_owned(),
        ("allowed", rule) => format!("rule {rule}"),
        ("delegated", _) => "its client".to_owned(),
        ("would_ask" | "would_deny", _) => "mode observe".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_one_short_line() {
        assert_eq!(arguments(&json!({"arguments": "{\"a\":\n1}"})), "{\"a\":\\n1}");
        assert_eq!(arguments(&json!({"arguments": null})), "");
        let long = arguments(&json!({"arguments": "é".repeat(200)}));
        assert_eq!(long, format!("{}…", "é".repeat(80)));
    }

    #[test]
    fn what_allowed_a_call() {
        for (record, by) in [
            (json!({"decision": "allowed", "rule": null}), "policy"),
            (json!({"decision": "allowed", "rule": "reads"}), "rule reads"),
            (json!({"decision": "delegated", "rule": "writes"}), "its client"),
            (json!({"decision": "would_deny", "rule": "writes"}), "mode observe"),
            (json!({"decision": "denied", "rule": "writes"}), ""),
            (json!({"decision": null, "rule": null}), ""),
        ] {
            assert_eq!(by_policy(&record), by, "{record}");
        }
        let ran = json!({"type": "tool_call", "status": "success", "consent_id": "c"});
        assert_eq!(request_of(&ran), "c");
        for (member, value) in [("status", "blocked"), ("status", "rejected"), ("type", "consent")] {
            let mut not = ran.clone();
            not[member] = value.into();
            assert_eq!(request_of(&not), "", "{not}");
        }
        assert_eq!(person(&json!({"decided_by": "eva", "decided_via": "cli"})), "eva (cli)");
        assert_eq!(person(&json!({"decided_by": null})), "");
    }
}
