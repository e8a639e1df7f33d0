use chrono::DateTime;
use serde_json::{Value, json};

use super::*;

fn row() -> ActivityRow {
    ActivityRow {
        id: Uuid::from(Ulid::from_parts(1_769_860_800_123, 7)),
        started_at: DateTime::from_timestamp_millis(1_769_860_800_123).unwrap(),
        kind: "tool_call".into(),
        source: "rest".into(),
        server: None,
        tool: None,
        tool_variant: None,
        tier: None,
        intent_type: None,
        intent_sensitivity: None,
        intent_reason: None,
        intent_declared: false,
        warning: None,
        status: "success".into(),
        error_code: None,
        error_message: None,
        decision: None,
        rule: None,
        consent_id: None,
        key_id: None,
        key_name: None,
        identity_id: None,
        owner: None,
        client_name: None,
        client_version: None,
        client_address: None,
        session_id: None,
        request_id: None,
        trace_id: None,
        parent_id: None,
        duration_ms: None,
        upstream_ms: None,
        wait_ms: None,
        request_bytes: None,
        response_bytes: None,
        arguments: None,
        response: None,
        truncated: false,
        has_ledger: None,
    }
}

#[test]
fn every_name_is_always_there() {
    let empty = serde_json::to_value(shown(&row())).unwrap();
    let names = "id started_at type source server tool tool_variant tier intent intent_declared warning status \
                 error_code error_message decision rule consent_id key_id key_name identity_id owner client client_address session_id request_id \
                 trace_id parent_id duration_ms upstream_ms wait_ms request_bytes response_bytes arguments \
                 response truncated";
    let mut expected: Vec<&str> = names.split_whitespace().collect();
    expected.sort_unstable();
    let mut found: Vec<&str> = empty.as_object().unwrap().keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(empty["id"], Ulid::from_parts(1_769_860_800_123, 7).to_string());
    assert_eq!(empty["started_at"], "2026-01-31T12:00:00.123Z");
    assert_eq!((&empty["intent"], &empty["client"]), (&Value::Null, &json!({"name": null, "version": null})));
}

#[test]
fn an_intent_needs_an_operation_type() {
    let with = ActivityRow {
        intent_type: Some("write".into()),
        intent_reason: Some("why".into()),
        parent_id: Some(Uuid::from(Ulid::from_parts(1, 2))),
        ..row()
    };
    let text = serde_json::to_value(shown(&with)).unwrap();
    let intent = json!({"operation_type": "write", "data_sensitivity": null, "reason": "why"});
    assert_eq!((&text["intent"], &text["parent_id"]), (&intent, &json!(Ulid::from_parts(1, 2).to_string())));
    let without = ActivityRow { intent_reason: Some("why".into()), ..row() };
    assert_eq!(serde_json::to_value(shown(&without)).unwrap()["intent"], Value::Null);
}
