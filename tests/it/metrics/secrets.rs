//! Nothing that anybody sends or chooses is on the page.

use serde_json::json;

use crate::support::upstream::Say;
use crate::support::{ADMIN, Mcp, Stage, Tool, Upstream};

/// Planted: a credential, an argument, a result, an error, names of all kinds.
const PLANTED: [&str; 9] = [
    "planted-tenant",
    "planted-server",
    "planted-tool",
    "planted-credential",
    "planted-argument",
    "planted-result",
    "planted-error",
    "planted-owner",
    "planted-method",
];

#[tokio::test]
async fn nothing_of_anybody_is_told() {
    let stage = Stage::with(&[ADMIN]).await;
    let tenant = stage.tenant("planted-tenant").await;
    let result = r#"{"content":[{"type":"text","text":"planted-result"}]}"#;
    let error = json!({"code": -1, "message": "planted-error", "data": "planted-error"});
    let tools = vec![
        Tool::reads("planted-tool").returns(result),
        Tool::writes("rpc").says(Say::RpcError(error.to_string())),
        Tool::reads("http").says(Say::Http(500, "planted-error".to_owned())),
    ];
    let upstream = Upstream::handshake(tools).await;
    let headers = json!({"headers": {"Authorization": "Bearer planted-credential"}});
    tenant.add_with("planted-server", &upstream, headers).await;
    let key = json!({"role": "agent", "owner": "planted-owner", "name": "planted-owner"});
    let agent = tenant.key(&key).await;
    let client = Mcp::session(&agent).await;
    for (variant, tool) in [("read", "planted-tool"), ("write", "rpc"), ("read", "http"), ("read", "none")] {
        let name = format!("planted-server:{tool}");
        client.run(variant, &name, &json!({"planted-argument": "planted-argument"})).await;
    }
    client.request("planted-method", r#"{"planted-argument":1}"#).await;
    client.search(&json!({"query": "planted-argument"})).await;
    let stranger = stage.gateway.anonymous().with_key("mcpk_planted-credential");
    stranger.get("/api/v1/status").await.expect(401);
    let page = stage
        .gateway
        .scrape_until("the calls", |page| {
            page.sum("mcpproxy_attempts_total", &[("type", "tool_call")]) == 4.0
        })
        .await;
    let keys =
        [agent.key.clone().unwrap(), agent.id.clone(), client.session_id().to_owned(), upstream.url.clone()];
    for secret in keys.iter().map(String::as_str).chain(PLANTED).chain(["planted", "bootstrap-key", "mcpk_"])
    {
        assert!(!page.text.contains(secret), "{secret}\n{}", page.text);
    }
}
