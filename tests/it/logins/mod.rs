//! Logins with tokens of an identity provider.

mod blocks;
mod check;
mod fetches;
mod issuers;
mod keys;
mod metadata;
mod official;
mod people;
pub mod providers;
mod refused;
mod step_up;
mod tokens;

use serde_json::{Value, json};

use crate::support::{Api, Idp, Stage, Tenant};

/// Public URL of the gateway in these tests, and the audience of its tokens.
pub const GATEWAY: &str = "https://gw.example";
/// Settings of these tests.
pub const SETTINGS: [(&str, &str); 1] = [("MCPPROXY__SERVER__PUBLIC_URL", GATEWAY)];

/// Registers a provider whose people all belong to a tenant.
pub async fn register(stage: &Stage, idp: &Idp, name: &str, tenant: &str) {
    register_url(stage, &idp.url, name, tenant).await;
}

/// Registers the provider with this issuer URL, whose people all belong to a tenant.
pub async fn register_url(stage: &Stage, url: &str, name: &str, tenant: &str) {
    let body = json!({"name": name, "issuer": url, "tenant": tenant});
    let made = stage.platform().post("/api/v1/issuers", &body).await.expect(201);
    assert_eq!(made["keys_error"], Value::Null, "{made}");
}

/// Replaces the rules of a tenant that has none yet.
pub async fn set_rules(tenant: &Tenant, rules: Value) {
    let path = "/api/v1/identity/rules";
    let version = tenant.platform.get(path).await.expect(200)["version"].clone();
    let body = json!({"version": version, "rules": rules});
    tenant.platform.ask(reqwest::Method::PUT, path, Some(&body)).await.expect(200);
}

/// A caller with a token.
pub fn bearer(stage: &Stage, token: &str) -> Api {
    stage.gateway.anonymous().with_key(token)
}

/// A gateway, a tenant whose people may use tools as agents, and their provider.
pub async fn scene() -> (Stage, Tenant, Idp) {
    scene_with(&[]).await
}

/// A scene with settings of its own on top.
pub async fn scene_with(settings: &[(&str, &str)]) -> (Stage, Tenant, Idp) {
    let stage = Stage::with(&[&SETTINGS[..], settings].concat()).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    register(&stage, &idp, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    (stage, tenant, idp)
}
