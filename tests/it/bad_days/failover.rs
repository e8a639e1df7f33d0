//! The server dies and its standby takes its place, under the same name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::Scene;
use crate::support::{Mcp, OwnPostgres, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_under_load_has_everything() {
    let mut primary = OwnPostgres::start().await;
    let mut scene = Scene::on(primary.database(), &[]).await;
    let standby = primary.standby().await;
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
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
    let calls_go_on = async |scene: &Scene| {
        let calls = scene.upstream.counts().calls;
        let moved_on = || async { (scene.upstream.counts().calls >= calls + 20).then_some(()) };
        eventually("calls to go on", Duration::from_secs(20), moved_on).await;
    };
    calls_go_on(&scene).await;
    primary.kill();
    assert_eq!(scene.read().await, "ok");
    standby.promote().await;
    scene.line.lead_to(standby.database().port());
    calls_go_on(&scene).await;
    scene.becomes(200, "ready", Duration::from_secs(8)).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    // what was committed before is there, and what was under way is there once
    scene.stage.database = standby.database();
    scene.all_is_accounted_for().await;
}
