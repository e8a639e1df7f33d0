//! Challenges and metadata that tell clients where to log in.

use reqwest::Method;
use serde_json::json;

use super::{GATEWAY, SETTINGS, bearer, register, scene};
use crate::support::{Idp, Mcp, Stage};

const LOG_IN: &str =
    "log in with your organisation's account, or send an API key as X-API-Key or Authorization: Bearer";
const KEY_NEEDED: &str = "a valid API key is needed: send it as X-API-Key or Authorization: Bearer";

#[tokio::test]
async fn without_issuers_nobody_is_sent_anywhere() {
    let stage = Stage::with(&SETTINGS).await;
    let anonymous = stage.gateway.anonymous();
    for path in ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"] {
        anonymous.get(path).await.refused(404, "not_found");
    }
    let answer = Mcp::bare(&anonymous).request("ping", "{}").await;
    assert_eq!(answer.refused(401, "unauthenticated"), KEY_NEEDED);
    assert_eq!(answer.header("www-authenticate"), "Bearer");
}

#[tokio::test]
async fn challenges_lead_to_the_metadata_of_the_endpoint() {
    let (stage, tenant, idp) = scene().await;
    let anonymous = stage.gateway.anonymous();
    for endpoint in ["/mcp", "/mcp/direct"] {
        let answer = Mcp::bare(&anonymous).at(endpoint).request("ping", "{}").await;
        assert_eq!(answer.refused(401, "unauthenticated"), LOG_IN);
        let url = format!("https://gw.example/.well-known/oauth-protected-resource{endpoint}");
        assert_eq!(answer.header("www-authenticate"), format!("Bearer resource_metadata=\"{url}\""));
        let metadata =
            anonymous.get(&format!("/.well-known/oauth-protected-resource{endpoint}")).await.expect(200);
        let expected = json!({
            "resource": format!("https://gw.example{endpoint}"), "authorization_servers": [idp.url],
            "bearer_methods_supported": ["header"], "resource_name": "mcpproxy",
        });
        assert_eq!(metadata, expected);
    }
    // REST is no endpoint that clients discover
    let answer = anonymous.get("/api/v1/status").await;
    assert_eq!(
        (answer.refused(401, "unauthenticated").as_str(), answer.header("www-authenticate")),
        (LOG_IN, "Bearer")
    );
    // a login does not help the holder of a bad key
    let answer = Mcp::bare(&anonymous.with_key("mcpk_wrong")).request("ping", "{}").await;
    assert_eq!(answer.refused(401, "unauthenticated"), KEY_NEEDED);
    assert_eq!(answer.header("www-authenticate"), "Bearer error=\"invalid_token\"");
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ] {
        anonymous.get(path).await.refused(404, "not_found");
    }
    let post = anonymous.ask(Method::POST, "/.well-known/oauth-protected-resource/mcp", Some(&json!({})));
    post.await.refused(404, "not_found");
    // keys go on as before
    tenant.agent().await.get("/api/v1/status").await.expect(200);
}

#[tokio::test]
async fn clients_are_told_which_scopes_to_ask_for() {
    let (stage, _tenant, idp) = scene().await;
    let (platform, anonymous) = (stage.platform(), stage.gateway.anonymous());
    for wrong in [json!(["a b"]), json!([""]), json!(["a\"b"]), json!(["offline_access"])] {
        let answer = platform.patch("/api/v1/issuers/corp", &json!({ "advertised_scopes": wrong })).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], "advertised_scopes");
    }
    let scopes = json!(["mcp:read", "api://mcp/use"]);
    let changed =
        platform.patch("/api/v1/issuers/corp", &json!({ "advertised_scopes": scopes })).await.expect(200);
    assert_eq!(changed["advertised_scopes"], scopes);
    let metadata = anonymous.get("/.well-known/oauth-protected-resource/mcp").await.expect(200);
    assert_eq!(metadata["scopes_supported"], scopes);
    let url = "https://gw.example/.well-known/oauth-protected-resource/mcp";
    let told = format!("resource_metadata=\"{url}\", scope=\"mcp:read api://mcp/use\"");
    let answer = Mcp::bare(&anonymous).request("ping", "{}").await;
    assert_eq!(answer.header("www-authenticate"), format!("Bearer {told}"));
    let expired = bearer(&stage, &idp.token("u1", GATEWAY, json!({"iat": 1, "exp": 2})));
    let answer = Mcp::bare(&expired).request("ping", "{}").await;
    assert_eq!(answer.header("www-authenticate"), format!("Bearer error=\"invalid_token\", {told}"));
    // a login does not help the holder of a bad key, and REST is no endpoint that clients discover
    let answer = Mcp::bare(&anonymous.with_key("mcpk_wrong")).request("ping", "{}").await;
    assert_eq!(answer.header("www-authenticate"), "Bearer error=\"invalid_token\"");
    assert_eq!(anonymous.get("/api/v1/status").await.header("www-authenticate"), "Bearer");
}

#[tokio::test]
async fn an_issuer_with_a_host_is_in_no_other_hosts_metadata() {
    let settings = [SETTINGS[0], ("MCPPROXY__SERVER__ALLOWED_HOSTS", "127.0.0.1,gw.example,b.example")];
    let stage = Stage::with(&settings).await;
    stage.tenant("acme").await;
    let (everybodys, own) = (Idp::start().await, Idp::start().await);
    register(&stage, &everybodys, "all", "acme").await;
    let body = json!({"name": "own", "issuer": own.url, "tenant": "acme", "host": "b.example"});
    stage.platform().post("/api/v1/issuers", &body).await.expect(201);
    let anonymous = stage.gateway.anonymous();
    for (host, resource, issuers) in [
        ("gw.example", "https://gw.example/mcp", vec![&everybodys.url]),
        ("b.example", "https://b.example/mcp", vec![&own.url, &everybodys.url]),
    ] {
        let path = "/.well-known/oauth-protected-resource/mcp";
        let request = anonymous.request(Method::GET, path).header("Host", host);
        let metadata = anonymous.send(request).await.expect(200);
        assert_eq!(metadata["resource"], resource);
        assert_eq!(metadata["authorization_servers"], json!(issuers), "{host}");
    }
}
