//! Authorization servers that want to harm.

use serde_json::json;

use super::{call, guarded, login, put, server, tools};
use crate::support::{Stage, TokenMood, TokenServer, Upstream};

#[tokio::test]
async fn what_an_evil_token_endpoint_answers_is_not_used() {
    let stage = Stage::with(&[("MCPPROXY__OAUTH__TIMEOUT_S", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let (evil, victim) = (TokenServer::start().await, TokenServer::start().await);
    let upstream = guarded(&evil, Upstream::modern(tools()).await).await;
    tenant
        .platform
        .post("/api/v1/servers", &json!({"name": "up", "kind": "http", "url": upstream.url}))
        .await
        .expect(201);
    let cases = [
        (TokenMood::Huge, "too large"),
        (TokenMood::Silent, "in time"),
        (TokenMood::Elsewhere(victim.endpoint()), "HTTP 307"),
        (TokenMood::Html, "not one of a token endpoint"),
        (
            TokenMood::Raw(r#"{"access_token":"evil-mark\r\nX-Evil: 1","token_type":"Bearer"}"#.to_owned()),
            "cannot be sent",
        ),
        (TokenMood::Raw(r#"{"access_token":"evil-mark\nX-Evil: 1"}"#.to_owned()), "cannot be sent"),
        (TokenMood::Raw(format!(r#"{{"access_token":"{}"}}"#, "evil-mark".repeat(4000))), "cannot be sent"),
        (
            TokenMood::Raw(r#"{"access_token":"evil-mark","token_type":"mac"}"#.to_owned()),
            "not of type Bearer",
        ),
        (
            TokenMood::Raw(r#"{"access_token":"evil-mark","access_token":"other"}"#.to_owned()),
            "not one of a token",
        ),
        (TokenMood::Raw(r#"{"access_token":"evil-mark","expires_in":-1}"#.to_owned()), "ended already"),
        (TokenMood::Raw("[]".to_owned()), "not one of a token"),
    ];
    for (mood, says) in cases {
        evil.set(mood.clone());
        let (asked, sent) = (evil.asked().len(), upstream.sent("authorization").len());
        let shown = put(&tenant.platform, "up", &login(&evil, "gw")).await.expect(200);
        assert_eq!(
            (&shown["oauth"]["state"], &shown["connection"]),
            (&json!("waiting"), &json!("disconnected")),
            "{mood:?}"
        );
        let error = shown["oauth"]["last_error"].as_str().unwrap();
        assert!(error.contains(says), "{mood:?}: {error}");
        assert_eq!(evil.asked().len(), asked + 1, "{mood:?}");
        assert_eq!(
            upstream.sent("authorization").len(),
            sent,
            "{mood:?}: the server was asked without a token"
        );
        let text = server(&tenant.platform, "up").await.to_string();
        assert!(!text.contains("evil-mark") && !text.contains("s3cret"), "{mood:?}: {text}");
    }
    assert!(victim.asked().is_empty(), "a redirect was followed");
    assert!(!stage.gateway.log().contains("evil-mark"));
    evil.set(TokenMood::Well);
    let shown = put(&tenant.platform, "up", &login(&evil, "gw")).await.expect(200);
    assert_eq!(shown["connection"], "connected");
    call(&tenant.agent().await, "up:t").await.ok();
}

#[tokio::test]
async fn egress_rules_hold_for_login_services() {
    let stage = Stage::with(&[("MCPPROXY__EGRESS__ALLOW", "127.0.0.1/32")]).await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    tenant
        .platform
        .post("/api/v1/servers", &json!({"name": "up", "kind": "http", "url": upstream.url}))
        .await
        .expect(201);
    for endpoint in [
        "http://127.0.0.2:1/token",
        "http://169.254.169.254/token",
        "http://idp.example/token",
        "file:///etc/passwd",
    ] {
        let mut body = login(&tokens, "gw");
        body["token_endpoint"] = json!(endpoint);
        let answer = put(&tenant.platform, "up", &body).await;
        if endpoint.starts_with("http://idp") {
            // its name is looked up when it is asked: without TLS it is not
            let shown = answer.expect(200);
            assert_eq!(shown["oauth"]["state"], "waiting", "{shown}");
        } else {
            answer.refused(400, "invalid_request");
        }
    }
}
