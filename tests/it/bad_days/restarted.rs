//! The server itself: killed and started again under load, and slow to commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Scene;
use crate::support::{Mcp, OwnPostgres, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_loses_nothing() {
    let mut postgres = OwnPostgres::start().await;
    let scene = Arc::new(Scene::on(postgres.database(), &[]).await);
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (agent, stop, next) = (scene.agent.clone(), Arc::clone(&stop), Arc::clone(&next));
            tokio::spawn(async move {
                let client = Mcp::bare(&agent);
                while !stop.load(Ordering::Relaxed) {
                    let ticket = format!("ticket-{}", next.fetch_add(1, Ordering::Relaxed));
                    let code = client.run("write", "up:echo", &json!({"ticket": ticket})).await.code();
                    assert_eq!(code, "ok", "the absence is shorter than a call waits");
                }
            })
        })
        .collect();
    for _ in 0..2 {
        let calls = scene.upstream.counts().calls;
        let moved_on = || async { (scene.upstream.counts().calls >= calls + 40).then_some(()) };
        eventually("calls to go on", Duration::from_secs(20), moved_on).await;
        postgres.kill();
        assert_eq!(scene.read().await, "ok");
        assert_eq!(scene.ready().await.0, 200);
        postgres.start_again().await;
    }
    scene.becomes(200, "ready", Duration::from_secs(8)).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    scene.all_is_accounted_for().await;
}

/// Commits wait for a standby that does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn slow_commits_delay_writes_and_a_late_row_is_closed() {
    let postgres = OwnPostgres::start().await;
    let settings = [("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3")];
    let scene = Scene::on(postgres.database(), &settings).await;
    let standby = async |names: &str| {
        postgres.admin(&format!("alter system set synchronous_standby_names = '{names}'")).await;
        postgres.admin("select pg_reload_conf()").await;
    };
    let hold = async |ticket: &str, held: Duration| {
        standby("nobody").await;
        // the setting holds a moment later: a heartbeat shows when
        eventually("a commit to wait for the standby", Duration::from_secs(5), || async {
            let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
            (scene.stage.database.count(waiting).await > 0).then_some(())
        })
        .await;
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
            standby("").await;
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
