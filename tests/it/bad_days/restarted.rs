//! The server itself: killed and started again under load, and slow to commit.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Scene;
use super::writers::Writers;
use crate::support::{Mcp, OwnPostgres, Tool, Upstream, eventually, settle};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_loses_nothing() {
    let mut postgres = OwnPostgres::start().await;
    let scene = Scene::on(postgres.database(), &[]).await;
    let writers = Writers::start(&scene, 8);
    for _ in 0..2 {
        writers.go_on(&scene, 40).await;
        postgres.kill();
        assert_eq!(scene.read().await, "ok");
        assert_eq!(scene.ready().await.0, 200);
        postgres.start_again().await;
    }
    scene.becomes(200, "ready", Duration::from_secs(8)).await;
    writers.end().await;
    scene.all_is_accounted_for().await;
}

/// Commits wait for a standby that does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn slow_commits_delay_writes_and_a_late_row_is_closed() {
    let postgres = OwnPostgres::start().await;
    let settings = [("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3")];
    let scene = Scene::on(postgres.database(), &settings).await;
    let hold = async |ticket: &str, held: Duration| {
        postgres.wait_for_standby("nobody").await;
        let began = Instant::now();
        let call = async {
            let code = scene.write(ticket).await;
            (code, began.elapsed())
        };
        let release = async {
            eventually("the time to be over", held * 2, || async { (began.elapsed() >= held).then_some(()) })
                .await;
            assert!(
                !scene.upstream.tickets().iter().any(|seen| seen == ticket),
                "dispatched before its record"
            );
            postgres.wait_for_standby("").await;
        };
        tokio::join!(call, release).0
    };
    let (code, took) = hold("a little late", Duration::from_millis(1500)).await;
    assert_eq!(code, "ok");
    assert!(took >= Duration::from_millis(1500), "{took:?}");

    let (code, took) = hold("too late", Duration::from_millis(4000)).await;
    assert_eq!(code, "record_unavailable");
    assert!(took >= Duration::from_millis(2900) && took < Duration::from_secs(4), "{took:?}");
    // the row that landed after all is closed, and the call was never run
    scene.tenant.records("type=tool_call&tool=echo&status=rejected", 1).await;
    assert!(!scene.upstream.tickets().iter().any(|seen| seen == "too late"));
    assert_eq!(scene.write("after").await, "ok");
    scene.all_is_accounted_for().await;
}

/// The standby stays away for longer than anybody waits. Nothing ends the commits that wait for it, so that who gives
/// up and tries again must not leave more and more of them behind; and nobody who reads waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_stays_away_costs_a_bounded_number_of_sessions() {
    let postgres = OwnPostgres::start().await;
    let settings = [
        ("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "1"),
        ("MCPPROXY__LIMITS__DATABASE_POOL_COMMIT", "1"),
        ("MCPPROXY__LIMITS__DATABASE_POOL_CONTROL", "3"),
        ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1"),
    ];
    let scene = Scene::on(postgres.database(), &settings).await;
    let database = &scene.stage.database;
    let mut others = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
        scene.stage.tenant(name).await.add("up", &upstream).await;
        others.push(upstream);
    }
    let waiting = || {
        database.count(
            // of commits with a notice only one waits for the standby, and the others for that one
            "select count(*) from pg_stat_activity
             where application_name = 'mcpproxy' and state = 'active'
                and (wait_event = 'SyncRep' or query = 'commit' and wait_event = 'object')",
        )
    };
    postgres.wait_for_standby("nobody").await;
    // their listings fail, which makes a revision each
    drop(others);
    let began = Instant::now();
    let mut most = 0;
    let mut writes = tokio::task::JoinSet::new();
    // a commit is given up after 5 s
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while began.elapsed() < Duration::from_secs(16) {
        ticks.tick().await;
        let (agent, ticket) = (scene.agent.clone(), format!("refused {:?}", began.elapsed()));
        writes.spawn(async move {
            Mcp::bare(&agent).run("write", "up:echo", &json!({"ticket": ticket})).await.code()
        });
        assert_eq!(scene.read().await, "ok");
        assert_eq!(scene.ready().await, (200, "ready".to_owned()), "after {:?}", began.elapsed());
        most = most.max(waiting().await);
    }
    // twice the one of the log's writer, and one for changes
    assert!(most <= 2 + 1, "{most} sessions wait");
    assert!(most >= 3, "{most} sessions wait: the test proves little");
    for code in writes.join_all().await {
        assert_eq!(code, "record_unavailable");
    }
    let silent_s = "select extract(epoch from max(now() - heartbeat_at))::bigint from replicas";
    assert!(database.count(silent_s).await < 5, "heartbeats wait for no standby");

    postgres.wait_for_standby("").await;
    settle(0, Duration::from_secs(5), waiting).await;
    settle("ok".to_owned(), Duration::from_secs(10), || scene.write("after")).await;
    let sessions = "select count(*) from pg_stat_activity where application_name = 'mcpproxy'";
    settle(true, Duration::from_secs(5), || async { database.count(sessions).await <= 1 + 3 + 4 + 1 }).await;
}
