//! Lifecycle of this replica: work under way, and the signals that stop it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Work under way and the signals that stop it. All use cases share one value.
#[derive(Debug, Default)]
pub struct Lifecycle {
    /// Calls and administrators' acts under way; a shutdown waits for them.
    pub(super) tasks: TaskTracker,
    /// Tasks that write servers' logs; they end after everything that adds a line.
    pub(super) log_tasks: TaskTracker,
    /// Signal that ends all background tasks.
    pub(super) stop: CancellationToken,
    leaving: AtomicBool,
    draining: AtomicBool,
    /// Signal for every open stream to check whether it may go on.
    pub(super) pulse: watch::Sender<()>,
}

impl Lifecycle {
    /// Returns whether this replica is shutting down: streams end, so that clients come back elsewhere.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns whether clients should go elsewhere: this replica is shutting down, or about to.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Returns the number of calls and administrators' acts that have begun here and not ended.
    pub fn under_way(&self) -> usize {
        self.tasks.len()
    }

    /// Sets `/readyz` to unavailable. All other work goes on, streams included: a client that reconnects at once may still
    /// reach this replica.
    pub fn begin_leaving(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Sets `/readyz` to unavailable, and ends open streams.
    pub fn begin_drain(&self) {
        self.begin_leaving();
        self.draining.store(true, Ordering::Relaxed);
        self.pulse.send_replace(());
    }
}

/// Waits for `pause`, or until `stop`. Returns `true` if stopped.
pub(super) async fn sleep_or_stop(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(pause) => false,
    }
}
