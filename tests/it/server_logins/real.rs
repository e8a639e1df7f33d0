//! A login at an authorization server that others wrote.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Replicas, call, put, tools};
use crate::support::{Provider, Upstream};

/// npm `oidc-provider`, whose issuer is named: a JWT for the server's URL, asked for once by three replicas.
#[tokio::test]
async fn npm_oidc_provider_gives_one_token_to_three_replicas() {
    let replicas = Replicas::start(&[]).await;
    let tenant = replicas.stage.tenant("acme").await;
    let provider = Provider::oidc_provider(600).await;
    let upstream = Upstream::modern(tools()).await;
    upstream.name_issuer(&provider.url);
    let (issuer, audience) = (provider.url.clone(), upstream.url.clone());
    upstream.guard(move |token| {
        let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let claims: Value = claims.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        claims["iss"] == *issuer && claims["aud"] == *audience && claims["client_id"] == "robot"
    });
    tenant
        .platform
        .post("/api/v1/servers", &json!({"name": "up", "kind": "http", "url": upstream.url}))
        .await
        .expect(201);
    let login = json!({
        "kind": "client_credentials", "client_id": "robot", "client_secret": "secret-of-the-robot", "scopes": ["mcp:write"],
        "issuer": provider.url,
    });
    let shown = put(&tenant.platform, "up", &login).await.expect(200);
    assert_eq!(
        (&shown["connection"], &shown["oauth"]["issuer"]),
        (&json!("connected"), &json!(provider.url)),
        "{shown}"
    );
    let agent = tenant.agent().await;
    let calls =
        (0..5).flat_map(|_| replicas.each(&agent)).map(|api| async move { call(&api, "up:t").await.ok() });
    assert_eq!(join_all(calls).await.len(), 15);
    assert_eq!(provider.answered("/token").len(), 1);
    let wrong =
        json!({"kind": "client_credentials", "client_id": "robot", "client_secret": "secret-of-nobody"});
    let shown = put(&tenant.platform, "up", &wrong).await.expect(200);
    assert_eq!(shown["connection"], "login_required", "{shown}");
}
