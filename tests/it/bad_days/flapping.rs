//! The line is cut again and again, in the middle of whatever is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::Scene;
use crate::support::{Database, Mcp, Way, eventually, settle};

const TASKS: usize = 8;
const CUTS: usize = 25;

/// A commit whose answer was lost is not known to have happened or not. Whatever it was: no call is missing, none
/// runs twice, and each has one record.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_again_and_again_loses_nothing() {
    let scene = Arc::new(Scene::on(Database::migrated().await, &[]).await);
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..TASKS)
        .map(|_| {
            let (agent, stop, next) = (scene.agent.clone(), Arc::clone(&stop), Arc::clone(&next));
            tokio::spawn(async move {
                let client = Mcp::bare(&agent);
                let mut codes = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let ticket = format!("ticket-{}", next.fetch_add(1, Ordering::Relaxed));
                    codes.push(client.run("write", "up:echo", &json!({"ticket": ticket})).await.code());
                }
                codes
            })
        })
        .collect();
    for cut in 0..CUTS {
        // a little later each time, so that each cut meets another moment
        let calls = scene.upstream.counts().calls;
        let moved_on = || async { (scene.upstream.counts().calls >= calls + 3 + cut % 7).then_some(()) };
        eventually("calls to go on", Duration::from_secs(15), moved_on).await;
        match cut % 5 {
            4 => {
                scene.line.turn(Way::Resets).await;
                scene.line.turn(Way::Open).await;
            }
            _ => scene.line.cut(),
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        for code in writer.await.unwrap() {
            assert_eq!(code, "ok", "every absence was shorter than a call waits");
        }
    }
    settle((200, "ready".to_owned()), Duration::from_secs(10), || scene.ready()).await;
    scene.all_is_accounted_for().await;
}
