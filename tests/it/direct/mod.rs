//! `/mcp/direct`: every tool listed and called under its own name.

mod call;
mod doors;
mod fidelity;
mod list;
mod names;
mod offers;
mod refusals;
mod replicas;

use serde_json::{Value, json};

use crate::support::{Api, Mcp, Outcome, Stage, Tenant};

/// Switches the endpoint on for the deployment.
const ON: (&str, &str) = ("MCPPROXY__DIRECT__ENABLED", "true");

/// A tenant of a deployment where the endpoint is on, for its inferred keys as well.
async fn scene() -> (Stage, Tenant) {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    (stage, tenant)
}

/// A tenant whose keys have the endpoint.
async fn open(stage: &Stage, name: &str) -> Tenant {
    let tenant = stage.tenant(name).await;
    tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
    tenant
}

/// A modern client of the endpoint.
fn modern(api: &Api) -> Mcp {
    Mcp::modern(api).at(crate::support::DIRECT)
}

/// What is listed, as the names alone.
async fn names(client: &Mcp) -> Vec<String> {
    client.tools().await.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The code of a refusal, wherever it stands.
fn refusal(outcome: &Outcome) -> Value {
    let result = outcome.result();
    assert_eq!(result["isError"], true, "{result}");
    let said = [&result["structuredContent"], &result["_meta"]["mcpproxy/refusal"]];
    let said: Vec<&Value> = said.into_iter().filter(|said| said.is_object()).collect();
    let [said] = said.as_slice() else { panic!("said {} times: {result}", said.len()) };
    (*said).clone()
}
