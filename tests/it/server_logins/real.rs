//! A login at an authorization server that others wrote.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Replicas, SOON, call, put, tools};
use crate::logins::bearer;
use crate::logins::providers::Scene as ProviderScene;
use crate::support::{Provider, Upstream, Visitor, eventually, now_s, settle};

/// Claims of a token; a real server verifies its signature first.
fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    claims.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

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
        let claims = claims(token);
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

/// npm `oidc-provider` with its users' grant: people log in there at the gateway, and the server gets tokens of theirs for itself.
#[tokio::test]
async fn npm_oidc_provider_exchanges_the_tokens_of_people() {
    let scene = ProviderScene::start(Provider::oidc_provider(600).await, &[]).await;
    let upstream = Upstream::modern(tools()).await;
    let (issuer, audience) = (scene.provider.url.clone(), upstream.url.clone());
    upstream.guard(move |token| {
        let claims = claims(token);
        claims["iss"] == *issuer && claims["aud"] == *audience && claims["client_id"] == "robot"
    });
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    scene.tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    let login = json!({
        "kind": "token_exchange", "client_id": "robot", "client_secret": "secret-of-the-robot", "scopes": ["mcp:write"],
        "issuer": scene.provider.url,
    });
    let shown = put(&scene.tenant.platform, "up", &login).await.expect(200);
    assert_eq!(shown["connection"], "connected", "{shown}");
    let ana = bearer(&scene.stage, &scene.provider.person(&scene.balancer.url).await);
    for at in [ana.clone(), scene.others[0].ask_as(&ana), scene.others[1].ask_as(&ana)] {
        settle("ok".to_owned(), SOON, || async { call(&at, "up:t").await.code() }).await;
        call(&at, "up:t").await.ok();
        let sent =
            claims(upstream.calls().pop().unwrap().headers["authorization"].trim_start_matches("Bearer "));
        assert_eq!((&sent["sub"], &sent["scope"]), (&json!("ana"), &json!("mcp:write")), "{sent}");
    }
    let exchanges = scene.provider.answered("/token").into_iter();
    let exchanges = exchanges.filter(|answer| answer["params"]["subject_token"].is_string()).count();
    assert_eq!(exchanges, 3, "one for each replica");
}

/// npm `oidc-provider` with people who log in at the server themselves, in a browser; the gateway registers itself there.
#[tokio::test]
async fn npm_oidc_provider_logs_people_in_at_a_server() {
    let gateway = "https://gw.example";
    let replicas = Replicas::start(&[("MCPPROXY__SERVER__PUBLIC_URL", gateway)]).await;
    let tenant = replicas.stage.tenant("acme").await;
    // of so short a life that it is renewed in this test
    let provider = Provider::of_registered_clients_for(4).await;
    let upstream = Upstream::modern(tools()).await;
    upstream.name_issuer(&provider.url);
    let (issuer, audience) = (provider.url.clone(), upstream.url.clone());
    upstream.guard(move |token| {
        let claims = claims(token);
        claims["iss"] == *issuer
            && claims["aud"] == *audience
            && claims["sub"] == "ana"
            && ends_later(&claims)
    });
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    let login = json!({"kind": "authorization_code", "scopes": ["mcp:write", "offline_access"]});
    let shown = put(&tenant.platform, "up", &login).await.expect(200);
    assert_eq!(
        (&shown["oauth"]["registration"], &shown["oauth"]["issuer"]),
        (&json!("dynamic"), &json!(provider.url))
    );
    let admin = tenant.admin().await;
    let body = json!({"redirect_uri": "http://127.0.0.1:9/done", "for_listing": true});
    let begun = admin.post("/api/v1/servers/up/connections", &body).await.expect(201);
    let visitor = Visitor::by(&replicas.stage.gateway, gateway);
    let back = visitor.through_provider(begun["url"].as_str().unwrap()).await;
    let answer = visitor.get(&back).await;
    let (_, code) = answer.header("location").split_once("?code=").unwrap_or_else(|| panic!("{answer:?}"));
    admin.post("/api/v1/servers/up/connections/claim", &json!({"claim_token": code})).await.expect(200);
    for at in replicas.each(&admin) {
        settle("ok".to_owned(), SOON, || async { call(&at, "up:t").await.code() }).await;
    }
    // beyond the life of two tokens, renewed once for all
    let renewals = || {
        let answers = provider.answered("/token").into_iter();
        answers.filter(|answer| answer["params"]["grant_type"] == "refresh_token").collect::<Vec<_>>()
    };
    eventually("two renewals", SOON * 2, || async {
        for at in replicas.each(&admin) {
            call(&at, "up:t").await.ok();
        }
        (renewals().len() >= 2).then_some(())
    })
    .await;
    assert!(renewals().iter().all(|answer| answer["status"] == 200), "{:?}", renewals());
    // disconnected, its tokens are revoked there
    let connections = admin.get("/api/v1/servers/up/connections").await.expect(200);
    let id = connections["items"][0]["id"].as_str().unwrap();
    admin.delete(&format!("/api/v1/servers/up/connections/{id}")).await.expect(204);
    settle(true, SOON, || async { !provider.answered("/token/revocation").is_empty() }).await;
    for at in replicas.each(&admin) {
        settle("upstream_login_required".to_owned(), SOON, || async { call(&at, "up:t").await.code() }).await;
    }
}

fn ends_later(claims: &Value) -> bool {
    claims["exp"].as_i64().is_some_and(|end| end > now_s())
}
