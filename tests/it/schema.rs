//! Programs and schemas of different releases, and several programs that migrate at once.

use std::process::Command;
use std::time::Duration;

use sqlx::Connection;
use tokio::sync::Mutex;

use crate::support::{Database, Gateway, Stage, eventually, run_to_end, settle, spawn};

#[tokio::test]
async fn the_release_before_migrates_and_serves_on_a_newer_schema() {
    let database = Database::create().await;
    Gateway::migrate(&database);
    let mut connection = database.connect().await;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values (29990101000000, 'of a later release', true, '\\x00', 0)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    Gateway::migrate(&database);
    drop(Gateway::start(&database, &[]).await);

    sqlx::query("insert into schema_minimum values ('0.0.1'), ('99.0.0')")
        .execute(&mut connection)
        .await
        .unwrap();
    for command in ["migrate", "serve"] {
        let ended = run_to_end(&database, &[command], &[]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(3), "{command}: {said}");
        assert!(said.contains("a schema for mcpproxy 99.0.0 and newer"), "{command}: {said}");
    }
}

/// As process 1 of a container, whom nothing else ends.
#[tokio::test]
async fn a_migration_that_waits_ends_when_it_is_told_to() {
    let database = Database::migrated().await;
    let (mut connection, watcher) = (database.connect().await, Mutex::new(database.connect().await));
    let mut tx = connection.begin().await.unwrap();
    sqlx::query("lock table _sqlx_migrations").execute(&mut *tx).await.unwrap();
    let mut child = spawn(&database, &["migrate"]);
    settle(true, Duration::from_secs(10), || async {
        let waits = "select exists (select from pg_locks where not granted and relation = '_sqlx_migrations'::regclass)";
        sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut *watcher.lock().await).await.unwrap()
    })
    .await;
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ended = eventually("the migration to end", Duration::from_secs(5), || {
        let status = child.try_wait().unwrap();
        async move { status }
    });
    assert_eq!(ended.await.code(), Some(1));
}

/// A backup reads all tables until it is over: the migration gives way to those who serve, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_for_a_table_holds_nobody_up() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut connection = stage.database.connect().await;
    // a file that changes a table, as it was before it was applied
    sqlx::raw_sql(
        "create table kept as select * from _sqlx_migrations where version = 20261122220000;
         delete from _sqlx_migrations where version = 20261122220000",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let mut backup = stage.database.connect().await;
    let mut tx = backup.begin().await.unwrap();
    sqlx::query("lock table servers in access share mode").execute(&mut *tx).await.unwrap();
    let mut child = spawn(&stage.database, &["migrate"]);
    settle(1, Duration::from_secs(10), || {
        stage
            .database
            .count("select count(*) from pg_locks where not granted and relation = 'servers'::regclass")
    })
    .await;
    let asked = tenant.platform.get("/api/v1/servers");
    let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
    answer.expect("nobody waits for as long as the backup takes").expect(200);
    // nothing is left to do: it ends at its next attempt
    sqlx::query("insert into _sqlx_migrations select * from kept").execute(&mut connection).await.unwrap();
    let ended = eventually("the migration to end", Duration::from_secs(20), || {
        let status = child.try_wait().unwrap();
        async move { status }
    });
    assert_eq!(ended.await.code(), Some(0));
    // what came since its first attempt
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("migrated: ") && said.contains("applied=1"), "{said}");
    tx.rollback().await.unwrap();
}

/// As replicas do that migrate before they serve.
#[tokio::test]
async fn many_may_migrate_at_once() {
    let database = Database::create().await;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Gateway::migrate(&database));
        }
    });
    Gateway::start(&database, &[]).await;
}
