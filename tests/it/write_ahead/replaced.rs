//! A server gets another credential while a call to it waits for its record: what is sent is the new one.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use crate::support::{Database, Gateway, Mcp, Stage, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);

/// Makes every record of the tool `held` wait for the returned connection's end; all others go on.
async fn hold(database: &Database) -> PgConnection {
    let mut connection = database.connect().await;
    let statements = "select pg_advisory_lock(77);
        create function hold() returns trigger language plpgsql as $$ begin
            perform pg_catalog.pg_advisory_xact_lock(77);
            return new;
        end $$;
        create trigger hold before insert on activity_open for each row
            when (new.tool = 'held') execute function hold();";
    connection.execute(statements).await.unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_is_replaced_meanwhile_is_not_sent() {
    let stage = Stage::start().await;
    // a replica of its own: the administrator's act does not queue behind the call
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("held"), Tool::reads("look")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "old"}})).await;
    let there = other.ask_as(&tenant.agent().await);
    let last_key = || upstream.calls().last().map(|call| call.headers["x-key"].clone());
    Mcp::bare(&there).run("write", "up:held", &json!({})).await.ok();
    assert_eq!(last_key().as_deref(), Some("old"));

    let held = hold(&stage.database).await;
    let client = Mcp::bare(&there);
    let call = tokio::spawn(async move { client.run("write", "up:held", &json!({})).await });
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    settle(1, SOON, || stage.database.count(waiting)).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"headers": {"X-Key": "new"}})).await.expect(200);
    settle(Some("new".to_owned()), SOON, || async {
        Mcp::bare(&there).run("read", "up:look", &json!({})).await.ok();
        last_key()
    })
    .await;
    assert!(!call.is_finished());
    held.close().await.unwrap();
    call.await.unwrap().ok();
    let calls = upstream.calls();
    let written: Vec<_> = calls.iter().filter(|call| call.tool == "held").collect();
    assert_eq!(written.iter().map(|call| &call.headers["x-key"]).collect::<Vec<_>>(), ["old", "new"]);
}
