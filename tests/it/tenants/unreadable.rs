//! What one tenant's rows hold, or how long they take to read, is no other tenant's concern.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection};

use crate::support::{Api, Mcp, Stage, Tool, Upstream, settle};

/// A few polls.
const SOON: Duration = Duration::from_secs(10);
/// Keys must be confirmed within this.
const STALE_S: u64 = 4;
const STALE: [(&str, &str); 1] = [("MCPPROXY__AUTH__STALE_MAX_S", "4")];

async fn status(api: &Api) -> u16 {
    api.get("/api/v1/status").await.status
}

/// What a newer release would write while replicas are replaced one by one.
async fn write(stage: &Stage, statement: &str) {
    let bump = "update revisions set rev = rev + 1 where kind = 'access' and tenant_id =
        (select tenant_id from tenants where name = 'acme')";
    let text = format!("{statement}; {bump}");
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut stage.database.connect().await).await.unwrap();
}

/// Asks as long as keys could be used that nobody confirms, and a little longer.
async fn is_untouched(stage: &Stage, neighbour: &Api) {
    let until = Instant::now() + Duration::from_secs(STALE_S + 1);
    settle(true, SOON, || async {
        assert_eq!(status(neighbour).await, 200);
        assert_eq!(stage.gateway.anonymous().get("/readyz").await.text.trim(), "ready");
        Instant::now() > until
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_read_as_strictly_as_can_be() {
    let stage = Stage::with(&STALE).await;
    let (tenant, neighbour) = (stage.tenant("acme").await, stage.tenant("zeta").await);
    let upstream = Upstream::handshake(vec![Tool::reads("look"), Tool::writes("change")]).await;
    tenant.add("up", &upstream).await;
    let (agent, neighbour) = (tenant.agent().await, neighbour.agent().await);
    let run = async |variant: &str, tool: &str| Mcp::bare(&agent).run(variant, tool, &json!({})).await.code();
    assert_eq!(run("write", "up:change").await, "ok");
    status(&neighbour).await;
    let settings = async || tenant.platform.get("/api/v1/settings").await.expect(200);
    tenant.platform.patch("/api/v1/settings", &json!({"strict_server_validation": true})).await.expect(200);

    let newer = r#"{"max_operation": "look", "tool_names": "new", "intent_declaration": 7, "later": 1,
        "activity_retention_days": 1.5}"#;
    write(
        &stage,
        &format!(
            "update settings set value = '{newer}' where value ? 'strict_server_validation';
             update tenants set quotas = '{{\"keys\": \"x\", \"later\": 2}}' where name = 'acme'"
        ),
    )
    .await;
    settle("missing_intent".to_owned(), SOON, || run("read", "up:look")).await;
    is_untouched(&stage, &neighbour).await;
    let shown = settings().await;
    assert_eq!(shown["max_operation"], json!({"value": "read", "origin": "tenant"}));
    assert_eq!(shown["intent_declaration"], json!({"value": "required", "origin": "tenant"}));
    tenant.platform.post("/api/v1/keys", &json!({"role": "agent"})).await.refused(429, "rate_limited");
    let platform = tenant.platform.without_tenant();
    assert_eq!(platform.items("/api/v1/tenants").await.len(), 2);
    let quotas = platform.get("/api/v1/tenants/acme").await.expect(200)["quotas"].clone();
    assert_eq!(quotas["keys"], json!({"value": 0, "origin": "tenant", "used": 1}));

    // whoever changes one thing leaves the others as they were written
    tenant.platform.patch("/api/v1/settings", &json!({"intent_declaration": "inferred"})).await.expect(200);
    assert_eq!(run("write", "up:change").await, "operation_not_permitted");
    tenant.platform.patch("/api/v1/settings", &json!({"max_operation": "write"})).await.expect(200);
    assert_eq!(run("write", "up:change").await, "ok");
    platform.patch("/api/v1/tenants/acme", &json!({"quotas": {"keys": 5}})).await.expect(200);
    let kept =
        "select count(*) from settings where value ->> 'later' = '1' and value ->> 'tool_names' = 'new'
        and value ->> 'max_operation' = 'write'";
    assert_eq!(stage.database.count(kept).await, 1);
    let kept = "select count(*) from tenants where quotas = '{\"keys\": 5, \"later\": 2}'";
    assert_eq!(stage.database.count(kept).await, 1);
    tenant.agent().await;
}

/// Who waits for a lock that somebody holds on one tenant's rows.
#[tokio::test(flavor = "multi_thread")]
async fn whose_keys_cannot_be_read_for_too_long_waits_alone() {
    let stage = Stage::with(&STALE).await;
    let (tenant, neighbour) = (stage.tenant("acme").await, stage.tenant("zeta").await);
    let (agent, neighbour) = (tenant.agent().await, neighbour.agent().await);
    for api in [&agent, &neighbour] {
        assert_eq!(status(api).await, 200);
    }
    let mut connection = stage.database.connect().await;
    let mut lock = connection.begin().await.unwrap();
    sqlx::raw_sql("lock table settings in access exclusive mode").execute(&mut *lock).await.unwrap();
    write(&stage, "select 1").await;
    is_untouched(&stage, &neighbour).await;
    settle(503, SOON, || status(&agent)).await;
    tenant.platform.get("/api/v1/status").await.refused(503, "unavailable");
    lock.rollback().await.unwrap();
    settle(200, SOON, || status(&agent)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_are_not_known_are_shown_as_they_are() {
    let stage = Stage::with(&STALE).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    // so that no listing writes the words of this release
    tenant.platform.patch("/api/v1/servers/up", &json!({"enabled": false})).await.expect(200);
    let newer =
        "alter table servers drop constraint servers_era_check, drop constraint servers_connection_check;
        alter table tools drop constraint tools_drift_check;
        update servers set era = 'third', connection = 'resting';
        update tools set drift = 'to_worse', drifted_at = now()";
    write(&stage, newer).await;
    let platform = tenant.platform.undocumented();
    let server = platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!((&server["era"], &server["connection"]), (&json!("third"), &json!("resting")));
    let tools = platform.items("/api/v1/servers/up/tools").await;
    assert_eq!((&tools[0]["name"], &tools[0]["drift"]), (&json!("look"), &json!(null)));
}
