//! Two replicas on one database, one of them through pgbouncer in transaction mode.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};

use crate::replicas::changes;
use crate::support::{
    Api, Database, Gateway, Mcp, PgBouncer, Stage, Tenant, Tool, Upstream, plain, run_to_end,
};

/// Within this a change made on one replica holds on the other.
const SOON: Duration = Duration::from_secs(2);
const TASKS: usize = 12;
const CALLS: usize = 15;

struct Pooled {
    /// Straight to Postgres.
    stage: Stage,
    /// Through pgbouncer.
    pooled: Gateway,
    bouncer: PgBouncer,
    tenant: Tenant,
    upstream: Upstream,
}

async fn two() -> Pooled {
    let database = Database::migrated().await;
    let bouncer = PgBouncer::start(&database).await;
    let (through, direct) = (bouncer.url(&database), database.url());
    let settings = [
        ("MCPPROXY__DATABASE__URL", through.as_str()),
        ("MCPPROXY__DATABASE__DIRECT_URL", direct.as_str()),
        ("MCPPROXY__DATABASE__STATEMENT_CACHE", "0"),
    ];
    let pooled = Gateway::start(&database, &settings).await;
    let stage = Stage { gateway: Gateway::start(&database, &[]).await, database };
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo"), Tool::reads("look")]).await;
    Pooled { stage, pooled, bouncer, tenant, upstream }
}

/// Calls of every kind at once, and the records of each, as the other replica shows them.
async fn calls(agent: &Api) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = Mcp::bare(agent);
            tokio::spawn(async move {
                for call in 0..CALLS {
                    let arguments = json!({"ticket": format!("{task}-{call}")});
                    let (variant, tool) =
                        if call % 3 == 0 { ("read", "up:look") } else { ("write", "up:echo") };
                    client.run(variant, tool, &arguments).await.ok();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_behind_pgbouncer_does_all_that_another_does() {
    let Pooled { stage, pooled, bouncer, tenant, upstream } = two().await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let through = pooled.ask_as(&agent);
    through.get("/api/v1/status").await.expect(200);
    calls(&through).await;
    let all = TASKS * CALLS;
    tenant.records("type=tool_call&status=success", all).await;
    let shown = pooled.ask_as(&tenant.platform).items("/api/v1/activity?type=tool_call").await;
    assert_eq!(shown.len(), all);
    assert_eq!(stage.database.count("select count(*) from activity_open").await, 0);
    // and so does a second tenant's, at the same time, through the same few sessions
    let other = stage.tenant("other").await;
    other.add("up", &upstream).await;
    let theirs = pooled.ask_as(&other.agent().await);
    tokio::join!(calls(&through), calls(&theirs));
    tenant.records("type=tool_call&status=success", 2 * all).await;
    other.records("type=tool_call&status=success", all).await;
    assert_eq!(pooled.ask_as(&other.platform).items("/api/v1/activity?type=tool_call").await.len(), all);

    // what the sessions are left with: no role, no tenant, no statement, no setting
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut session = PgConnection::connect_with(&plain(&bouncer.url(&stage.database))).await.unwrap();
        sqlx::raw_sql("begin").execute(&mut session).await.unwrap();
        held.push(session);
    }
    for session in &mut held {
        let state: (String, String, i64, String) = sqlx::query_as(
            "select current_user::text, coalesce(current_setting('app.tenant', true), ''),
                (select count(*) from pg_prepared_statements), current_setting('statement_timeout')",
        )
        .persistent(false)
        .fetch_one(session)
        .await
        .unwrap();
        assert_eq!((state.0.as_str(), state.1.as_str(), state.3.as_str()), ("postgres", "", "0"));
        // the one that asks is not kept either
        assert_eq!(state.2, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_pass_between_a_pooled_replica_and_a_direct_one() {
    let Pooled { stage, pooled, bouncer: _bouncer, tenant, upstream } = two().await;
    changes(&tenant, &pooled, &upstream, SOON).await;
    // and the other way round
    let there = pooled.ask_as(&tenant.platform);
    let admin = pooled.platform();
    admin.post("/api/v1/tenants", &json!({"name": "second"})).await.expect(201);
    let second = Tenant::of(&there.as_tenant("second"), &pooled.anonymous());
    changes(&second, &stage.gateway, &upstream, SOON).await;
}

/// What a pooler cannot carry is named at the start, not met later as somebody else's statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_mixes_up_statements_stops_the_start() {
    let database = Database::migrated().await;
    let bouncer = PgBouncer::start(&database).await;
    let (through, direct) = (bouncer.url(&database), database.url());
    let settings =
        [("MCPPROXY__DATABASE__URL", through.as_str()), ("MCPPROXY__DATABASE__DIRECT_URL", direct.as_str())];
    // from this version on it keeps them apart unless told otherwise
    if PgBouncer::version() >= (1, 24) {
        Gateway::start(&database, &settings).await;
        return;
    }
    let ended = run_to_end(&database, &["serve"], &settings);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("database.statement_cache = 0"), "{said}");
}

/// A pooler where Postgres itself is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_direct_url_through_a_pooler_stops_the_start() {
    let database = Database::migrated().await;
    let bouncer = PgBouncer::start(&database).await;
    let through = bouncer.url(&database);
    for command in ["serve", "migrate"] {
        let ended = run_to_end(&database, &[command], &[("MCPPROXY__DATABASE__URL", &through)]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(3) && said.contains("database.direct_url"), "{command}: {said}");
    }
}
