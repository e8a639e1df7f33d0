//! Keys of providers: rotation, floods and outages.

use std::time::Duration;

use serde_json::json;

use super::{GATEWAY, SETTINGS, bearer, register, scene, set_rules};
use crate::support::{Api, Gateway, Idp, IdpMood, Stage, settle};

/// Within this a change made on one replica holds on the others.
const SOON: Duration = Duration::from_secs(1);
const DOWN: &str = "logins cannot be checked now because the identity provider is out of reach; API keys work; try again shortly";

async fn status(api: &Api) -> u16 {
    api.get("/api/v1/status").await.status
}

#[tokio::test]
async fn one_fetch_serves_all_replicas_after_a_rotation() {
    let (stage, _tenant, idp) = scene().await;
    let others =
        [Gateway::start(&stage.database, &SETTINGS).await, Gateway::start(&stage.database, &SETTINGS).await];
    let old = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    for gateway in &others {
        settle(200, SOON, || async { status(&gateway.ask_as(&old)).await }).await;
    }
    assert_eq!(idp.fetches(), 1);
    idp.rotate("k2");
    let new = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    assert_eq!(status(&new).await, 200);
    for gateway in &others {
        let there = gateway.ask_as(&new);
        settle(200, SOON, || status(&there)).await;
    }
    assert_eq!(idp.fetches(), 2, "one fetch for three replicas");
    // both keys count until the old one is withdrawn
    assert_eq!(status(&old).await, 200);
}

#[tokio::test]
async fn a_withdrawn_key_is_refused_despite_what_is_remembered() {
    let settings = [SETTINGS[0], ("MCPPROXY__IDENTITY__JWKS_RETRY_S", "1")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    register(&stage, &idp, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    let old = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    assert_eq!((status(&old).await, status(&old).await), (200, 200));
    idp.rotate("k2");
    idp.withdraw();
    let new = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    // a fetch for an unknown key may have been made a moment ago
    settle(200, Duration::from_secs(5), || status(&new)).await;
    assert_eq!(status(&old).await, 401);
}

#[tokio::test]
async fn a_flood_of_unknown_keys_reaches_the_provider_once() {
    let (stage, tenant, idp) = scene().await;
    let key = tenant.agent().await;
    assert_eq!(idp.fetches(), 1);
    let claims = idp.claims("u1", GATEWAY);
    let mut flood = tokio::task::JoinSet::new();
    for n in 0..300 {
        let header = json!({"alg": "ES256", "kid": format!("random-{n}")});
        let api = bearer(&stage, &idp.sign_as(&header, &claims));
        flood.spawn(async move { status(&api).await });
    }
    while let Some(done) = flood.join_next().await {
        assert_eq!(done.unwrap(), 401);
    }
    assert_eq!(idp.fetches(), 2);
    assert_eq!(status(&key).await, 200);
    assert_eq!(status(&bearer(&stage, &idp.token("u2", GATEWAY, json!({})))).await, 200);
}

#[tokio::test]
async fn a_start_in_an_outage_works_with_the_stored_keys() {
    let (stage, _tenant, idp) = scene().await;
    let warm = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    assert_eq!(status(&warm).await, 200);
    for mood in
        [IdpMood::Broken, IdpMood::Huge, IdpMood::Silent, IdpMood::Elsewhere(format!("{}/keys", idp.url))]
    {
        idp.set(mood);
        let late = Gateway::start(&stage.database, &SETTINGS).await;
        let cold = late.ask_as(&bearer(&stage, &idp.token("u2", GATEWAY, json!({}))));
        settle(200, SOON, || status(&cold)).await;
    }
    assert_eq!(status(&warm).await, 200);
}

#[tokio::test]
async fn without_usable_keys_logins_are_503_and_keys_work() {
    let stage = Stage::with(&SETTINGS).await;
    let tenant = stage.tenant("acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    let idp = Idp::start().await;
    idp.set(IdpMood::Broken);
    let body = json!({"name": "corp", "issuer": idp.url, "tenant": "acme"});
    let made = stage.platform().post("/api/v1/issuers", &body).await.expect(201);
    assert!(made["keys_error"].as_str().unwrap().contains("HTTP 500"), "{made}");
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let answer = person.get("/api/v1/status").await;
    assert_eq!(answer.refused(503, "unavailable"), DOWN);
    assert_eq!(answer.header("retry-after"), "30");
    assert_eq!(status(&tenant.agent().await).await, 200);
}

#[tokio::test]
async fn keys_that_are_too_old_are_not_used() {
    let settings = [
        SETTINGS[0],
        ("MCPPROXY__IDENTITY__JWKS_STALE_MAX_S", "1"),
        ("MCPPROXY__IDENTITY__JWKS_RETRY_S", "1"),
    ];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    register(&stage, &idp, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    settle(200, Duration::from_secs(5), || status(&person)).await;
    idp.set(IdpMood::Broken);
    settle(503, Duration::from_secs(5), || status(&person)).await;
    idp.set(IdpMood::Well);
    settle(200, Duration::from_secs(10), || status(&person)).await;
}
