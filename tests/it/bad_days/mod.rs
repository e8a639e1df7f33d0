//! The database has a bad day. What must hold on each: reads go on while the buffer lasts, nothing that writes
//! runs unrecorded or twice, `/readyz` says so, and all is well again by itself.

mod away;
mod failover;
mod flapping;
mod refusing;
mod restarted;
mod writers;

use std::time::Duration;

use serde_json::json;

use crate::support::{Api, Database, Gateway, Line, Mcp, Stage, Tenant, Tool, Upstream, settle};

/// A gateway whose database is at the end of a line that can be cut.
struct Scene {
    line: Line,
    stage: Stage,
    tenant: Tenant,
    agent: Api,
    upstream: Upstream,
}

impl Scene {
    async fn on(database: Database, settings: &[(&str, &str)]) -> Scene {
        Gateway::migrate(&database);
        let line = Line::to(database.port()).await;
        let url = line.url(&database.url());
        let mut all = vec![("MCPPROXY__DATABASE__URL", url.as_str())];
        all.extend(settings);
        let stage = Stage { gateway: Gateway::start(&database, &all).await, database };
        let tenant = stage.tenant("acme").await;
        let upstream = Upstream::handshake(vec![Tool::writes("echo"), Tool::reads("look")]).await;
        tenant.add("up", &upstream).await;
        let agent = tenant.agent().await;
        let scene = Scene { line, stage, tenant, agent, upstream };
        assert_eq!((scene.read().await, scene.write("first").await), ("ok".to_owned(), "ok".to_owned()));
        scene
    }

    async fn read(&self) -> String {
        Mcp::bare(&self.agent).run("read", "up:look", &json!({"ticket": "r"})).await.code()
    }

    async fn write(&self, ticket: &str) -> String {
        Mcp::bare(&self.agent).run("write", "up:echo", &json!({"ticket": ticket})).await.code()
    }

    /// Status and body of `/readyz`.
    async fn ready(&self) -> (u16, String) {
        let answer = self.stage.gateway.anonymous().get("/readyz").await;
        (answer.status, answer.text.trim().to_owned())
    }

    async fn becomes(&self, status: u16, text: &str, bound: Duration) {
        settle((status, text.to_owned()), bound, || self.ready()).await;
    }

    /// Every call that reached the upstream has one record, none ran twice, and nothing stays open.
    async fn all_is_accounted_for(&self) {
        let database = &self.stage.database;
        settle(0, Duration::from_secs(10), || database.count("select count(*) from activity_open")).await;
        let mut tickets: Vec<String> =
            self.upstream.tickets().into_iter().filter(|ticket| ticket != "r").collect();
        tickets.sort();
        let all = tickets.len();
        tickets.dedup();
        assert_eq!(tickets.len(), all, "a call ran twice");
        let rows: Vec<(String, String)> = sqlx::query_as(
            "select arguments, status from activity where type = 'tool_call' and tool = 'echo'",
        )
        .fetch_all(&mut database.connect().await)
        .await
        .unwrap();
        for ticket in &tickets {
            let of_it: Vec<&(String, String)> =
                rows.iter().filter(|(arguments, _)| arguments.contains(&format!("\"{ticket}\""))).collect();
            assert_eq!(of_it.len(), 1, "{ticket}: {of_it:?}");
            assert_eq!(of_it[0].1, "success", "{ticket} was run");
        }
        let rejected = rows.iter().filter(|(_, status)| status == "rejected").count();
        assert_eq!(rows.len(), tickets.len() + rejected, "{rows:?}");
    }
}
