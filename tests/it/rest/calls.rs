//! `/tools/call`: the same pipeline, HTTP's own words.

use serde_json::json;

use crate::support::upstream::Say;
use crate::support::{Stage, Tool, Upstream, upstream};

#[tokio::test]
async fn refusals_have_their_status() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut tools = upstream::zoo();
    tools.push(
        Tool::reads("rpc").says(Say::RpcError(r#"{"code":-31000,"message":"m","data":{"x":1}}"#.to_owned())),
    );
    tools.push(Tool::reads("cut").says(Say::Close));
    let mut upstream = Upstream::handshake(tools).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent_with(json!({"max_operation": "write"})).await;
    let cases = [
        (json!({"tool_variant": "call_tool_read", "name": "bad"}), 422, "invalid_name"),
        (
            json!({"tool_variant": "call_tool_read", "name": "zoo:reader", "args": []}),
            422,
            "invalid_arguments",
        ),
        (json!({"tool_variant": "call_tool_read", "name": "zoo:reader", "intent": 7}), 422, "invalid_intent"),
        (json!({"tool_variant": "call_tool_read", "name": "zoo:writer"}), 422, "server_mismatch"),
        (
            json!({"tool_variant": "call_tool_destructive", "name": "zoo:writer"}),
            403,
            "operation_not_permitted",
        ),
        (json!({"tool_variant": "call_tool_read", "name": "zoo:wiper"}), 404, "not_found"),
        (json!({"tool_variant": "call_tool_read", "name": "none:none"}), 404, "not_found"),
        (json!({"tool_variant": "call_tool_read", "name": "zoo:cut"}), 502, "upstream_lost"),
    ];
    for (body, status, code) in cases {
        agent.post("/api/v1/tools/call", &body).await.refused(status, code);
    }
    let failed =
        agent.post("/api/v1/tools/call", &json!({"tool_variant": "call_tool_read", "name": "zoo:rpc"})).await;
    failed.refused(502, "upstream_error");
    assert!(failed.text.contains(r#"{"code":-31000,"message":"m","data":{"x":1}}"#), "{failed:?}");
    let warned = agent
        .post("/api/v1/tools/call", &json!({"tool_variant": "call_tool_write", "name": "zoo:reader"}))
        .await;
    warned.expect(200);
    let said = warned.text.contains("mcpproxy/warning") || !warned.header("x-mcpproxy-warning").is_empty();
    assert!(said, "{warned:?}");
    let before = upstream.counts();
    upstream.go_down().await;
    let down = agent
        .post("/api/v1/tools/call", &json!({"tool_variant": "call_tool_write", "name": "zoo:writer"}))
        .await;
    down.refused(503, "server_unavailable");
    assert_eq!(upstream.counts().calls, before.calls);
    for record in tenant.records("type=tool_call&source=rest", 11).await {
        assert_eq!(record["key_id"], agent.id, "{record}");
    }
}

#[tokio::test]
async fn bodies_are_checked() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    for body in [
        json!({"name": "a:b"}),
        json!({"tool_variant": "call_tool", "name": "a:b"}),
        json!({"tool_variant": 7, "name": "a:b"}),
        json!({"tool_variant": "call_tool_read", "name": "a:b", "more": 1}),
        json!([]),
    ] {
        agent.post("/api/v1/tools/call", &body).await.refused(400, "invalid_request");
    }
    for body in [
        r#"{"tool_variant":"call_tool_read","name":"a:b","args":{"x":1,"x":2}}"#,
        r#"{"tool_variant":"call_tool_read","name":"a:b""#,
        "",
    ] {
        let request = agent
            .request(reqwest::Method::POST, "/api/v1/tools/call")
            .header("Content-Type", "application/json");
        agent.send(request.body(body)).await.refused(400, "invalid_request");
    }
}
