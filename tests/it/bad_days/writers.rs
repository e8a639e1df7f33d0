//! Writes that do not stop while the database has its bad day.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::Scene;
use crate::support::{Mcp, eventually};

/// Clients that write one ticket after another; none may fail.
pub struct Writers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Writers {
    pub fn start(scene: &Scene, count: usize) -> Writers {
        let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (agent, stop, next) = (scene.agent.clone(), Arc::clone(&stop), Arc::clone(&next));
            tasks.spawn(async move {
                let client = Mcp::bare(&agent);
                while !stop.load(Ordering::Relaxed) {
                    let ticket = format!("ticket-{}", next.fetch_add(1, Ordering::Relaxed));
                    let code = client.run("write", "up:echo", &json!({"ticket": ticket})).await.code();
                    assert_eq!(code, "ok", "the absence is shorter than a call waits");
                }
            });
        }
        Writers { stop, tasks }
    }

    /// Waits until so many more calls were made.
    pub async fn go_on(&self, scene: &Scene, more: usize) {
        let calls = scene.upstream.counts().calls;
        let moved_on = || async { (scene.upstream.counts().calls >= calls + more).then_some(()) };
        eventually("calls to go on", Duration::from_secs(20), moved_on).await;
    }

    /// Ends them, after their last.
    pub async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
    }
}
