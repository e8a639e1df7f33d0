//! Policies: rules that allow a call, ask a person first, or deny it.

mod command;
mod documents;
mod enforced;
mod explain;
mod layers;
mod replicas;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Mcp, Stage, Tenant, Upstream, upstream};

/// A tenant with the zoo, on a deployment with `/mcp/direct` and these settings.
async fn zoo(settings: &[(&str, &str)]) -> (Stage, Tenant, Upstream) {
    let stage = Stage::with(&[&[("MCPPROXY__DIRECT__ENABLED", "true")], settings].concat()).await;
    let tenant = stage.tenant("acme").await;
    tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    (stage, tenant, upstream)
}

/// Replaces a policy.
async fn put(api: &Api, path: &str, body: &Value) -> Answer {
    api.ask(Method::PUT, &format!("/api/v1{path}"), Some(body)).await
}

/// Replaces the tenant's policy, whatever its version.
async fn set(tenant: &Tenant, mode: &str, rules: Value) -> Value {
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "mode": mode, "rules": rules});
    put(&tenant.platform, "/policy", &body).await.expect(200)
}

/// Outcome of a call, as a code.
async fn code(api: &Api, variant: &str, tool: &str) -> String {
    Mcp::bare(api).run(variant, &format!("zoo:{tool}"), &json!({})).await.code()
}
