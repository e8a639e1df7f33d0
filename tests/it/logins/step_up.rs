//! Scopes that refuse what they do not allow, so that clients log in again for more (`identity.step_up`).

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection;

use super::{GATEWAY, SETTINGS, bearer, scene_with, set_rules};
use crate::support::{Gateway, HELD_RECORDS, Mcp, Tool, Upstream, settle};

const STEP_UP: (&str, &str) = ("MCPPROXY__IDENTITY__STEP_UP", "true");
const SOON: Duration = Duration::from_secs(5);
const METADATA: &str = "https://gw.example/.well-known/oauth-protected-resource";

/// Names of the tools in a list.
async fn listed(client: &Mcp) -> Vec<String> {
    client.tools().await.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn challenge(scopes: &str, endpoint: &str) -> String {
    format!(
        "Bearer error=\"insufficient_scope\", scope=\"{scopes}\", resource_metadata=\"{METADATA}{endpoint}\""
    )
}

fn write(name: &str) -> Value {
    json!({"name": "call_tool_write", "arguments": {"name": name, "args": {}}})
}

#[tokio::test]
async fn a_call_beyond_the_scopes_is_refused_with_those_it_needs() {
    let (stage, tenant, idp) = scene_with(&[STEP_UP, ("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    let tools = vec![Tool::reads("look"), Tool::writes("change"), Tool::destroys("wipe")];
    let upstream = Upstream::handshake(tools).await;
    tenant.add("up", &upstream).await;
    let settings = json!({"max_operation": "write", "direct_endpoint": true});
    set_rules(&tenant, json!([{"role": "agent", "settings": settings}])).await;
    let with = |scope: &str| bearer(&stage, &idp.token("ana", GATEWAY, json!({ "scope": scope })));
    let reader = with("openid mcp:read");

    // listed up to what the rule gives
    for client in [Mcp::modern(&reader), Mcp::session(&reader).await] {
        let names = listed(&client).await;
        assert!(names.contains(&"call_tool_write".to_owned()), "{names:?}");
        assert!(!names.contains(&"call_tool_destructive".to_owned()), "{names:?}");
        let found = client.search(&json!({"query": "look change wipe", "limit": 10})).await;
        assert_eq!(found["total"], 2, "{found}");
        client.run("read", "up:look", &json!({})).await.ok();
        let answer = client.request("tools/call", &write("up:change").to_string()).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        assert_eq!(answer.header("www-authenticate"), challenge("mcp:write", "/mcp"));
        let refused = &answer.json()["result"]["structuredContent"];
        assert_eq!(
            (&refused["code"], &refused["message"], &refused["expected"]),
            (&json!("insufficient_scope"), &json!("this needs the scope mcp:write"), &json!("write"))
        );
        // what the rule refuses, no scope gives
        client.run("destructive", "up:wipe", &json!({})).await.refused("operation_not_permitted");
        // the more severe of variant and tool counts: a read tool by the write variant needs the scope too
        let answer = client.request("tools/call", &write("up:look").to_string()).await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    let direct = Mcp::direct(&reader);
    assert!(listed(&direct).await.contains(&"up:change".to_owned()));
    let answer = direct.request("tools/call", r#"{"name":"up:change","arguments":{}}"#).await;
    assert_eq!(
        (answer.status, answer.header("www-authenticate")),
        (403, &*challenge("mcp:write", "/mcp/direct"))
    );
    let body = json!({"tool_variant": "call_tool_write", "name": "up:change"});
    let answer = reader.post("/api/v1/tools/call", &body).await;
    answer.refused(403, "insufficient_scope");
    assert_eq!(answer.header("www-authenticate"), "Bearer error=\"insufficient_scope\", scope=\"mcp:write\"");
    assert_eq!(upstream.counts().calls, 2, "nothing that was refused was sent");

    // the challenge names all that clients are to ask for, since they ask for nothing else
    let scopes = json!({"advertised_scopes": ["api://mcp/use", "mcp:write"]});
    stage.platform().patch("/api/v1/issuers/corp", &scopes).await.expect(200);
    let answer = Mcp::modern(&reader).request("tools/call", &write("up:change").to_string()).await;
    assert_eq!(answer.header("www-authenticate"), challenge("api://mcp/use mcp:write", "/mcp"));

    // the broader scope includes the narrower, and a token without any of them is not held to one
    for scope in ["mcp:write", "mcp:destructive mcp:read", "openid"] {
        Mcp::modern(&with(scope)).run("write", "up:change", &json!({})).await.ok();
    }
    for (kind, all, beyond) in [("tool_call", 8, 6), ("direct_call", 1, 1)] {
        let refused = tenant.records(&format!("type={kind}&status=blocked"), all).await;
        let missing = refused.iter().filter(|record| record["error_code"] == "insufficient_scope").count();
        assert_eq!(missing, beyond, "{refused:?}");
    }
}

#[tokio::test]
async fn management_tools_need_scopes_too() {
    let (stage, tenant, idp) = scene_with(&[STEP_UP]).await;
    set_rules(&tenant, json!([{"role": "operator"}])).await;
    let reader = bearer(&stage, &idp.token("ana", GATEWAY, json!({"scope": "mcp:read"})));
    let client = Mcp::modern(&reader);
    let ask = |operation: &str| {
        json!({"name": "upstream_servers", "arguments": {"operation": operation, "name": "up"}}).to_string()
    };
    let answer = client.request("tools/call", &ask("remove")).await;
    assert_eq!(
        (answer.status, answer.header("www-authenticate")),
        (403, &*challenge("mcp:destructive", "/mcp"))
    );
    assert_eq!(answer.json()["result"]["structuredContent"]["code"], "insufficient_scope");
    let listed = r#"{"name":"upstream_servers","arguments":{"operation":"list"}}"#;
    client.request("tools/call", listed).await.expect(200);
}

#[tokio::test]
async fn scopes_hide_unless_they_are_said_to_refuse() {
    let (stage, tenant, idp) = scene_with(&[]).await;
    let upstream = Upstream::handshake(vec![Tool::reads("look"), Tool::writes("change")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::modern(&bearer(&stage, &idp.token("ana", GATEWAY, json!({"scope": "mcp:read"}))));
    assert!(!listed(&client).await.contains(&"call_tool_write".to_owned()));
    let answer = client.request("tools/call", &write("up:change").to_string()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["result"]["structuredContent"]["code"], "operation_not_permitted");
}

/// A tool can get another tier while a call of it waits for its record.
#[tokio::test]
async fn scopes_are_checked_again_before_a_call_is_sent() {
    let (stage, tenant, idp) = scene_with(&[STEP_UP]).await;
    let upstream = Upstream::handshake(vec![Tool::writes("change")]).await;
    tenant.add("up", &upstream).await;
    set_rules(&tenant, json!([{"role": "agent", "settings": {"strict_server_validation": false}}])).await;
    let person = bearer(&stage, &idp.token("ana", GATEWAY, json!({"scope": "mcp:write"})));
    let agent = tenant.agent().await;
    let held = stage.database.hold_records("change").await;
    // the call is at a replica of its own, where nothing else waits for its record
    let other = Gateway::start(&stage.database, &[SETTINGS[0], STEP_UP]).await;
    let client = Mcp::modern(&other.ask_as(&person));
    let call =
        tokio::spawn(async move { client.request("tools/call", &write("up:change").to_string()).await });
    settle(1, SOON, || stage.database.count(HELD_RECORDS)).await;
    let tools = "/api/v1/servers/up/tools";
    let pin = tenant.platform.items(tools).await[0]["pin"].clone();
    let destroys = json!({"pin": pin, "annotations": {"destructiveHint": true}});
    tenant
        .platform
        .ask(reqwest::Method::PUT, &format!("{tools}/change/override"), Some(&destroys))
        .await
        .expect(200);
    let seen = Mcp::modern(&other.ask_as(&agent));
    settle(json!("call_tool_destructive"), SOON, async || {
        seen.search(&json!({"query": "change"})).await["tools"][0]["call_with"].clone()
    })
    .await;
    assert!(!call.is_finished());
    held.close().await.unwrap();
    let answer = call.await.unwrap();
    assert_eq!(
        (answer.status, answer.header("www-authenticate")),
        (403, &*challenge("mcp:destructive", "/mcp"))
    );
    assert_eq!(upstream.counts().calls, 0);
}
