//! The ledger of calls that filled in forms, as it is kept and read. What writes it is tested with web pages.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

use crate::support::{Database, Mcp, Stage, Tool, Upstream, settle};

const OFTEN: (&str, &str) = ("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1");
const SOON: Duration = Duration::from_secs(15);

/// A row for each record of calls in the log, with this age, as somebody writes it who has no key.
async fn forge(database: &Database, days: u64, step: u64) {
    let insert = format!(
        "insert into web_provenance (tenant_id, request_id, step, at, phase, layer, page_url, page_hash, selector, explanation,
             prev_hash, hash, principal, server_id)
         select tenant_id, id, {step}, now() - interval '{days} days', 'recorded', 'data', 'https://shop.example/',
             sha256('page'), 'q', 'sets-the-value', decode(repeat('00', 32), 'hex'), sha256('row'), gen_random_uuid(), gen_random_uuid()
         from activity where type = 'tool_call'"
    );
    database.connect().await.execute(AssertSqlSafe(insert)).await.unwrap();
}

async fn rows_of(database: &Database, tenant: &str) -> i64 {
    sqlx::query_scalar(
        "select count(*) from web_provenance where tenant_id in (select tenant_id from tenants where name = $1)",
    )
    .bind(tenant)
    .fetch_one(&mut database.connect().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn who_may_read_a_record_may_read_its_ledger_and_forged_rows_show() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("put")]).await;
    tenant.add("up", &upstream).await;
    let (ours, theirs) = (tenant.agent().await, tenant.agent().await);
    Mcp::bare(&ours).run("write", "up:put", &json!({})).await.ok();
    let record = tenant.records("type=tool_call", 1).await.remove(0);
    let path = format!("/api/v1/activity/{}/provenance", record["id"].as_str().unwrap());
    let empty = ours.get(&path).await.expect(200);
    assert_eq!(empty, json!({"items": [], "next_cursor": null, "intact": null}));
    theirs.get(&path).await.refused(404, "not_found");
    stage.tenant("other").await.admin().await.get(&path).await.refused(404, "not_found");

    forge(&stage.database, 0, 0).await;
    let forged = tenant.auditor().await.get(&path).await.expect(200);
    let items = forged["items"].as_array().unwrap();
    assert_eq!((items.len(), &forged["intact"]), (1, &json!(false)), "{forged}");
    let row = &items[0];
    assert_eq!((&row["step"], &row["selector"], &row["new_preview"]), (&json!(0), &json!("q"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_kept_as_long_as_the_log() {
    let stage = Stage::with(&[("MCPPROXY__ACTIVITY__RETENTION_DAYS", "30"), OFTEN]).await;
    let upstream = Upstream::handshake(vec![Tool::writes("put")]).await;
    for name in ["long", "short", "gone"] {
        let tenant = stage.tenant(name).await;
        tenant.add("up", &upstream).await;
        Mcp::bare(&tenant.agent().await).run("write", "up:put", &json!({})).await.ok();
        tenant.records("type=tool_call", 1).await;
    }
    for (step, days) in [0, 10, 29, 32].into_iter().enumerate() {
        forge(&stage.database, days, step as u64).await;
    }
    let short = stage.platform().as_tenant("short");
    short.patch("/api/v1/settings", &json!({"activity_retention_days": 7})).await.expect(200);
    stage.platform().delete("/api/v1/tenants/gone").await.expect(204);
    settle((3, 1, 0), SOON, || async {
        let database = &stage.database;
        (rows_of(database, "long").await, rows_of(database, "short").await, rows_of(database, "gone").await)
    })
    .await;
    // the roles that serve requests may not delete or change anything of it
    let mut connection = stage.database.connect().await;
    connection.execute("set app.tenant = '00000000-0000-0000-0000-000000000000'").await.unwrap();
    for (role, statement) in [
        ("mcpproxy_app", "delete from web_provenance"),
        ("mcpproxy_app", "update web_provenance set phase = 'committed'"),
        ("mcpproxy_system", "delete from web_provenance"),
        ("mcpproxy_system", "select count(*) from web_provenance"),
    ] {
        connection.execute(AssertSqlSafe(format!("set role {role}"))).await.unwrap();
        let refused = connection.execute(statement).await.unwrap_err();
        assert_eq!(
            refused.as_database_error().unwrap().code().as_deref(),
            Some("42501"),
            "{role} {statement}"
        );
    }
}
