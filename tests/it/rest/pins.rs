//! Definition pins: what changed is seen by a person first.

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, Tenant, Tool, Upstream};

async fn tool(tenant: &Tenant, name: &str) -> Value {
    let tools = tenant.platform.items("/api/v1/servers/up/tools").await;
    tools.into_iter().find(|tool| tool["name"] == name).unwrap_or(Value::Null)
}

async fn refresh(tenant: &Tenant) {
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
}

#[tokio::test]
async fn a_changed_definition_is_approved_by_its_pin() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    tenant.add("up", &upstream).await;
    let first = tool(&tenant, "t").await;
    assert_eq!(first["state"], "approved");
    upstream.set_tools(vec![Tool::annotated("t", r#"{"readOnlyHint":true,"title":"Two"}"#)]);
    refresh(&tenant).await;
    let second = tool(&tenant, "t").await;
    assert_eq!(second["state"], "changed");
    assert_ne!(second["pin"], first["pin"]);
    assert_eq!(second["approved_definition"], first["definition"], "{second}");
    let client = Mcp::bare(&tenant.agent().await);
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "tool_changed");
    assert_eq!(client.search(&json!({"query": "t"})).await["total"], 0);

    let approve = "/api/v1/servers/up/tools/t/approve";
    let operator = tenant.operator().await;
    operator.post(approve, &json!({"pin": first["pin"]})).await.refused(409, "conflict");
    operator.post(approve, &json!({"pin": "nonsense"})).await.refused(400, "invalid_request");
    operator.post(approve, &json!({})).await.refused(400, "invalid_request");
    operator
        .post("/api/v1/servers/up/tools/none/approve", &json!({"pin": second["pin"]}))
        .await
        .refused(404, "not_found");
    tenant.agent().await.post(approve, &json!({"pin": second["pin"]})).await.refused(403, "forbidden");
    // it moves while the second is being reviewed
    upstream.set_tools(vec![Tool::annotated("t", r#"{"destructiveHint":true}"#)]);
    refresh(&tenant).await;
    operator.post(approve, &json!({"pin": second["pin"]})).await.refused(409, "conflict");
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "tool_changed");
    let third = tool(&tenant, "t").await;
    operator.post(approve, &json!({"pin": third["pin"]})).await.expect(200);
    assert_eq!(tool(&tenant, "t").await["state"], "approved");
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "server_mismatch");
    client.run("destructive", "up:t", &json!({})).await.ok();
}

#[tokio::test]
async fn formatting_is_no_change_and_removal_shows_at_once() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let one = Tool::raw(
        "t",
        r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":1.0}}"#,
    );
    let same = Tool::raw(
        "t",
        r#"{ "annotations":{"x":1.0,"readOnlyHint":true}, "inputSchema":{"type":"object"},"name":"\u0074"}"#,
    );
    let other = Tool::raw(
        "t",
        r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":1.00}}"#,
    );
    let upstream = Upstream::handshake(vec![one.clone()]).await;
    tenant.add("up", &upstream).await;
    let first = tool(&tenant, "t").await;
    upstream.set_tools(vec![same]);
    refresh(&tenant).await;
    assert_eq!(tool(&tenant, "t").await, first, "the stored bytes stay");
    upstream.set_tools(vec![other]);
    refresh(&tenant).await;
    assert_eq!(tool(&tenant, "t").await["state"], "changed", "numbers count as written");
    upstream.set_tools(vec![one]);
    refresh(&tenant).await;
    assert_eq!(tool(&tenant, "t").await["state"], "approved", "what was approved came back");
    upstream.set_tools(Vec::new());
    refresh(&tenant).await;
    let client = Mcp::bare(&tenant.agent().await);
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "not_found");
    // a pin survives the disappearance
    upstream.set_tools(vec![Tool::destroys("t")]);
    refresh(&tenant).await;
    assert_eq!(tool(&tenant, "t").await["state"], "changed");
}

#[tokio::test]
async fn automatic_approval_takes_everything() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![Tool::reads("t")]).await;
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    upstream.set_tools(vec![Tool::destroys("t"), Tool::reads("new")]);
    refresh(&tenant).await;
    let client = Mcp::modern(&tenant.agent().await);
    client.run("destructive", "up:t", &json!({})).await.ok();
    client.run("read", "up:new", &json!({})).await.ok();
}
