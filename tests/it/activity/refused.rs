//! Attempts that were refused before they came to a use case are attempts all the same.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Api, MODERN, Mcp, Stage, Tenant};

/// The one record of this key.
async fn only(tenant: &Tenant, api: &Api) -> Value {
    tenant.records(&format!("key={}", api.id), 1).await.remove(0)
}

/// Checks the one record of an attempt: `[type, source, tool, error_code]`, and what it says it was sent.
#[track_caller]
fn check(record: &Value, expected: [&str; 4], sent: &str) {
    let found = ["type", "source", "tool", "error_code"].map(|name| record[name].as_str().unwrap_or("-"));
    assert_eq!(found, expected, "{record}");
    assert_eq!(record["status"], "blocked", "{record}");
    assert!(record["arguments"].as_str().is_some_and(|text| text.contains(sent)), "{sent}: {record}");
    assert!(record["error_message"].is_string() && record["duration_ms"].is_number(), "{record}");
}

#[tokio::test]
async fn over_mcp() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;

    let agent = tenant.agent().await;
    let client = Mcp::session(&agent).await;
    assert_eq!(client.call("no_such_tool", &json!({"x": "sent-1"})).await.error()["code"], -32602);
    let record = only(&tenant, &agent).await;
    check(&record, ["tool_call", "mcp", "no_such_tool", "invalid_params"], "sent-1");
    assert_eq!(record["client"]["name"], "it-client", "{record}");
    assert!(record["session_id"].is_string(), "{record}");

    let agent = tenant.agent().await;
    let outcome = Mcp::bare(&agent).call("retrieve_tools", &json!({"query": "sent-2", "limit": 0})).await;
    assert_eq!(outcome.code(), "invalid_request", "{outcome:?}");
    check(&only(&tenant, &agent).await, ["search", "mcp", "retrieve_tools", "invalid_request"], "sent-2");

    let auditor = tenant.auditor().await;
    let params = r#"{"name":"call_tool_read","arguments":{"name":"a:b","args":{"x":"sent-3"}}}"#;
    Mcp::bare(&auditor).request("tools/call", params).await.refused(403, "forbidden");
    check(&only(&tenant, &auditor).await, ["tool_call", "mcp", "call_tool_read", "forbidden"], "sent-3");

    let agent = tenant.agent().await;
    let twice = r#"{"name":"call_tool_read","arguments":{"name":"a:b","args":{"x":"sent-4","x":2}}}"#;
    let answer = Mcp::bare(&agent).request("tools/call", twice).await;
    assert_eq!(answer.json()["error"]["code"], -32602, "{answer:?}");
    let record = only(&tenant, &agent).await;
    assert_eq!(
        (&record["status"], &record["error_code"]),
        (&json!("blocked"), &json!("invalid_params")),
        "{record}"
    );

    let agent = tenant.agent().await;
    let lost = Mcp::in_session(&agent, "no-such-session");
    let params = r#"{"name":"call_tool_read","arguments":{"name":"a:b","args":{"x":"sent-5"}}}"#;
    assert_eq!(lost.request("tools/call", params).await.status, 404);
    check(&only(&tenant, &agent).await, ["tool_call", "mcp", "call_tool_read", "invalid_request"], "sent-5");
}

#[tokio::test]
async fn in_the_modern_era() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let params = |member: &str| {
        json!({"name": "call_tool_write", "arguments": {"name": "a:b", "args": {"x": "sent"}}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN, member: {}}})
    };
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let cases = [
        ("call_tool_read", capabilities, -32020, "header_mismatch"),
        ("call_tool_write", "other", -32602, "invalid_params"),
    ];
    for (header, member, code, name) in cases {
        let agent = tenant.agent().await;
        let request = Mcp::modern(&agent)
            .http(Method::POST)
            .header("Mcp-Method", "tools/call")
            .header("Mcp-Name", header)
            .json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params(member)}));
        let answer = agent.send(request).await;
        let found = (answer.status, answer.json()["error"]["code"].clone());
        assert_eq!(found, (400, json!(code)), "{answer:?}");
        check(&only(&tenant, &agent).await, ["tool_call", "mcp", "call_tool_write", name], "sent");
    }
}

#[tokio::test]
async fn over_rest() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;

    let auditor = tenant.auditor().await;
    let body = json!({"tool_variant": "call_tool_read", "name": "a:b", "args": {"x": "sent-1"}});
    auditor.post("/api/v1/tools/call", &body).await.refused(403, "forbidden");
    let record = only(&tenant, &auditor).await;
    check(&record, ["tool_call", "rest", "b", "forbidden"], "sent-1");
    assert_eq!(record["server"], "a", "the filter of servers finds it: {record}");

    let auditor = tenant.auditor().await;
    auditor.get("/api/v1/tools?query=sent-2").await.refused(403, "forbidden");
    check(&only(&tenant, &auditor).await, ["search", "rest", "-", "forbidden"], "sent-2");

    let agent = tenant.agent().await;
    agent.get("/api/v1/tools?query=sent-3&limit=0").await.refused(400, "invalid_request");
    check(&only(&tenant, &agent).await, ["search", "rest", "-", "invalid_request"], "sent-3");
}
