//! What a refusal says, and where: clients hold `structuredContent` against a tool's output schema.

use serde_json::{Value, json};

use super::{modern, refusal, scene};
use crate::support::{Mcp, Tool, Upstream};

fn with_schema(name: &str, hints: &str) -> Tool {
    Tool::raw(
        name,
        &format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","required":["n"]}},"outputSchema":{{"type":"object","required":["t"]}},"annotations":{hints}}}"#
        ),
    )
}

#[tokio::test]
async fn a_tool_with_an_output_schema_is_refused_in_meta() {
    let (_stage, tenant) = scene().await;
    let strict = r#"{"name":"plain","inputSchema":{"type":"object","required":["n"]},"annotations":{"readOnlyHint":true}}"#;
    let reads = r#"{"readOnlyHint":true}"#;
    let upstream = Upstream::handshake(vec![with_schema("typed", reads), Tool::raw("plain", strict)]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    for client in [Mcp::direct(&agent), modern(&agent)] {
        for (name, is_structured) in [("up:typed", false), ("up:plain", true)] {
            for (arguments, part) in [("{}", "required"), ("[]", "must be a JSON object")] {
                let outcome = client.call_raw(name, arguments).await;
                let (said, result) = (refusal(&outcome), outcome.result());
                assert_eq!(said["code"], "invalid_arguments", "{result}");
                assert_eq!((&said["tool"], &said["variant"]), (&json!(name), &json!("call_tool_read")));
                assert!(said["message"].as_str().unwrap().contains(part), "{result}");
                assert_eq!(result["content"][0]["text"], said["message"], "{result}");
                assert_eq!(result["structuredContent"].is_object(), is_structured, "{result}");
            }
        }
    }
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn the_codes_of_check_8_are_for_keys_in_scope() {
    let (_stage, tenant) = scene().await;
    let upstream = Upstream::handshake(vec![Tool::reads("old"), Tool::writes("other")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let narrow = tenant.agent_with(json!({"allowed_tools": ["up:other"]})).await;
    let (client, stranger) = (Mcp::direct(&agent), Mcp::direct(&narrow));
    let code = async || {
        let hidden = stranger.call("up:old", &json!({})).await;
        assert_eq!(hidden.code(), "-32602", "{hidden:?}");
        refusal(&client.call("up:old", &json!({})).await)["code"].clone()
    };
    let verb = async |verb: &str| {
        tenant.platform.post(&format!("/api/v1/servers/up/{verb}"), &json!({})).await.expect(200);
    };
    verb("disable").await;
    assert_eq!(code().await, "server_disabled");
    verb("enable").await;
    verb("quarantine").await;
    assert_eq!(code().await, "server_quarantined");
    verb("unquarantine").await;
    upstream.set_tools(vec![
        Tool::annotated("old", r#"{"readOnlyHint":true,"openWorldHint":true}"#),
        Tool::reads("new"),
        Tool::writes("other"),
    ]);
    verb("refresh").await;
    let changed = client.call("up:old", &json!({})).await;
    assert_eq!(refusal(&changed)["code"], "tool_changed");
    assert_eq!(
        changed.result()["structuredContent"],
        Value::Null,
        "the definition from before may have a schema"
    );
    assert_eq!(refusal(&client.call("up:new", &json!({})).await)["code"], "tool_pending");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn limits_and_lost_servers_are_told_as_results() {
    let (_stage, tenant) = scene().await;
    let mut upstream = Upstream::handshake(vec![Tool::writes("w"), with_schema("typed", "{}")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    upstream.go_down().await;
    for client in [Mcp::direct(&agent), modern(&agent)] {
        for (name, arguments) in [("up:w", json!({})), ("up:typed", json!({"n": 1}))] {
            let said = refusal(&client.call(name, &arguments).await);
            assert_eq!(said["code"], "server_unavailable", "{said}");
        }
    }
    let slow = tenant.agent_with(json!({"rate_limit": 1})).await;
    let client = Mcp::direct(&slow);
    assert_eq!(refusal(&client.call("up:w", &json!({})).await)["code"], "server_unavailable");
    assert_eq!(refusal(&client.call("up:w", &json!({})).await)["code"], "rate_limited");
    let listed = client.request("tools/list", "{}").await;
    assert_eq!(listed.json()["error"]["code"], -31429, "{listed:?}");
}
