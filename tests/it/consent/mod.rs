//! Permission requests: a person decides before a call runs.

mod acp;
mod acp_crowd;
mod acp_elsewhere;
mod acp_silent;
mod always;
mod bounds;
mod command;
mod decided;
mod denied;
mod gone;
mod held;
mod held_elsewhere;
mod held_ends;
mod in_band;
mod locale;
mod logins;
mod meanwhile;
mod operated;
mod pages;
mod replicas;
mod restarted;
mod rotated;
mod round_robin;
mod told;
mod turns;
mod tutorial;
mod watched;
mod webhook;
mod webhook_bounds;
mod webhook_rotated;
mod who;

use serde_json::{Value, json};

use crate::support::{Answer, Api, Mcp, Outcome, Stage, Tenant, Tool, Upstream, upstream};

/// A tenant with the zoo, whose every call asks; rules come first.
async fn asking(settings: &[(&str, &str)], rules: Value) -> (Stage, Tenant, Upstream) {
    asking_of(settings, rules, upstream::zoo()).await
}

/// A tenant with a server of these tools, whose every call asks; rules come first.
async fn asking_of(settings: &[(&str, &str)], rules: Value, tools: Vec<Tool>) -> (Stage, Tenant, Upstream) {
    let stage = Stage::with(settings).await;
    let (tenant, upstream) = asking_on(&stage, rules, tools).await;
    (stage, tenant, upstream)
}

/// Adds such a tenant with a server of these tools.
async fn asking_on(stage: &Stage, rules: Value, tools: Vec<Tool>) -> (Tenant, Upstream) {
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(tools).await;
    tenant.add("zoo", &upstream).await;
    set(&tenant, rules).await;
    (tenant, upstream)
}

/// The one program in this language that docs/permissions.md shows, with this address or port in the place of its own.
fn documented_program(language: &str, own: &str, other: &str) -> String {
    let page = include_str!("../../../docs/permissions.md");
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    assert!(program.contains(own), "{program}");
    program.replace(own, other)
}

/// Replaces the tenant's rules; what none matches asks.
async fn set(tenant: &Tenant, rules: Value) {
    set_mode(tenant, "always_ask", rules).await;
}

/// Replaces the tenant's rules, and the mode that decides what none matches.
async fn set_mode(tenant: &Tenant, mode: &str, rules: Value) {
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "mode": mode, "rules": rules});
    tenant.platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
}

/// Calls the tool that writes.
async fn write(api: &Api, args: &Value) -> Outcome {
    Mcp::bare(api).run("write", "zoo:writer", args).await
}

/// Calls the tool that writes, which asks; returns the id of the request.
async fn asked(api: &Api, args: &Value) -> String {
    let refused = write(api, args).await.refused("consent_pending");
    refused["consent_id"].as_str().unwrap().to_owned()
}

/// Decides a request.
async fn decide(api: &Api, id: &str, decision: &str) -> Answer {
    api.post(&format!("/api/v1/consent/{id}/decision"), &json!({ "decision": decision })).await
}

/// The state of a request.
async fn state(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/consent/{id}")).await.expect(200)["state"].clone()
}

/// Returns the reason why a request has lapsed.
async fn lapse(api: &Api, id: &str) -> Value {
    let request = api.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    assert_eq!(request["state"], "lapsed");
    request["lapse_reason"].clone()
}

/// Gives the tool that writes another definition, which an administrator approves.
async fn redefine(tenant: &Tenant, upstream: &Upstream) {
    let mut tools = upstream::zoo();
    for tool in tools.iter_mut().filter(|tool| tool.name == "writer") {
        *tool = Tool::annotated("writer", r#"{"destructiveHint":false,"title":"Other"}"#);
    }
    upstream.set_tools(tools);
    let platform = &tenant.platform;
    platform.post("/api/v1/servers/zoo/refresh", &json!({})).await.expect(200);
    let tools = platform.items("/api/v1/servers/zoo/tools").await;
    let pin = tools.iter().find(|tool| tool["name"] == "writer").unwrap()["pin"].clone();
    platform.post("/api/v1/servers/zoo/tools/writer/approve", &json!({ "pin": pin })).await.expect(200);
}
