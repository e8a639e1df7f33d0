//! Definition pins on every way to a tool: what is not approved is nowhere, and what people say of a tool counts.

mod blocks;
mod drift;
mod gone_offers;
mod offers;
mod overrides;
mod rights;
mod states;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Mcp, Outcome, Stage, Tenant, Tool, Upstream};

/// A tenant whose keys have `/mcp/direct`, with one server, `up`.
struct Scene {
    stage: Stage,
    tenant: Tenant,
    upstream: Upstream,
}

impl Scene {
    async fn with(tools: Vec<Tool>, server: Value) -> Scene {
        let stage = Stage::with(&[("MCPPROXY__DIRECT__ENABLED", "true")]).await;
        let tenant = stage.tenant("acme").await;
        tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
        let upstream = Upstream::handshake(tools).await;
        tenant.add_with("up", &upstream, server).await;
        Scene { stage, tenant, upstream }
    }

    /// The server offers these from now on.
    async fn offers(&self, tools: Vec<Tool>) {
        self.upstream.set_tools(tools);
        self.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    }

    /// A tool as its page shows it.
    async fn tool(&self, name: &str) -> Value {
        let tools = self.tenant.platform.items("/api/v1/servers/up/tools").await;
        tools.into_iter().find(|tool| tool["name"] == name).unwrap_or(Value::Null)
    }

    async fn pin(&self, name: &str) -> Value {
        self.tool(name).await["pin"].clone()
    }

    async fn approve(&self, name: &str) {
        let body = json!({"pin": self.pin(name).await});
        let done =
            decide(&self.tenant.platform, Method::POST, name, "approve", Some(&body)).await.expect(200);
        assert_eq!(done["state"], "approved");
    }
}

/// Decides something about a tool of `up`.
async fn decide(api: &Api, method: Method, tool: &str, verb: &str, body: Option<&Value>) -> Answer {
    api.ask(method, &format!("/api/v1/servers/up/tools/{tool}/{verb}"), body).await
}

/// What a search finds of `up`, by name, without the server's.
async fn found(client: &Mcp) -> Vec<String> {
    let found = client.search(&json!({"query": "tool of the test server", "limit": 100})).await;
    let mut names: Vec<String> = found["tools"].as_array().unwrap().iter().map(own_name).collect();
    names.sort();
    names
}

/// What `/mcp/direct` lists, likewise.
async fn listed(client: &Mcp) -> Vec<String> {
    client.tools().await.iter().filter(|tool| is_of_up(tool)).map(own_name).collect()
}

/// How a call on `/mcp/direct` ended: where a definition is not the approved one, a refusal stands in `_meta`.
fn direct_code(outcome: &Outcome) -> String {
    match &outcome.answer.json()["result"]["_meta"]["mcpproxy/refusal"]["code"] {
        Value::String(code) => code.clone(),
        _ => outcome.code(),
    }
}

fn is_of_up(tool: &Value) -> bool {
    tool["name"].as_str().unwrap().starts_with("up:")
}

fn own_name(tool: &Value) -> String {
    tool["name"].as_str().unwrap().trim_start_matches("up:").to_owned()
}
