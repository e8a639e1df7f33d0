//! Subscriptions to resources and log levels: told to one replica, known to all, and nobody else hears of them.

mod heard;
pub mod logs;
mod lost;
mod many;
mod rights;
mod wishes;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::upstream::{Era, Offers};
use crate::support::{Api, DIRECT, Ear, Gateway, Mcp, Stage, Tenant, Tool, Upstream, eventually, settle};

/// Switches the endpoint on for the deployment.
const ON: (&str, &str) = ("MCPPROXY__DIRECT__ENABLED", "true");
/// Setting by which no server is listed again by itself.
const NO_RELIST: (&str, &str) = ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600");
/// Time within which an update is told, and a watch opened.
const TOLD: Duration = Duration::from_secs(5);

/// Three replicas, a tenant, and a server whose resources are watched.
struct Scene {
    others: Vec<Gateway>,
    stage: Stage,
    tenant: Tenant,
    upstream: Upstream,
}

impl Scene {
    async fn set(era: Era) -> Scene {
        let stage = Stage::with(&[ON, NO_RELIST]).await;
        let mut others = Vec::new();
        for _ in 0..2 {
            others.push(Gateway::start(&stage.database, &[ON, NO_RELIST]).await);
        }
        let tenant = open(&stage, "acme").await;
        let upstream = serve(&tenant, era, "docs").await;
        // the stream on which it announces changes of its lists
        settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
        Scene { others, stage, tenant, upstream }
    }

    /// A replica, by its number.
    fn replica(&self, number: usize) -> &Gateway {
        match number {
            0 => &self.stage.gateway,
            _ => &self.others[number - 1],
        }
    }

    /// A key's client at a replica, in a session that began at another.
    fn there(&self, session: &Mcp, replica: usize) -> Mcp {
        Mcp::in_session(&self.replica(replica).ask_as(&session.api), session.session_id()).at(DIRECT)
    }

    /// Waits until so many streams are open at the server, of which one is about its lists.
    async fn is_watched(&self, watches: usize) {
        settle(1 + watches, TOLD, || async { self.upstream.listeners() }).await;
    }
}

/// A tenant whose keys have the endpoint.
async fn open(stage: &Stage, name: &str) -> Tenant {
    let tenant = stage.tenant(name).await;
    tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
    tenant
}

/// Adds a server with two resources, whose updates it announces, and waits until they are listed.
async fn serve(tenant: &Tenant, era: Era, name: &str) -> Upstream {
    let upstream = Upstream::announcing(era, vec![Tool::reads("look")]).await;
    upstream.set_offers(Offers::subscribable(&["doc://a", "doc://b"]));
    tenant.add_with(name, &upstream, json!({"auto_approve": true})).await;
    let agent = tenant.agent().await;
    eventually("its resources to be listed", TOLD * 2, || async {
        let listed = Mcp::direct(&agent).request("resources/list", "{}").await.json();
        (listed["result"]["resources"].as_array()?.len() == 2).then_some(())
    })
    .await;
    upstream
}

async fn session(api: &Api) -> Mcp {
    Mcp::direct(api).shake_hands("2025-11-25").await
}

/// Asks with a URI, and returns the result or the error.
async fn ask(client: &Mcp, method: &str, uri: &str) -> Value {
    client.request(method, &json!({ "uri": uri }).to_string()).await.json()
}

async fn subscribe(client: &Mcp, uri: &str) {
    let answer = ask(client, "resources/subscribe", uri).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

/// Listens in a session.
async fn ear(session: &Mcp) -> Ear {
    Ear::of(session, None).await
}

/// Changes the wishes of one session as another replica does, and ends every connection on which replicas hear notices.
async fn lose_notices(stage: &Stage, change: &'static str) {
    let mut connection = stage.database.connect().await;
    assert_eq!(sqlx::raw_sql(change).execute(&mut connection).await.unwrap().rows_affected(), 1);
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and query ilike 'listen%'";
    sqlx::raw_sql(cut).execute(&mut connection).await.unwrap();
}
