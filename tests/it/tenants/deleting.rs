//! Nothing of a deleted tenant stays: not on any replica, not in the database.

use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection};

use crate::support::upstream::Era;
use crate::support::{Api, Database, Gateway, Mcp, Stage, Tool, Upstream, settle};

const OFTEN: [(&str, &str); 1] = [("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")];
/// Within this nobody gets in any more, on any replica.
const SOON: Duration = Duration::from_secs(1);
/// Streams look once a second whether their key is still valid.
const ENDED: Duration = Duration::from_secs(3);
/// A few passes.
const PURGED: Duration = Duration::from_secs(15);

/// Tables that hold rows of this tenant, but for the one that keeps ids from being used again.
async fn tables_with_rows(database: &Database, tenant: uuid::Uuid) -> Vec<String> {
    let mut connection = database.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.table_name::text from information_schema.columns c join information_schema.tables t
             using (table_schema, table_name)
         where c.column_name = 'tenant_id' and c.table_schema = 'public' and t.table_type = 'BASE TABLE'
             and c.table_name <> 'tenants' order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    let mut found = Vec::new();
    for table in tables {
        let count = format!("select count(*) from {table} where tenant_id = $1");
        let count: i64 =
            sqlx::query_scalar(AssertSqlSafe(count)).bind(tenant).fetch_one(&mut connection).await.unwrap();
        if count > 0 {
            found.push(table);
        }
    }
    found
}

async fn status(api: &Api) -> u16 {
    api.get("/api/v1/status").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_lets_go_of_it() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::announcing(Era::Modern, vec![Tool::reads("t")]).await;
    tenant.add("up", &upstream).await;
    let admin = tenant.admin().await;
    let mut streams = Vec::new();
    for gateway in [&stage.gateway, &other] {
        let here = gateway.ask_as(&admin);
        settle("ok".to_owned(), ENDED, || async {
            Mcp::bare(&here).run("read", "up:t", &json!({})).await.code()
        })
        .await;
        for path in ["/mcp", "/api/v1/activity/stream"] {
            let stream = here.request(reqwest::Method::GET, path).header("Accept", "text/event-stream");
            streams.push(stream.send().await.unwrap().error_for_status().unwrap());
        }
    }
    settle(1, PURGED, || async { upstream.listeners() }).await;
    assert!(upstream.connections() >= 3, "{}", upstream.connections());
    let old = stage.platform().get("/api/v1/tenants/acme").await.expect(200)["id"].clone();

    stage.platform().delete("/api/v1/tenants/acme").await.expect(204);
    for gateway in [&stage.gateway, &other] {
        let here = gateway.ask_as(&admin);
        settle(401, SOON, || status(&here)).await;
        gateway.platform().as_tenant("acme").get("/api/v1/servers").await.refused(404, "not_found");
    }
    let ended = futures_util::future::join_all(streams.into_iter().map(reqwest::Response::text));
    tokio::time::timeout(ENDED, ended).await.expect("streams that do not end");
    settle((0, 0), ENDED, || async { (upstream.listeners(), upstream.connections()) }).await;

    // another tenant of the same name is another tenant
    let again = stage.tenant("acme").await;
    assert_ne!(stage.platform().get("/api/v1/tenants/acme").await.expect(200)["id"], old);
    for gateway in [&stage.gateway, &other] {
        let platform = gateway.ask_as(&again.platform);
        settle(0, SOON, || async { platform.items("/api/v1/activity?type=tool_call").await.len() }).await;
        assert!(platform.items("/api/v1/servers").await.is_empty());
        assert_eq!(status(&gateway.ask_as(&admin)).await, 401);
    }
}

/// A replica dies in the middle, and another goes on.
#[tokio::test(flavor = "multi_thread")]
async fn no_row_stays_behind() {
    let mut stage = Stage::with(&OFTEN).await;
    let mut connection = stage.database.connect().await;
    let upstream = Upstream::handshake((0..40).map(|n| Tool::writes(&format!("t{n}"))).collect()).await;
    let (gone, stays) = (stage.tenant("gone").await, stage.tenant("stays").await);
    for tenant in [&gone, &stays] {
        tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
        tenant.platform.patch("/api/v1/settings", &json!({"response_limit": 1000})).await.expect(200);
        let policy = json!({"version": 0, "rules": []});
        tenant.platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&policy)).await.expect(200);
        let agent = tenant.agent().await;
        Mcp::bare(&agent).run("write", "up:t1", &json!({})).await.ok();
        tenant.records("type=tool_call", 1).await;
    }
    let id =
        |name: &'static str| sqlx::query_scalar("select tenant_id from tenants where name = $1").bind(name);
    let gone_id: uuid::Uuid = id("gone").fetch_one(&mut connection).await.unwrap();
    let stays_id: uuid::Uuid = id("stays").fetch_one(&mut connection).await.unwrap();
    // a server's log is written once a second
    for id in [gone_id, stays_id] {
        let has_log =
            async || tables_with_rows(&stage.database, id).await.contains(&"server_logs".to_owned());
        settle(true, PURGED, has_log).await;
    }
    let before = tables_with_rows(&stage.database, gone_id).await;
    assert!(before.len() >= 10, "{before:?}: the test proves little");
    sqlx::raw_sql(AssertSqlSafe(format!(
        "insert into tools (tenant_id, server_id, name, definition, pin, state, rev)
         select tenant_id, server_id, 'many' || n, '{{}}', 'p', 'blocked', 1 from servers, generate_series(1, 6000) n
         where tenant_id = '{gone_id}';
         insert into activity (tenant_id, started_at, id, replica_id, type, source, status)
         select '{gone_id}', now() - n * interval '1 ms', gen_random_uuid(), gen_random_uuid(), 'tool_call', 'mcp', 'success'
         from generate_series(1, 3000) n"
    )))
    .execute(&mut connection)
    .await
    .unwrap();
    stage.platform().delete("/api/v1/tenants/gone").await.expect(204);
    let tools = "select count(*) from tools t join tenants n using (tenant_id) where n.name = 'gone'";
    settle(true, PURGED, || async { stage.database.count(tools).await < 6040 }).await;
    stage.gateway.kill();
    // its lease is free at once, not in 10 s
    sqlx::raw_sql("update replicas set stopped_at = now()").execute(&mut connection).await.unwrap();
    let next = Gateway::start(&stage.database, &OFTEN).await;
    settle(vec!["revisions".to_owned()], PURGED, || tables_with_rows(&stage.database, gone_id)).await;
    // after the longest call nobody asks for its revisions any more
    sqlx::query("update tenants set deleted_at = deleted_at - interval '3 hours' where tenant_id = $1")
        .bind(gone_id)
        .execute(&mut connection)
        .await
        .unwrap();
    settle(Vec::<String>::new(), PURGED, || tables_with_rows(&stage.database, gone_id)).await;
    let purged = "select count(*) from tenants where purged_at is not null";
    settle(1, PURGED, || stage.database.count(purged)).await;
    // what a replica writes that was cut off until now
    sqlx::query(
        "insert into activity (tenant_id, started_at, id, replica_id, type, source, status)
         values ($1, now(), gen_random_uuid(), gen_random_uuid(), 'tool_call', 'mcp', 'success')",
    )
    .bind(gone_id)
    .execute(&mut connection)
    .await
    .unwrap();
    settle(Vec::<String>::new(), PURGED, || tables_with_rows(&stage.database, gone_id)).await;
    assert_eq!(tables_with_rows(&stage.database, stays_id).await, before);
    let stays = next.platform().as_tenant("stays");
    assert_eq!(stays.items("/api/v1/servers/up/tools").await.len(), 40);
    // who serves requests may still not delete
    for role in ["mcpproxy_app", "mcpproxy_system"] {
        for table in ["servers", "tools", "api_keys", "revisions"] {
            let may = format!("select has_table_privilege('{role}', '{table}', 'delete')");
            let may: bool = sqlx::query_scalar(AssertSqlSafe(may)).fetch_one(&mut connection).await.unwrap();
            assert!(!may, "{role} {table}");
        }
    }
    // and the owner only what is a deleted tenant's
    let swept =
        "set role mcpproxy_owner; delete from tools; delete from settings; delete from api_keys; reset role";
    sqlx::raw_sql(swept).execute(&mut connection).await.unwrap();
    assert_eq!(tables_with_rows(&stage.database, stays_id).await, before);
}

/// They are let in, wait for the rows that the deletion holds, and go on once it is committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_waits_for_the_deletion_is_not_made() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    for server in ["one", "two"] {
        tenant.add(server, &upstream).await;
    }
    let agent = tenant.agent().await;
    let mut connection = stage.database.connect().await;
    let mut deletion = connection.begin().await.unwrap();
    let marked =
        "update revisions set rev = rev + 1; update tenants set deleted_at = now() where name = 'acme'";
    sqlx::raw_sql(marked).execute(&mut *deletion).await.unwrap();
    let key = format!("/api/v1/keys/{}", agent.id);
    let changes: Vec<_> = [
        ("/api/v1/settings", json!({"max_operation": "read"})),
        (&key, json!({"owner": "eve"})),
        ("/api/v1/servers/one", json!({"auto_approve": true})),
        ("/api/v1/servers/two", json!({"headers": {"X-Key": "one"}})),
    ]
    .into_iter()
    .map(|(path, body)| tokio::spawn(tenant.platform.patch(path, &body)))
    .collect();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    settle(4, PURGED, || stage.database.count(waiting)).await;
    deletion.commit().await.unwrap();
    for change in changes {
        change.await.unwrap().refused(404, "not_found");
    }
    for none in [
        "select count(*) from settings where value <> '{}'",
        "select count(*) from data_keys",
        "select count(*) from server_secrets",
        "select count(*) from api_keys where owner = 'eve'",
    ] {
        assert_eq!(stage.database.count(none).await, 0, "{none}");
    }
}
