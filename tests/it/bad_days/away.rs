//! The database is away, in the three ways in which a network can say so, or not.

use std::time::{Duration, Instant};

use sqlx::Connection;

use super::Scene;
use crate::support::{Database, Way, settle};

/// Shorter than the defaults (10 s and 30 s), so that a test is over soon.
const SETTINGS: [(&str, &str); 2] =
    [("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3"), ("MCPPROXY__AUTH__STALE_MAX_S", "8")];
/// A begin that hangs, a pause, a poll and its pause.
const BACK: Duration = Duration::from_secs(10);

async fn away(way: Way) {
    let scene = Scene::on(Database::migrated().await, &SETTINGS).await;
    let reads_before = scene.upstream.counts().calls;
    scene.line.turn(way).await;
    let began = Instant::now();
    let asked = scene.line.accepted();

    // reads go on, what writes waits for its record and is refused
    let write = async {
        let code = scene.write("while away").await;
        (code, began.elapsed())
    };
    let reads = async {
        for _ in 0..20 {
            assert_eq!(scene.read().await, "ok");
        }
    };
    let ((code, took), ()) = tokio::join!(write, reads);
    assert_eq!(code, "record_unavailable");
    assert!(took >= Duration::from_millis(2900) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(scene.upstream.counts().calls, reads_before + 20, "what writes was not run");

    // a blip is no reason to take the replica out of service; a long absence is
    scene.becomes(200, "degraded", Duration::from_secs(8)).await;
    assert_eq!(scene.read().await, "ok");
    scene.becomes(503, "stale", Duration::from_secs(5)).await;
    let stale_after = began.elapsed();
    assert!(
        stale_after >= Duration::from_millis(5900) && stale_after < Duration::from_secs(11),
        "{stale_after:?}"
    );
    let refused = scene.agent.get("/api/v1/status").await;
    assert!(refused.refused(503, "unavailable").contains("database"), "{refused:?}");
    assert!(scene.stage.gateway.anonymous().get("/livez").await.status == 200);

    // one at a time knocks at the door, whoever else waits; each of the two URLs has a listener besides
    let knocks = scene.line.accepted() - asked;
    let seconds = began.elapsed().as_secs_f64();
    assert!((knocks as f64) < 6.0 * seconds + 20.0, "{knocks} connections in {seconds:.1} s");

    scene.line.turn(Way::Open).await;
    let back = Instant::now();
    scene.becomes(200, "ready", BACK).await;
    assert_eq!(scene.write("after").await, "ok");
    assert!(back.elapsed() < BACK, "{:?}", back.elapsed());
    scene.tenant.records("type=tool_call&tool=look&status=success", 22).await;
    scene.tenant.records("type=tool_call&tool=echo&status=rejected", 1).await;
    scene.all_is_accounted_for().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused() {
    away(Way::Refuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reset() {
    away(Way::Resets).await;
}

/// A cable that was cut: nobody says a word, and what was under way is lost for good.
#[tokio::test(flavor = "multi_thread")]
async fn silent() {
    away(Way::Hangs).await;
}

/// Connections that a firewall forgot, while new ones pass: nobody notices but the log.
#[tokio::test(flavor = "multi_thread")]
async fn forgotten_connections_are_replaced() {
    let scene = Scene::on(Database::migrated().await, &[]).await;
    for round in 0..2 {
        scene.line.turn(Way::Hangs).await;
        scene.line.turn(Way::Open).await;
        let began = Instant::now();
        assert_eq!(scene.write(&format!("round {round}")).await, "ok");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert_eq!(scene.ready().await.0, 200);
    }
    scene.becomes(200, "ready", BACK).await;
    // also the listener's: a notice comes through again
    scene.all_is_accounted_for().await;
}

/// Cut off between two statements, a session sits on the rows that the repetition needs, and nobody is there to
/// tell it that it is alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_transaction_holds_nobody_up() {
    let scene = Scene::on(Database::migrated().await, &[]).await;
    let database = &scene.stage.database;
    let mut admin = database.connect().await;
    let mut tx = admin.begin().await.unwrap();
    sqlx::query("lock table activity in access exclusive mode").execute(&mut *tx).await.unwrap();
    assert_eq!(scene.write("ends late").await, "ok");
    let stands = "select count(*) from pg_stat_activity where datname = current_database()
         and wait_event_type = 'Lock' and query ilike '%insert into activity %'";
    settle(1, Duration::from_secs(5), || database.count(stands)).await;
    scene.line.turn(Way::Hangs).await;
    scene.line.turn(Way::Open).await;
    tx.rollback().await.unwrap();
    let sits = "select count(*) from pg_stat_activity where datname = current_database()
         and state = 'idle in transaction' and application_name = 'mcpproxy'";
    settle(true, Duration::from_secs(5), || async { database.count(sits).await > 0 }).await;
    scene.all_is_accounted_for().await;
}

/// While the database is away the log holds what it may, and not more.
#[tokio::test(flavor = "multi_thread")]
async fn the_buffer_is_bounded_in_bytes() {
    // room for one tenant: a quarter of 256 KiB; an unfinished attempt counts with 10 KiB
    let settings = [SETTINGS[0], ("MCPPROXY__LIMITS__ACTIVITY_QUEUE_BYTES", "262144")];
    let scene = Scene::on(Database::migrated().await, &settings).await;
    scene.line.turn(Way::Refuses).await;
    let mut reads = 0;
    let code = loop {
        match scene.read().await {
            code if code == "ok" => reads += 1,
            code => break code,
        }
        assert!(reads < 500, "the buffer has no bound");
    };
    assert_eq!(code, "record_unavailable");
    // each record takes more than half a kilobyte and less than four
    assert!((16..110).contains(&reads), "{reads} reads");
    assert_eq!(scene.upstream.counts().calls, reads + 2, "what has no room is not run, reads too");
    scene.line.turn(Way::Open).await;
    scene.tenant.records("type=tool_call&tool=look&status=success", reads + 1).await;
    assert_eq!(scene.read().await, "ok");
}
