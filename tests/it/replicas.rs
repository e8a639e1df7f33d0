//! Two gateways on one database.

use std::time::Duration;

use serde_json::json;

use crate::support::{Api, Gateway, Mcp, Stage, Tenant, Tool, Upstream, settle};

/// Within this a change made on one replica holds on the other.
const SOON: Duration = Duration::from_secs(1);
/// The same when every notice was lost: one poll, and the reload.
const POLLED: Duration = Duration::from_millis(3500);

async fn two() -> (Stage, Gateway, Tenant, Upstream) {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    (stage, other, tenant, upstream)
}

async fn code(api: &Api) -> String {
    Mcp::bare(api).run("write", "up:echo", &json!({})).await.code()
}

/// Each kind of change once, made on the first replica, awaited on the other.
pub async fn changes(tenant: &Tenant, other: &Gateway, upstream: &Upstream, bound: Duration) {
    let here = &tenant.platform;
    let agent = tenant.agent().await;
    let there = other.ask_as(&agent);
    // an unknown key is looked up: a new one is usable at once
    there.get("/api/v1/status").await.expect(200);
    assert_eq!(code(&there).await, "not_found");

    tenant.add("up", upstream).await;
    settle("ok".to_owned(), bound, || code(&there)).await;
    assert_eq!(Mcp::bare(&there).search(&json!({"query": "echo"})).await["total"], 1);

    here.post("/api/v1/servers/up/disable", &json!({})).await.expect(200);
    settle("server_disabled".to_owned(), bound, || code(&there)).await;
    here.post("/api/v1/servers/up/enable", &json!({})).await.expect(200);
    settle("ok".to_owned(), bound, || code(&there)).await;

    here.patch("/api/v1/settings", &json!({"max_operation": "read"})).await.expect(200);
    settle("operation_not_permitted".to_owned(), bound, || code(&there)).await;
    here.patch("/api/v1/settings", &json!({"max_operation": null})).await.expect(200);
    settle("ok".to_owned(), bound, || code(&there)).await;

    let own = format!("/api/v1/keys/{}/settings", agent.id);
    here.patch(&own, &json!({"allowed_tools": ["other:*"]})).await.expect(200);
    settle("not_found".to_owned(), bound, || code(&there)).await;

    here.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    settle(401, bound, || {
        let asked = there.get("/api/v1/status");
        async { asked.await.status }
    })
    .await;
    here.delete("/api/v1/servers/up").await.expect(204);
}

#[tokio::test]
async fn a_change_reaches_the_other_replica_within_a_second() {
    let (_stage, other, tenant, upstream) = two().await;
    changes(&tenant, &other, &upstream, SOON).await;
}

/// Whoever listens is cut off, over and over: no notice gets through.
pub fn without_notices(url: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut connection = <sqlx::PgConnection as sqlx::Connection>::connect(&url).await.unwrap();
        loop {
            sqlx::query(
                "select pg_terminate_backend(pid) from pg_stat_activity
                 where datname = current_database() and query ilike 'listen%'",
            )
            .execute(&mut connection)
            .await
            .unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

#[tokio::test]
async fn lost_notices_cost_one_poll() {
    let (stage, other, tenant, upstream) = two().await;
    let cutter = without_notices(stage.database.url());
    changes(&tenant, &other, &upstream, POLLED).await;
    assert!(!cutter.is_finished());
    cutter.abort();
}

#[tokio::test]
async fn any_request_may_reach_any_replica() {
    let (_stage, other, tenant, upstream) = two().await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::session(&agent).await;
    let there = Mcp::in_session(&other.ask_as(&agent), client.session_id());
    settle("ok".to_owned(), SOON, || async { there.run("write", "up:echo", &json!({})).await.code() }).await;
    // a list is the same bytes whoever serves it
    let list = async |api: &Api| Mcp::modern(api).request("tools/list", "{}").await.text;
    assert_eq!(list(&agent).await, list(&other.ask_as(&agent)).await);
    let search = async |api: &Api| {
        Mcp::modern(api).call("retrieve_tools", &json!({"query": "echo"})).await.answer.text
    };
    assert_eq!(search(&agent).await, search(&other.ask_as(&agent)).await);
    // and so is the log
    let records = tenant.records("type=tool_call", 1).await;
    let shown = other.ask_as(&tenant.platform).items("/api/v1/activity?type=tool_call").await;
    assert_eq!(shown, records);
    client.run("write", "up:echo", &json!({})).await.ok();
    let both = tenant.records("type=tool_call", 2).await;
    assert_eq!(both[0]["session_id"], both[1]["session_id"], "one session on two replicas");
}

#[tokio::test]
async fn one_replica_goes_and_the_other_carries_on() {
    let (mut stage, other, tenant, upstream) = two().await;
    tenant.add("up", &upstream).await;
    let agent = other.ask_as(&tenant.agent().await);
    stage.gateway.kill();
    settle("ok".to_owned(), SOON, || code(&agent)).await;
    let platform = other.ask_as(&tenant.platform);
    platform.post("/api/v1/servers/up/disable", &json!({})).await.expect(200);
    assert_eq!(code(&agent).await, "server_disabled");
}
