//! Check 11 at every door, and what the log says of it.

use serde_json::{Value, json};

use super::{code, set, zoo};
use crate::support::{Mcp, cli};

/// Calls a tool at each door, and returns what was said.
async fn everywhere(agent: &crate::support::Api, code: &str, exit: i32, says: &str) {
    let refused = Mcp::bare(agent).run("destructive", "zoo:wiper", &json!({})).await.refused(code);
    assert_eq!(refused["message"], says);
    let refused = Mcp::direct(agent).call("zoo:wiper", &json!({})).await.refused(code);
    assert_eq!(refused["message"], says);
    let body = json!({"tool_variant": "call_tool_destructive", "name": "zoo:wiper"});
    assert_eq!(agent.post("/api/v1/tools/call", &body).await.refused(403, code), says);
    cli(agent, &["call", "tool-destructive", "zoo:wiper"]).await.failed(exit, says);
}

fn decided(records: &[Value]) -> Vec<(&Value, &Value, &Value)> {
    records.iter().map(|record| (&record["decision"], &record["rule"], &record["status"])).collect()
}

#[tokio::test]
async fn a_deny_is_a_refusal_at_every_door_and_in_the_log() {
    let (_stage, tenant, upstream) = zoo(&[]).await;
    let rule = json!({"id": "no-wiping", "effect": "deny", "match": {"tool": "zoo:wiper"}, "message": "Ask the owner."});
    set(&tenant, "by_risk", json!([rule])).await;
    let agent = tenant.agent().await;
    let says = "Tool 'zoo:wiper' is not allowed here: Ask the owner (rule no-wiping)";
    everywhere(&agent, "policy_denied", 3, says).await;
    let records = tenant.records("tool=wiper", 4).await;
    assert_eq!(decided(&records), [(&json!("denied"), &json!("no-wiping"), &json!("blocked")); 4]);
    assert_eq!(code(&agent, "read", "reader").await, "ok");
    let allowed = tenant.records("tool=reader", 1).await;
    assert_eq!(decided(&allowed), [(&json!("allowed"), &Value::Null, &json!("success"))]);
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn an_ask_that_reaches_nobody_is_a_refusal() {
    let (_stage, tenant, upstream) = zoo(&[]).await;
    let rule = json!({"id": "hook", "effect": "ask", "ask": {"channels": ["webhook"]}});
    set(&tenant, "always_allow", json!([rule])).await;
    let agent = tenant.agent().await;
    let says = "No one can be asked right now (no channel for acme)";
    everywhere(&agent, "consent_undeliverable", 3, says).await;
    let records = tenant.records("tool=wiper", 4).await;
    assert_eq!(decided(&records), [(&json!("asked"), &json!("hook"), &json!("blocked")); 4]);
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn observe_blocks_nothing_and_says_what_would_be() {
    let (_stage, tenant, upstream) = zoo(&[]).await;
    let agent = tenant.agent().await;
    // from day one, without any rule: what by_risk would do
    assert_eq!(code(&agent, "destructive", "wiper").await, "ok");
    let asked = tenant.records("tool=wiper", 1).await;
    assert_eq!(decided(&asked), [(&json!("would_ask"), &Value::Null, &json!("success"))]);
    let rules = json!([
        {"id": "no-writing", "effect": "deny", "match": {"tool": "zoo:writer"}},
        {"id": "never", "effect": "deny", "match": {"tool": "zoo:half"}, "enforced": true},
    ]);
    set(&tenant, "observe", rules).await;
    assert_eq!(code(&agent, "write", "writer").await, "ok");
    let denied = tenant.records("tool=writer", 1).await;
    assert_eq!(decided(&denied), [(&json!("would_deny"), &json!("no-writing"), &json!("success"))]);
    assert_eq!(code(&agent, "write", "half").await, "policy_denied");
    assert_eq!(tenant.records("decision=denied", 1).await[0]["rule"], "never");
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn conditions_look_at_the_arguments() {
    let (_stage, tenant, _upstream) = zoo(&[]).await;
    let when = r#"args.sql.matches("(?i)\\b(DROP|TRUNCATE)\\b")"#;
    let rule = json!({"id": "no-drop", "effect": "deny", "match": {"tool": "zoo:writer"}, "when": when});
    set(&tenant, "always_allow", json!([rule])).await;
    let client = Mcp::bare(&tenant.agent().await);
    for (args, expected) in [
        (json!({"sql": "select 1"}), "ok"),
        (json!({"sql": "drop table a"}), "policy_denied"),
        // a condition without a value is a match for deny
        (json!({}), "policy_denied"),
        (json!({"sql": 7}), "policy_denied"),
        (json!({"sql": "x".repeat(100_000)}), "policy_denied"),
    ] {
        let found = client.run("write", "zoo:writer", &args).await.code();
        assert_eq!(found, expected, "{}", args.to_string().get(..40).unwrap_or_default());
    }
}

#[tokio::test]
async fn a_host_that_asks_by_itself_is_enough_for_its_operations() {
    let (_stage, tenant, _upstream) = zoo(&[]).await;
    set(&tenant, "always_ask", json!([])).await;
    let agent = tenant.agent_with(json!({"host_prompts": ["write"]})).await;
    assert_eq!(code(&agent, "write", "writer").await, "ok");
    assert_eq!(code(&agent, "read", "reader").await, "consent_pending");
    assert_eq!(tenant.records("decision=delegated", 1).await[0]["tool"], "writer");
    // never for critical risk
    let args = json!({"command": "rm -rf /", "force": true});
    let critical = Mcp::bare(&tenant.agent_with(json!({"host_prompts": ["destructive"]})).await)
        .run("destructive", "zoo:wiper", &args)
        .await;
    assert_eq!(critical.code(), "consent_pending");
}
