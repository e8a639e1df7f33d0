//! What one tenant may take up.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, Gateway, Mcp, Stage, Tenant, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);

async fn allow(platform: &Api, quotas: Value) -> Value {
    let changed = platform.without_tenant().patch("/api/v1/tenants/acme", &json!({ "quotas": quotas })).await;
    changed.expect(200)["quotas"].clone()
}

fn reads(names: &[&str]) -> Vec<Tool> {
    names.iter().map(|name| Tool::reads(name)).collect()
}

async fn refresh(tenant: &Tenant, server: &str) -> Value {
    tenant.platform.post(&format!("/api/v1/servers/{server}/refresh"), &json!({})).await.expect(200)
}

/// A server's tools with their states.
async fn tools(tenant: &Tenant, server: &str) -> Vec<String> {
    let items = tenant.platform.items(&format!("/api/v1/servers/{server}/tools")).await;
    let shown =
        |tool: &Value| format!("{} {}", tool["name"].as_str().unwrap(), tool["state"].as_str().unwrap());
    items.iter().map(shown).collect()
}

#[tokio::test]
async fn quotas_are_the_platforms_to_say() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__KEYS_PER_TENANT_MAX", "7")]).await;
    let tenant = stage.tenant("acme").await;
    let platform = stage.platform();
    let read = platform.get("/api/v1/tenants/acme").await.expect(200)["quotas"].clone();
    assert_eq!(read["keys"], json!({"value": 7, "origin": "deployment", "used": 0}));
    let admin = tenant.admin().await;
    let changed = allow(&platform, json!({"keys": 3, "tools": 0})).await;
    assert_eq!(changed["keys"], json!({"value": 3, "origin": "tenant", "used": 1}));
    assert_eq!(changed["tools"], json!({"value": 0, "origin": "tenant", "used": 0}));
    assert_eq!(changed["servers"]["origin"], "deployment");
    assert_eq!(allow(&platform, json!({"keys": null})).await["keys"]["value"], 7);
    assert_eq!(platform.get("/api/v1/tenants/acme").await.expect(200)["quotas"]["tools"]["value"], 0);
    for (body, field) in [
        (json!({"quotas": {"key": 1}}), "quotas.key"),
        (json!({"quotas": {"keys": -1}}), "quotas.keys"),
        (json!({"quotas": {"keys": "1"}}), "quotas.keys"),
        (json!({"quotas": [1]}), "quotas"),
        (json!({"name": "x"}), "name"),
    ] {
        let refused = platform.patch("/api/v1/tenants/acme", &body).await;
        refused.refused(400, "invalid_request");
        assert_eq!(refused.json()["error"]["field"], field, "{body}");
    }
    platform.patch("/api/v1/tenants/none", &json!({"quotas": {}})).await.refused(404, "not_found");
    admin.patch("/api/v1/tenants/acme", &json!({"quotas": {"keys": 100}})).await.refused(403, "forbidden");
}

#[tokio::test]
async fn servers_and_keys_end_at_their_quota() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    allow(&tenant.platform, json!({"servers": 1, "keys": 2})).await;
    let admin = tenant.admin().await;
    let upstream = Upstream::handshake(reads(&["a"])).await;
    tenant.add("one", &upstream).await;
    let body = json!({"name": "two", "kind": "http", "url": upstream.url});
    let refused = admin.post("/api/v1/servers", &body).await;
    refused.refused(429, "rate_limited");
    assert!(refused.text.contains("quota of servers (1) is used up"), "{refused:?}");
    tenant.agent().await;
    let refused = admin.post("/api/v1/keys", &json!({"role": "agent"})).await;
    refused.refused(429, "rate_limited");
    assert!(refused.text.contains("quota of keys (2)"), "{refused:?}");
    // somebody else's quota is another one
    stage.tenant("zeta").await.add("one", &upstream).await;
    allow(&tenant.platform, json!({"servers": null})).await;
    tenant.add("two", &upstream).await;
    admin.delete("/api/v1/servers/one").await.expect(204);
    let used = &tenant.platform.without_tenant().get("/api/v1/tenants/acme").await.expect(200)["quotas"];
    assert_eq!((&used["servers"]["used"], &used["keys"]["used"]), (&json!(1), &json!(2)), "{used}");
}

#[tokio::test]
async fn tools_over_the_quota_are_left_out_by_name() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let (first, second) =
        (Upstream::handshake(reads(&["a", "b"])).await, Upstream::handshake(reads(&["x"])).await);
    tenant.add("first", &first).await;
    allow(&tenant.platform, json!({"tools": 3})).await;
    second.set_tools(reads(&["x", "y", "z"]));
    let body = json!({"name": "second", "kind": "http", "url": second.url});
    let added = tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(added["connection"], "connected", "{added}");
    let why = added["last_error"].as_str().unwrap();
    assert!(why.contains("quota of tools (3)") && why.ends_with("y, z"), "{why}");
    assert_eq!(tools(&tenant, "second").await, ["x approved"]);
    assert_eq!(tools(&tenant, "first").await, ["a approved", "b approved"]);
    Mcp::bare(&agent).run("read", "second:x", &json!({})).await.ok();
    Mcp::bare(&agent).run("read", "second:y", &json!({})).await.refused("not_found");
    // it stays said for as long as it is so, and what is there stays
    assert_eq!(refresh(&tenant, "second").await["last_error"], why);
    allow(&tenant.platform, json!({"tools": 1})).await;
    assert_eq!(refresh(&tenant, "first").await["last_error"], Value::Null);
    assert_eq!(tools(&tenant, "first").await, ["a approved", "b approved"]);
    let used = &tenant.platform.without_tenant().get("/api/v1/tenants/acme").await.expect(200)["quotas"];
    assert_eq!(used["tools"], json!({"value": 1, "origin": "tenant", "used": 3}));
    // with room again, what was left out is new, and somebody has to approve it
    allow(&tenant.platform, json!({"tools": null})).await;
    assert_eq!(refresh(&tenant, "second").await["last_error"], Value::Null);
    assert_eq!(tools(&tenant, "second").await, ["x approved", "y pending", "z pending"]);
}

#[tokio::test]
async fn a_definition_that_grows_over_the_quota_is_not_what_it_was() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let upstream = Upstream::handshake(reads(&["a", "b"])).await;
    tenant.add("up", &upstream).await;
    let used = tenant.platform.without_tenant().get("/api/v1/tenants/acme").await.expect(200);
    let bytes = used["quotas"]["definition_bytes"]["used"].as_i64().unwrap();
    assert!(bytes > 20, "{used}");
    allow(&tenant.platform, json!({"definition_bytes": bytes + 10})).await;
    let title = "t".repeat(200);
    let grown = Tool::annotated("a", &json!({"readOnlyHint": true, "title": title}).to_string());
    upstream.set_tools(vec![grown, Tool::reads("b")]);
    let why = refresh(&tenant, "up").await["last_error"].as_str().unwrap().to_owned();
    assert!(why.contains("quota of definition_bytes") && why.ends_with(": a"), "{why}");
    assert_eq!(tools(&tenant, "up").await, ["b approved"]);
    Mcp::bare(&agent).run("read", "up:a", &json!({})).await.refused("not_found");
    Mcp::bare(&agent).run("read", "up:b", &json!({})).await.ok();
    // its pin is remembered: as it was, it is approved; as it is now, it would be a change
    allow(&tenant.platform, json!({"definition_bytes": null})).await;
    refresh(&tenant, "up").await;
    assert_eq!(tools(&tenant, "up").await, ["a changed", "b approved"]);
    upstream.set_tools(reads(&["a", "b"]));
    refresh(&tenant, "up").await;
    assert_eq!(tools(&tenant, "up").await, ["a approved", "b approved"]);
}

#[tokio::test]
async fn streams_end_at_the_tenants_quota_whatever_the_key() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    allow(&tenant.platform, json!({"streams": 2})).await;
    let keys = [tenant.admin().await, tenant.admin().await];
    let open = async |api: &Api| {
        let stream = api.request(reqwest::Method::GET, "/mcp").header("Accept", "text/event-stream");
        stream.send().await.unwrap()
    };
    let (first, second) = (open(&keys[0]).await, open(&keys[1]).await);
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let refused = open(&keys[0]).await;
    assert_eq!(refused.status().as_u16(), 429);
    let text = refused.text().await.unwrap();
    assert!(text.contains("2 streams open, which is its quota"), "{text}");
    let refused = keys[1].get("/api/v1/activity/stream").await;
    refused.refused(503, "unavailable");
    assert!(refused.text.contains("as its quota allows"), "{refused:?}");
    let platform = tenant.platform.without_tenant();
    let used = || async {
        platform.get("/api/v1/tenants/acme").await.expect(200)["quotas"]["streams"]["used"].clone()
    };
    assert_eq!(used().await, 2);
    // neither another tenant's nor the platform's, nor those on another replica
    let theirs = open(&stage.tenant("zeta").await.agent().await).await;
    let platforms = open(&tenant.platform).await;
    let there = open(&other.ask_as(&keys[0])).await;
    for stream in [&theirs, &platforms, &there] {
        assert_eq!(stream.status().as_u16(), 200);
    }
    drop(first);
    settle(json!(1), SOON, used).await;
    assert_eq!(open(&keys[0]).await.status().as_u16(), 200);
}
