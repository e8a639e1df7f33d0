//! Nothing that is anybody's own leaves by a span.

use serde_json::json;

use super::{AGENT, stage};
use crate::support::upstream::{Offers, Say};
use crate::support::{Mcp, Tool, Upstream};

#[tokio::test]
async fn no_secret_argument_or_result_is_told() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let secret = |what: &str| format!("planted-{what}-1f9d3a77");
    let upstream = Upstream::handshake(vec![
        Tool::reads("look")
            .returns(&json!({"content": [{"type": "text", "text": secret("result")}]}).to_string()),
        Tool::reads("fail")
            .says(Say::RpcError(json!({"code": -32000, "message": secret("error")}).to_string())),
    ])
    .await;
    upstream.set_offers(Offers::default());
    let url = upstream.url.replace("/mcp", &format!("/mcp/{}?k={}", secret("path"), secret("query")));
    let headers =
        json!({"Authorization": format!("Bearer {}", secret("credential")), "X-Own": secret("header")});
    tenant.add_url("up", &url, json!({ "headers": headers })).await;
    let key = tenant.agent().await;
    for client in [Mcp::session(&key).await, Mcp::modern(&key)] {
        for (tool, number) in [("up:look", 1), ("up:fail", 2), (&*secret("tool"), 3), ("up:look", 4)] {
            let trace = format!("{:031x}{}", number, u8::from(client.is_modern()));
            let meta = json!({
                "traceparent": format!("00-{trace}-{AGENT}-01"), "vendor/x": secret("meta"),
                "baggage": format!("a={}", secret("baggage")),
            });
            let arguments = match number {
                4 => json!({"name": tool, "args": {}, "intent_reason": secret("reason")}),
                _ => json!({"name": tool, "args": {"password": secret("argument"), "n": secret("plain")}}),
            };
            let params = json!({"name": "call_tool_read", "arguments": arguments, "_meta": meta}).to_string();
            let request = client.unsent("1", "tools/call", &params);
            let request = request.header("X-Other", secret("inbound")).header("Cookie", secret("cookie"));
            client.api.send(request).await.expect(200);
            collector.trace(&trace, if number == 3 { 1 } else { 2 }).await;
        }
        let search = json!({"query": secret("search")});
        client.search(&search).await;
        // unknown everywhere: a name, a method, a session
        client.request("tools/call", &json!({"name": secret("unknown")}).to_string()).await;
        for uri in [
            format!("x://u:{}@h/?{}", secret("user"), secret("uri")),
            format!("https://h/hooks/{}", secret("path")),
            format!("data:text/plain,{}", secret("opaque")),
        ] {
            client.request("resources/read", &json!({ "uri": uri }).to_string()).await;
        }
        if !client.is_modern() {
            client.request(&secret("method"), "{}").await;
        }
    }
    let last = "cd".repeat(16);
    let meta = json!({"_meta": {"traceparent": format!("00-{last}-{AGENT}-01")}}).to_string();
    Mcp::session(&key).await.request("ping", &meta).await.expect(200);
    collector.trace(&last, 1).await;
    let raw = collector.raw();
    assert!(!raw.contains("planted-"), "{raw}");
    let own = key.key.as_deref().unwrap();
    for secret in [own, own.get(own.len() - 12..).unwrap(), "session-0", "bootstrap-key"] {
        assert!(!raw.contains(secret), "{secret}: {raw}");
    }
}
