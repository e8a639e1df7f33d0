//! Revision 2026-07-28.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api, MODERN, Mcp, Stage, Upstream, masked, upstream};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A request with exactly these headers and this `_meta`.
async fn send(api: &Api, headers: &[(&str, &str)], method: &str, name: Option<&str>, meta: &Value) -> Answer {
    let mut request =
        api.request(Method::POST, "/mcp").header("Accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut params = json!({"_meta": meta});
    if let Some(name) = name {
        params["name"] = json!(name);
        params["arguments"] = json!({"query": "x"});
    }
    api.send(request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))).await
}

#[tokio::test]
async fn headers_and_meta_must_be_there_and_agree() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let meta = json!({VERSION: MODERN, CAPABILITIES: {}});
    let version = ("MCP-Protocol-Version", MODERN);
    let list = ("Mcp-Method", "tools/list");
    let call = ("Mcp-Method", "tools/call");
    type Case = (Vec<(&'static str, &'static str)>, &'static str, Option<&'static str>, Value, u16, Value);
    let cases: Vec<Case> = vec![
        (vec![version, list], "tools/list", None, meta.clone(), 200, Value::Null),
        (vec![version, list], "tools/list", None, json!({CAPABILITIES: {}}), 400, json!(-32602)),
        (vec![version, list], "tools/list", None, json!({VERSION: MODERN}), 400, json!(-32602)),
        (vec![version, list], "tools/list", None, json!({}), 400, json!(-32602)),
        (vec![version], "tools/list", None, meta.clone(), 400, json!(-32020)),
        (vec![version, call], "tools/list", None, meta.clone(), 400, json!(-32020)),
        (vec![version, call], "tools/call", Some("retrieve_tools"), meta.clone(), 400, json!(-32020)),
        (
            vec![version, call, ("Mcp-Name", "call_tool_read")],
            "tools/call",
            Some("retrieve_tools"),
            meta.clone(),
            400,
            json!(-32020),
        ),
        (
            vec![version, call, ("Mcp-Name", "retrieve_tools")],
            "tools/call",
            Some("retrieve_tools"),
            meta.clone(),
            200,
            Value::Null,
        ),
        (
            vec![version, call, ("Mcp-Name", "=?base64?cmV0cmlldmVfdG9vbHM=?=")],
            "tools/call",
            Some("retrieve_tools"),
            meta.clone(),
            200,
            Value::Null,
        ),
        (vec![version, ("Mcp-Method", "no/such")], "no/such", None, meta.clone(), 404, json!(-32601)),
        (vec![version, ("Mcp-Method", "ping")], "ping", None, meta.clone(), 404, json!(-32601)),
        // this revision has no handshake
        (vec![version, ("Mcp-Method", "initialize")], "initialize", None, meta.clone(), 404, json!(-32601)),
    ];
    for (headers, method, name, meta, status, code) in cases {
        let answer = send(&agent, &headers, method, name, &meta).await;
        let found = (answer.status, answer.json()["error"]["code"].clone());
        assert_eq!(found, (status, code), "{headers:?} {method} {meta}: {answer:?}");
    }
}

#[tokio::test]
async fn an_unsupported_version_names_the_supported_ones() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let meta = json!({VERSION: "2099-01-01", CAPABILITIES: {}});
    let headers = [("MCP-Protocol-Version", "2099-01-01"), ("Mcp-Method", "tools/list")];
    let answer = send(&agent, &headers, "tools/list", None, &meta).await;
    let error = answer.expect(400)["error"].clone();
    insta::assert_json_snapshot!(error, @r#"
    {
      "code": -32022,
      "data": {
        "requested": "2099-01-01",
        "supported": [
          "2026-07-28"
        ]
      },
      "message": "Unsupported protocol version"
    }
    "#);
    let disagree = json!({VERSION: "2025-11-25", CAPABILITIES: {}});
    let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")];
    let answer = send(&agent, &headers, "tools/list", None, &disagree).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (400, json!(-32020)), "{answer:?}");
}

#[tokio::test]
async fn malformed_messages_get_the_right_error() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let client = Mcp::modern(&agent);
    for (body, code) in
        [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, -32600)]
    {
        let answer = client.post(body).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!(code)),
            "{body}: {answer:?}"
        );
    }
    let twice = client
        .request("tools/call", r#"{"name":"retrieve_tools","arguments":{"query":"x","query":"y"}}"#)
        .await;
    assert_eq!(twice.json()["error"]["code"], -32602, "{twice:?}");
    let unknown = client.call("no_such_tool", &json!({})).await;
    assert_eq!(unknown.error()["code"], -32602);
}

#[tokio::test]
async fn results_are_complete_and_say_how_long_they_hold() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let client = Mcp::modern(&tenant.agent().await);
    let discovered = client.request("server/discover", "{}").await;
    insta::assert_json_snapshot!(masked(&discovered.expect(200)["result"], &["version"]), @r#"
    {
      "_meta": {
        "io.modelcontextprotocol/serverInfo": {
          "name": "mcpproxy",
          "title": "mcpproxy",
          "version": "[text]"
        }
      },
      "cacheScope": "private",
      "capabilities": {
        "logging": {},
        "prompts": {
          "listChanged": false
        },
        "resources": {
          "listChanged": false,
          "subscribe": false
        },
        "tools": {
          "listChanged": false
        }
      },
      "instructions": "Find tools with retrieve_tools, then call them with the variant named in call_with.",
      "resultType": "complete",
      "supportedVersions": [
        "2026-07-28"
      ],
      "ttlMs": 5000
    }
    "#);
    for method in ["server/discover", "tools/list", "prompts/list", "resources/list"] {
        let answer = client.request(method, "{}").await;
        let result = answer.expect(200)["result"].clone();
        assert_eq!(result["resultType"], "complete", "{method}: {result}");
        assert!(result["ttlMs"].as_u64().is_some_and(|ms| ms <= 30_000), "{method}: {result}");
        assert_eq!(result["cacheScope"], "private", "{method}: {result}");
        assert_eq!(answer.header("mcp-session-id"), "", "{method}");
    }
    let found = client.call("retrieve_tools", &json!({"query": "reader"})).await;
    assert_eq!(found.ok()["resultType"], "complete");
    let ran = client.run("read", "zoo:reader", &json!({})).await;
    assert_eq!(ran.ok()["resultType"], "complete");
    let refused = client.run("read", "zoo:wiper", &json!({})).await;
    refused.refused("server_mismatch");
    assert_eq!(refused.result()["resultType"], "complete");
}

#[tokio::test]
async fn listening_is_acknowledged_with_what_will_come() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let meta = json!({VERSION: MODERN, CAPABILITIES: {}});
    let body = json!({"jsonrpc": "2.0", "id": "listen-1", "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}});
    let request = agent
        .request(Method::POST, "/mcp")
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", MODERN)
        .header("Mcp-Method", "subscriptions/listen");
    let mut response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let mut text = String::new();
    while !text.contains("\n\n") || !text.contains("data:") {
        let chunk =
            tokio::time::timeout(Duration::from_secs(5), response.chunk()).await.unwrap().unwrap().unwrap();
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data:")).unwrap();
    let message: Value = serde_json::from_str(data.trim()).unwrap();
    // the list of /mcp never changes by itself, so nothing is promised
    insta::assert_json_snapshot!(message, @r#"
    {
      "jsonrpc": "2.0",
      "method": "notifications/subscriptions/acknowledged",
      "params": {
        "_meta": {
          "io.modelcontextprotocol/subscriptionId": "listen-1"
        },
        "notifications": {}
      }
    }
    "#);
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    let ended = tokio::time::timeout(Duration::from_secs(5), async {
        while let Ok(Some(_)) = response.chunk().await {}
    });
    assert!(ended.await.is_ok(), "the stream of a revoked key stays open");
}
