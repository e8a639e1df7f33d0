//! The database answers, and refuses: no more sessions, no more writes.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::Scene;
use crate::support::{Database, OwnPostgres, settle};

async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

/// Ends every session of the gateway in this database.
async fn end_sessions(connection: &mut PgConnection) {
    run(
        connection,
        "select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'mcpproxy'"
            .to_owned(),
    )
    .await;
}

/// A standby that was taken for the primary, or a primary that somebody made read-only.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_is_as_good_as_none() {
    let settings = [("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3"), ("MCPPROXY__AUTH__STALE_MAX_S", "8")];
    let scene = Scene::on(Database::migrated().await, &settings).await;
    let mut admin = scene.stage.database.connect().await;
    let name = scene.stage.database.name().to_owned();
    run(&mut admin, format!("alter database {name} set default_transaction_read_only = on")).await;
    end_sessions(&mut admin).await;
    let began = Instant::now();
    assert_eq!(scene.write("read-only").await, "record_unavailable");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(scene.read().await, "ok");
    // it can be read, but it may be a copy that was left behind: it confirms no key
    scene.becomes(200, "degraded", Duration::from_secs(9)).await;
    scene.becomes(503, "stale", Duration::from_secs(5)).await;
    run(&mut admin, "set default_transaction_read_only = off".to_owned()).await;
    run(&mut admin, format!("alter database {name} reset default_transaction_read_only")).await;
    // sessions that found it read-only are not kept: nobody has to end them
    scene.becomes(200, "ready", Duration::from_secs(8)).await;
    assert_eq!(scene.write("writable").await, "ok");
    scene.tenant.records("type=tool_call&tool=look&status=success", 2).await;
    scene.tenant.records("type=tool_call&tool=echo&status=rejected", 1).await;
    scene.all_is_accounted_for().await;
}

/// There is no session for one more connection: those that are open are of as much use as before.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_further_session_keeps_those_there_are() {
    let mut postgres = OwnPostgres::start().await;
    postgres.admin("alter system set max_connections = 30").await;
    postgres.kill();
    postgres.start_again().await;
    let scene = Scene::on(postgres.database(), &[("MCPPROXY__LIMITS__DATABASE_POOL_CONTROL", "20")]).await;
    let mut admin = scene.stage.database.connect().await;
    let mut taken = Vec::new();
    while let Ok(connection) = PgConnection::connect(&scene.stage.database.url()).await {
        taken.push(connection);
    }
    let mut ours = async || -> Vec<i32> {
        sqlx::query_scalar(
            "select pid from pg_stat_activity where application_name = 'mcpproxy' order by pid",
        )
        .fetch_all(&mut admin)
        .await
        .unwrap()
    };
    let before = ours().await;
    // more at a time than there are connections: some of them ask for a further one, in vain
    let began = Instant::now();
    let asked = (0..100).map(|_| scene.tenant.platform.get("/api/v1/servers/up"));
    futures_util::future::join_all(asked).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "nobody waited for a further one: it proves nothing");
    assert_eq!(ours().await, before);
    drop(taken);
    scene.all_is_accounted_for().await;
}

/// All of the server's sessions are taken by others.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_session_reads_go_on_and_writes_wait() {
    let mut postgres = OwnPostgres::start().await;
    postgres.admin("alter system set max_connections = 30").await;
    postgres.kill();
    postgres.start_again().await;
    let scene = Scene::on(postgres.database(), &[("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3")]).await;
    let url = scene.stage.database.url();
    let mut admin = scene.stage.database.connect().await;
    let mut taken = Vec::new();
    // the gateway's sessions are ended, and theirs taken, until it has none
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut rounds_without = 0;
    while rounds_without < 10 {
        assert!(Instant::now() < deadline, "the gateway keeps its sessions");
        while let Ok(connection) = PgConnection::connect(&url).await {
            taken.push(connection);
        }
        let ours = "select count(*) from pg_stat_activity where application_name = 'mcpproxy'";
        let left: i64 = sqlx::query_scalar(ours).fetch_one(&mut admin).await.unwrap();
        rounds_without = if left == 0 { rounds_without + 1 } else { 0 };
        // a session that ends gives its place back a little later
        end_sessions(&mut admin).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let began = Instant::now();
    let (refused, read) = tokio::join!(scene.write("no session"), scene.read());
    assert_eq!((refused, read), ("record_unavailable".to_owned(), "ok".to_owned()));
    assert!(began.elapsed() >= Duration::from_millis(2900), "it waits: {:?}", began.elapsed());
    // one that is free again in time is enough
    let waits = scene.write("in time");
    let free = async {
        let began = Instant::now();
        let held = Duration::from_millis(500);
        settle(true, held * 2, || async { began.elapsed() >= held }).await;
        taken.clear();
    };
    let (waited, ()) = tokio::join!(waits, free);
    assert_eq!(waited, "ok");
    scene.becomes(200, "ready", Duration::from_secs(10)).await;
    scene.all_is_accounted_for().await;
}
