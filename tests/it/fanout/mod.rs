//! Word of changed lists: who is told, on which replica, how soon and how often.

mod burst;
mod cut;
mod ids;
mod killed;
mod misled;
mod offers;
mod official;
mod rights;
mod told;

use std::time::Duration;

use serde_json::json;

use crate::support::{Api, DIRECT, Database, Ear, Gateway, Mcp, PgBouncer, Stage, Tenant, Tool, Upstream};

/// Switches the endpoint on for the deployment.
const ON: (&str, &str) = ("MCPPROXY__DIRECT__ENABLED", "true");
/// Nothing is listed again by itself.
const NO_RELIST: (&str, &str) = ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600");
/// Within this an admin's act is told (behaviour, section 7).
const ACT: Duration = Duration::from_secs(1);
/// Within this an upstream's own change is told.
const OWN: Duration = Duration::from_secs(2);

/// Two replicas, and a tenant whose keys have the endpoint.
struct Scene {
    other: Gateway,
    stage: Stage,
    tenant: Tenant,
    /// They run as long as the scene.
    upstreams: Vec<Upstream>,
}

impl Scene {
    async fn set() -> Scene {
        let settings = [ON, NO_RELIST];
        let stage = Stage::with(&settings).await;
        let other = Gateway::start(&stage.database, &settings).await;
        let tenant = open(&stage, "acme").await;
        Scene { other, stage, tenant, upstreams: Vec::new() }
    }

    /// A tool server, every definition of which is taken as it is.
    async fn add(&mut self, name: &str, tools: &[&str]) {
        let upstream = Upstream::handshake(tools.iter().map(|name| Tool::reads(name)).collect()).await;
        self.tenant.add_with(name, &upstream, json!({"auto_approve": true})).await;
        self.upstreams.push(upstream);
    }

    async fn act(&self, server: &str, act: &str) {
        self.tenant.platform.post(&format!("/api/v1/servers/{server}/{act}"), &json!({})).await.expect(200);
    }

    /// The same key at the other replica.
    fn there(&self, api: &Api) -> Api {
        self.other.ask_as(api)
    }
}

/// A tenant whose keys have the endpoint.
async fn open(stage: &Stage, name: &str) -> Tenant {
    let tenant = stage.tenant(name).await;
    tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
    tenant
}

/// A replica that reaches its database through this pooler.
async fn pooled(database: &Database, bouncer: &PgBouncer) -> Gateway {
    let (through, direct) = (bouncer.url(database), database.url());
    let settings = [
        ON,
        NO_RELIST,
        ("MCPPROXY__DATABASE__URL", through.as_str()),
        ("MCPPROXY__DATABASE__DIRECT_URL", direct.as_str()),
        ("MCPPROXY__DATABASE__STATEMENT_CACHE", "0"),
    ];
    Gateway::start(database, &settings).await
}

/// A handshake session on `/mcp/direct`.
async fn session(api: &Api) -> Mcp {
    Mcp::direct(api).shake_hands("2025-11-25").await
}

/// A modern client of it.
fn modern(api: &Api) -> Mcp {
    Mcp::modern(api).at(DIRECT)
}

/// A listener of each era.
async fn ears(api: &Api) -> [Ear; 2] {
    [Ear::of(&session(api).await, None).await, Ear::of(&modern(api), None).await]
}

/// The names of a client's tools.
async fn names(client: &Mcp) -> Vec<String> {
    let tools = client.tools().await;
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}
