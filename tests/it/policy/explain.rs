//! `POST /policy/explain`: what the rules say of a call that is not made.

use std::time::Duration;

use serde_json::{Value, json};

use super::{put, set, zoo};
use crate::support::{Stage, Tool, Upstream, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn every_step_is_told_in_order() {
    let (_stage, tenant, upstream) = zoo(&[]).await;
    let rules = json!([
        {"id": "reads", "effect": "allow", "match": {"op": "read"}},
        {"id": "no-prod", "effect": "deny", "match": {"tool": "zoo:w*"}, "when": "args.env == \"prod\""},
    ]);
    set(&tenant, "observe", rules).await;
    let agent = tenant.agent().await;
    let own =
        json!({"version": 0, "rules": [{"id": "mine", "effect": "ask", "match": {"endpoint": "direct"}}]});
    put(&tenant.platform, &format!("/keys/{}/policy", agent.id), &own).await.expect(200);
    let auditor = tenant.auditor().await;
    let ask = async |body: Value| auditor.post("/api/v1/policy/explain", &body).await;
    let prod = ask(json!({"tool": "zoo:writer", "args": {"env": "prod"}})).await.expect(200);
    // observe softens nothing here
    assert_eq!((&prod["effect"], &prod["rule"]), (&json!("deny"), &json!("no-prod")));
    assert_eq!((&prod["ruling"], &prod["mode"]), (&json!("would_deny"), &json!("observe")));
    assert_eq!(prod["risk"], json!({"level": "moderate", "reasons": ["writes"]}));
    let trace = json!([
        {"layer": "tenant", "rule": "reads", "matched": false, "effect": null, "why": "op is write"},
        {"layer": "tenant", "rule": "no-prod", "matched": true, "effect": "deny", "why": "it matches"},
    ]);
    assert_eq!(prod["trace"], trace);
    let of_key =
        json!({"tool": "zoo:wiper", "args": {"env": "dev"}, "key_id": agent.id, "endpoint": "direct"});
    let of_key = ask(of_key).await.expect(200);
    assert_eq!((&of_key["effect"], &of_key["rule"]), (&json!("ask"), &json!("mine")));
    let read = ask(json!({"tool": "zoo:reader", "tool_variant": "call_tool_read"})).await.expect(200);
    assert_eq!(
        (&read["effect"], &read["rule"], &read["risk"]["level"]),
        (&json!("allow"), &json!("reads"), &json!("low"))
    );
    let by_mode = ask(json!({"tool": "zoo:wiper", "args": {"env": "dev"}})).await.expect(200);
    assert_eq!((&by_mode["effect"], &by_mode["rule"]), (&json!("ask"), &Value::Null));
    let terms =
        json!({"assurance": "client", "channels": ["elicitation", "acp", "inbox", "webhook"], "ttl_s": 600});
    assert_eq!((&by_mode["ask"], &prod["ask"]), (&terms, &Value::Null));
    assert_eq!(
        by_mode["trace"][2],
        json!({"layer": "mode", "rule": null, "matched": true, "effect": "ask", "why": "no rule matches; the risk is high"})
    );
    let says = ask(json!({"tool": "zo:reader"})).await.refused(404, "not_found");
    assert_eq!(says, "tool 'zo:reader' not found; did you mean 'zoo:reader'?");
    ask(json!({"tool": "zoo:nothing"})).await.refused(404, "not_found");
    ask(json!({"tool": "zoo:reader", "key_id": "00000000-0000-4000-8000-000000000000"}))
        .await
        .refused(404, "not_found");
    for (body, field) in [
        (json!({"tool": "zoo:reader", "endpoint": "http"}), "endpoint"),
        (json!({"tool": "zoo:reader", "tool_variant": "read"}), "tool_variant"),
        (json!({"tool": "zoo:reader", "args": []}), "args"),
        (json!({"args": {}}), "tool"),
    ] {
        let answer = ask(body).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], field, "{answer:?}");
    }
    assert_eq!(upstream.counts().calls, 0, "nothing is run");
}

#[tokio::test]
async fn a_definition_counts_as_changed_only_after_a_change() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    // quarantined, and approved as it is by the release: that is no change
    let body = json!({"name": "zoo", "kind": "http", "url": upstream.url});
    tenant.operator().await.post("/api/v1/servers", &body).await.expect(201);
    tenant.platform.post("/api/v1/servers/zoo/unquarantine", &json!({})).await.expect(200);
    let reasons = async || {
        let asked = json!({"tool": "zoo:writer"});
        let explained = tenant.platform.post("/api/v1/policy/explain", &asked).await;
        if explained.status == 200 { explained.expect(200)["risk"]["reasons"].clone() } else { json!(null) }
    };
    settle(json!(["writes"]), SOON, reasons).await;
    let offers = async |tools: Vec<Tool>| {
        upstream.set_tools(tools);
        tenant.platform.post("/api/v1/servers/zoo/refresh", &json!({})).await.expect(200);
    };
    // nor is its return
    offers(vec![Tool::reads("reader")]).await;
    offers(upstream::zoo()).await;
    settle(json!(["writes"]), SOON, reasons).await;
    let other = json!({"name": "writer", "description": "another one", "inputSchema": {"type": "object"}});
    offers(vec![Tool::raw("writer", &other.to_string())]).await;
    settle(json!(["changed", "writes"]), SOON, reasons).await;
}
