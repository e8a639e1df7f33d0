//! How many programs this replica may run, and how all of them end.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::journal::Journal;
use super::warden::Warden;

/// How long the end of all programs may take: longer than that of one.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(6);

/// How programs are run on this replica.
#[derive(Clone, Debug)]
pub struct StdioRules {
    /// A program that was not called for this long is ended.
    pub idle: Duration,
    /// How long a program may take to start and to shake hands.
    pub start_timeout: Duration,
    /// Programs on this replica.
    pub running_max: usize,
    /// Of them at most for one tenant.
    pub running_per_tenant_max: usize,
    /// What ends them should this process be killed: a program and its argument.
    pub warden: Option<(PathBuf, String)>,
}

impl Default for StdioRules {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            start_timeout: Duration::from_secs(30),
            running_max: 64,
            running_per_tenant_max: 16,
            warden: None,
        }
    }
}

/// The programs that run on this replica.
pub(in crate::upstream) struct Children {
    pub(super) rules: StdioRules,
    pub(super) warden: Warden,
    pub(super) journal: Option<Journal>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    all: usize,
    by_tenant: HashMap<Uuid, usize>,
}

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Children {
    pub(in crate::upstream) fn new(rules: StdioRules, journal: Option<Journal>) -> Arc<Self> {
        Arc::new(Self {
            warden: Warden::new(rules.warden.clone()),
            rules,
            journal,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            running: Mutex::default(),
        })
    }

    /// A place for one more program of this tenant.
    ///
    /// # Errors
    /// A sentence for callers.
    pub(super) fn admit(self: &Arc<Self>, tenant: Uuid) -> Result<Place, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let own = running.by_tenant.get(&tenant).copied().unwrap_or_default();
        if own >= self.rules.running_per_tenant_max {
            return Err(format!("{own} programs of this tenant are running on this replica already"));
        }
        if running.all >= self.rules.running_max {
            return Err("this replica runs as many programs as it may".to_owned());
        }
        running.all += 1;
        running.by_tenant.insert(tenant, own + 1);
        Ok(Place { children: Arc::clone(self), tenant })
    }

    /// Ends all programs, and waits until they have ended. None is started any more.
    pub(in crate::upstream) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(CLOSE_WAIT_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("not all programs of stdio servers ended in time");
        }
    }
}

/// The place of a program that runs.
pub(super) struct Place {
    children: Arc<Children>,
    tenant: Uuid,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.children.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.all = running.all.saturating_sub(1);
        if let Some(own) = running.by_tenant.get_mut(&self.tenant) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                running.by_tenant.remove(&self.tenant);
            }
        }
    }
}
