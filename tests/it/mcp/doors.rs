//! Who gets in: credentials, hosts, origins.

use mcpproxy::faces::rest::ROUTES;
use reqwest::Method;
use serde_json::json;

use crate::support::{Mcp, People, Stage};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

#[tokio::test]
async fn every_path_needs_a_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (anonymous, revoked) = (stage.gateway.anonymous(), tenant.agent().await);
    revoked.get("/api/v1/status").await.expect(200);
    tenant.platform.delete(&format!("/api/v1/keys/{}", revoked.id)).await.expect(204);
    let unknown = anonymous.with_key("mcpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let others = [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("POST", "/mcp/direct"),
        ("GET", "/api/v1/no-such-route"),
        ("GET", "/no-such-path"),
        ("POST", "/"),
    ];
    let routes = ROUTES.iter().map(|(method, path)| (*method, format!("/api/v1{path}")));
    let others = others.map(|(method, path)| (method, path.to_owned()));
    for (method, path) in routes.chain(others) {
        for (who, api) in [("anonymous", &anonymous), ("unknown", &unknown), ("revoked", &revoked)] {
            let answer = api.ask(method.parse().unwrap(), &path, None).await;
            assert_eq!(answer.status, 401, "{who} {method} {path}: {answer:?}");
            assert!(answer.json().is_object(), "{who} {method} {path}: {answer:?}");
        }
    }
    for path in ["/", "/livez", "/readyz"] {
        assert_eq!(anonymous.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_key_comes_in_two_headers_and_nowhere_else() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let key = agent.key.clone().unwrap();
    let anonymous = stage.gateway.anonymous();
    let status = |name: &'static str, value: String| {
        let request = anonymous.request(Method::GET, "/api/v1/status").header(name, value);
        let sent = anonymous.send(request);
        async { sent.await.status }
    };
    assert_eq!(status("X-API-Key", key.clone()).await, 200);
    assert_eq!(status("Authorization", format!("Bearer {key}")).await, 200);
    assert_eq!(status("Authorization", format!("Basic {key}")).await, 401);
    assert_eq!(status("X-API-Key", format!("{key}x")).await, 401);
    for query in ["api_key", "key", "apikey", "token", "access_token", "X-API-Key"] {
        let answer = anonymous.get(&format!("/api/v1/status?{query}={key}")).await;
        assert_eq!(answer.status, 401, "{query}");
    }
    assert!(!stage.gateway.log().contains(&key), "a key is in the log");
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_turned_away() {
    let stage = Stage::with(&[("MCPPROXY__SERVER__ALLOWED_ORIGINS", "https://console.example.com")]).await;
    let agent = stage.tenant("acme").await.agent().await;
    let cases = [
        ("Host", "evil.example.com", 403),
        ("Host", "localhost:1234", 200),
        ("Origin", "https://evil.example.com", 403),
        ("Origin", "null", 403),
        ("Origin", "https://console.example.com", 200),
    ];
    for (name, value, status) in cases {
        let post = Mcp::bare(&agent).http(Method::POST).header("Content-Type", "application/json");
        let answer = agent.send(post.header(name, value).body(INITIALIZE)).await;
        assert_eq!(answer.status, status, "{name}: {value}: {answer:?}");
        let get = agent.request(Method::GET, "/api/v1/status").header(name, value);
        assert_eq!(agent.send(get).await.status, status, "REST {name}: {value}");
    }
    let ready = agent.request(Method::GET, "/readyz").header("Host", "10.1.2.3");
    assert_eq!(agent.send(ready).await.status, 200);
}

#[tokio::test]
async fn roles_without_tools_may_not_use_them() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let people = People::of(&stage, &tenant, "acme").await;
    let mut callers = Vec::new();
    for (role, may) in
        [("agent", true), ("operator", true), ("admin", true), ("auditor", false), ("approver", false)]
    {
        callers.push((role, may, tenant.key(&json!({ "role": role })).await));
        callers.push((role, may, people.person(role, json!({})).await));
    }
    for (role, may, api) in callers {
        let listed = Mcp::bare(&api).request("tools/list", "{}").await;
        let tools = listed.json()["result"]["tools"].as_array().map_or(0, Vec::len);
        let found = Mcp::bare(&api).call("retrieve_tools", &json!({"query": "anything"})).await;
        assert_eq!(tools > 0, may, "{role}: {listed:?}");
        assert_eq!(found.code() == "ok", may, "{role}: {found:?}");
        let read = Mcp::bare(&api).call("read_cache", &json!({"key": "x"})).await;
        assert_eq!(read.code() == "not_found", may, "{role}: {read:?}");
        let searched = api.get("/api/v1/tools?query=x").await;
        assert_eq!(searched.status, if may { 200 } else { 403 }, "{role}: {searched:?}");
    }
}
