//! Master keys: the right ones, or no start; and their rotation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::support::{
    Api, Database, Gateway, MASTER_KEY, Mcp, Stage, Tool, Upstream, eventually, run_to_end,
};

const NAME: &str = "MCPPROXY__SECRETS__MASTER_KEY";
const NEXT_KEY: &str = "9l6OX06VXkKGFsXyVLWTuGv8eWdQ4rK5Rr2mP1Yz3Qc=";
/// How long a start may take until it waits for the canary.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(20);

async fn call(gateway: &Gateway, agent: &Api, server: &str) -> String {
    Mcp::bare(&gateway.ask_as(agent)).run("write", &format!("{server}:t"), &json!({})).await.code()
}

/// Ids of the master keys in a table.
async fn ids(connection: &mut PgConnection, table: &'static str) -> Vec<String> {
    let query = match table {
        "secret_canary" => "select distinct master_id from secret_canary order by 1",
        _ => "select distinct master_id from data_keys order by 1",
    };
    sqlx::query_scalar(query).fetch_all(connection).await.unwrap()
}

#[tokio::test]
async fn a_rotation_loses_nothing() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    let mut owner = stage.database.connect().await;
    let old = ids(&mut owner, "data_keys").await;
    assert_eq!(old, ids(&mut owner, "secret_canary").await);

    let both = format!("{NEXT_KEY},{MASTER_KEY}");
    // two replicas at once, beside one that has the old key only
    let settings = [(NAME, both.as_str())];
    let start = || Gateway::start(&stage.database, &settings);
    let (first, second) = tokio::join!(start(), start());
    for gateway in [&first, &second, &stage.gateway] {
        assert_eq!(call(gateway, &agent, "up").await, "ok");
    }
    assert_eq!(ids(&mut owner, "data_keys").await.len(), 2, "the old replicas still need theirs");
    drop((first, second));
    stage.gateway.kill();

    stage.gateway = Gateway::start(&stage.database, &[(NAME, NEXT_KEY)]).await;
    assert_eq!(call(&stage.gateway, &agent, "up").await, "ok");
    assert_eq!(upstream.calls().last().unwrap().headers["x-key"], "one");
    let new = ids(&mut owner, "data_keys").await;
    assert!(new.len() == 1 && new != old, "{new:?}");
    assert_eq!(new, ids(&mut owner, "secret_canary").await);
    // what the old key wrapped is gone, so it opens nothing any more
    stage.gateway.kill();
    let ended = run_to_end(&stage.database, &["serve"], &[]);
    assert!(!ended.status.success());
    let log = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!log.contains(MASTER_KEY) && !log.contains(NEXT_KEY), "{log}");
}

/// A replica that still has the old key only is started again in the middle of a rotation.
#[tokio::test]
async fn a_late_start_with_the_old_key_undoes_no_rotation() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    let mut owner = stage.database.connect().await;
    stage.gateway.kill();
    let both = format!("{NEXT_KEY},{MASTER_KEY}");
    let next = Gateway::start(&stage.database, &[(NAME, &both)]).await;
    let (keys, canaries) = (ids(&mut owner, "data_keys").await, ids(&mut owner, "secret_canary").await);
    assert_eq!((keys.len(), canaries.len()), (2, 2));
    stage.gateway = Gateway::start(&stage.database, &[]).await;
    assert_eq!(call(&stage.gateway, &agent, "up").await, "ok");
    assert_eq!(ids(&mut owner, "data_keys").await, keys);
    assert_eq!(ids(&mut owner, "secret_canary").await, canaries);
    drop(next);
    stage.gateway.kill();
    stage.gateway = Gateway::start(&stage.database, &[(NAME, NEXT_KEY)]).await;
    assert_eq!(call(&stage.gateway, &agent, "up").await, "ok");
    assert_eq!(ids(&mut owner, "data_keys").await.len(), 1, "what the old key wrapped is gone");
    assert!(!stage.gateway.log().contains("no key of secrets.master_key opens"), "{}", stage.gateway.log());
}

#[tokio::test]
async fn a_key_dropped_too_early_costs_only_what_it_sealed() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    tenant.add("plain", &upstream).await;
    let mut owner = stage.database.connect().await;
    let old = ids(&mut owner, "data_keys").await;
    stage.gateway.kill();
    let both = format!("{NEXT_KEY},{MASTER_KEY}");
    drop(Gateway::start(&stage.database, &[(NAME, &both)]).await);
    // as if the old replica had made the data key after the last look at it
    sqlx::query("delete from data_keys where master_id <> $1")
        .bind(&old[0])
        .execute(&mut owner)
        .await
        .unwrap();

    stage.gateway = Gateway::start(&stage.database, &[(NAME, NEXT_KEY)]).await;
    let sent = upstream.counts().requests;
    assert_eq!(call(&stage.gateway, &agent, "up").await, "server_unavailable");
    assert_eq!(upstream.counts().requests, sent);
    let log = stage.gateway.log();
    assert!(
        log.contains("no key of secrets.master_key opens some data keys") && log.contains(&old[0]),
        "{log}"
    );
    assert_eq!(call(&stage.gateway, &agent, "plain").await, "ok");
    let api = stage.gateway.ask_as(&tenant.platform);
    let shown = api.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert!(shown["last_error"].as_str().unwrap().contains("secrets.master_key"), "{shown}");
    // others can be given meanwhile, and the old ones open again with the old key
    let other = json!({"name": "other", "kind": "http", "url": upstream.url, "headers": {"X-Key": "two"}});
    assert_eq!(api.post("/api/v1/servers", &other).await.expect(201)["last_error"], Value::Null);
    stage.gateway.kill();
    stage.gateway = Gateway::start(&stage.database, &[(NAME, &both)]).await;
    let api = stage.gateway.ask_as(&tenant.platform);
    api.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    for (server, value) in [("up", "one"), ("other", "two")] {
        assert_eq!(call(&stage.gateway, &agent, server).await, "ok");
        assert_eq!(upstream.calls().last().unwrap().headers["x-key"], value);
    }
}

#[tokio::test]
async fn another_deployments_key_stops_the_start() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    stage.gateway.kill();
    let ended = run_to_end(&stage.database, &["serve"], &[(NAME, NEXT_KEY)]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("secrets.master_key") && said.contains("give the key used before"), "{said}");
    assert!(!said.contains("listening"), "{said}");
    // nothing was changed by it
    stage.gateway = Gateway::start(&stage.database, &[]).await;
    assert_eq!(call(&stage.gateway, &agent, "up").await, "ok");
    stage.gateway.kill();
    // the old key is lost: what it sealed is given up, and given anew
    let mut owner = stage.database.connect().await;
    sqlx::query("delete from secret_canary").execute(&mut owner).await.unwrap();
    stage.gateway = Gateway::start(&stage.database, &[(NAME, NEXT_KEY)]).await;
    assert_eq!(call(&stage.gateway, &agent, "up").await, "server_unavailable");
    let anew = json!({"headers": {"X-Key": "two"}});
    let api = stage.gateway.ask_as(&tenant.platform);
    api.patch("/api/v1/servers/up", &anew).await.expect(200);
    assert_eq!(call(&stage.gateway, &agent, "up").await, "ok");
    assert_eq!(upstream.calls().last().unwrap().headers["x-key"], "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_first_starts_with_different_keys_one_stops() {
    let database = Database::migrated().await;
    let mut first = database.connect().await;
    // a replica that is just settling the canary
    let mut tx = first.begin().await.unwrap();
    sqlx::query("lock table secret_canary in share row exclusive mode").execute(&mut *tx).await.unwrap();
    let database = Arc::new(database);
    let starting = {
        let database = Arc::clone(&database);
        tokio::task::spawn_blocking(move || run_to_end(&database, &["serve"], &[(NAME, NEXT_KEY)]))
    };
    eventually("the start to wait", LOCK_WAIT_MAX, || async {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_locks where relation = 'secret_canary'::regclass and not granted)",
        )
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
        waits.then_some(())
    })
    .await;
    sqlx::query("insert into secret_canary (master_id, sealed) values ('0123456789abcdef', '\\x01')")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let ended = starting.await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("0123456789abcdef"), "{said}");
}

#[tokio::test]
async fn first_starts_at_once_make_one_canary() {
    let database = Database::migrated().await;
    let start = || Gateway::start(&database, &[]);
    let _gateways = tokio::join!(start(), start(), start());
    let mut connection = database.connect().await;
    assert_eq!(ids(&mut connection, "secret_canary").await.len(), 1);
}
