//! Limits on the programs that this replica runs, and the end of all of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::confine::Confinement;
use super::journal::Journal;
use super::warden::Warden;
use crate::domain::measure::Measures;

/// Longest wait for the end of all programs: longer than the grace periods of one program.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(6);

/// Rules for running programs on this replica.
#[derive(Clone, Debug)]
pub struct StdioRules {
    /// Time without calls after which a program is ended.
    pub idle: Duration,
    /// Longest time for a program to start and to shake hands.
    pub start_timeout: Duration,
    /// Most programs on this replica.
    pub running_max: usize,
    /// Most programs of one tenant on this replica.
    pub running_per_tenant_max: usize,
    /// Program and argument of the helper that ends the programs if this process is killed; `None` runs no helper.
    pub warden: Option<(PathBuf, String)>,
    /// Rules that hide files of the gateway from programs; `None` if there are none to hide.
    pub confinement: Option<Confinement>,
}

impl Default for StdioRules {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            start_timeout: Duration::from_secs(30),
            running_max: 64,
            running_per_tenant_max: 16,
            warden: None,
            confinement: None,
        }
    }
}

/// Programs that run on this replica.
pub(in crate::upstream) struct Children {
    pub(super) rules: StdioRules,
    pub(super) warden: Warden,
    pub(super) journal: Option<Journal>,
    pub(in crate::upstream) measures: Arc<Measures>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    /// Notified when a slot becomes free.
    pub(super) freed: Notify,
    running: Mutex<Places>,
}

/// Slots that are taken, by number.
#[derive(Default)]
struct Places {
    next: u64,
    by_number: HashMap<u64, Taken>,
}

/// Program that has a slot, as [`Children`] sees it.
pub(super) trait RunningProgram: Send + Sync {
    /// Returns the tenant and the server of the program.
    fn owner(&self) -> (Uuid, Uuid);
    /// Returns whether the program is being ended.
    fn is_leaving(&self) -> bool;
    /// Returns the time since when the program is unused; `None` if it is in use or does not run.
    fn unused_since(&self) -> Option<Instant>;
    /// Puts the program to sleep unless it is in use. Returns whether it did.
    fn leaves(&self) -> bool;
    /// Returns whether the program runs and was not listed since its start, or not for `interval`. If so, it counts as
    /// listed from now on.
    fn take_unlisted(&self, interval: Duration) -> bool;
    /// Returns whether the program runs and announced a change of a list since the last call of this function.
    fn take_announced(&self) -> bool;
    /// Ends the program at once, whatever it is doing. Returns the number of the start that was ended.
    fn end_now(&self) -> u64;
}

/// Slot that is taken. Its program may have lost its owner and still be ending.
struct Taken {
    tenant: Uuid,
    server: Uuid,
    program: Weak<dyn RunningProgram>,
}

/// Reason why there is no slot for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The previous program of the same server has not ended yet.
    Before,
    /// The tenant runs this many programs already.
    Tenant(usize),
    /// The replica runs as many programs as it may.
    Replica,
}

impl Full {
    /// Returns the reason as a sentence for callers, without anything about other tenants.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::Before => {
                "the previous instance of the program still has calls under way, or is slow to end".to_owned()
            }
            Self::Tenant(own) => format!("{own} programs of this tenant are in use on this replica already"),
            Self::Replica => "there is no place for it on this replica now".to_owned(),
        }
    }
}

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Children {
    pub(in crate::upstream) fn new(
        rules: StdioRules,
        journal: Option<Journal>,
        measures: &Arc<Measures>,
    ) -> Arc<Self> {
        Arc::new(Self {
            warden: Warden::new(rules.warden.clone()),
            rules,
            journal,
            measures: Arc::clone(measures),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            freed: Notify::new(),
            running: Mutex::default(),
        })
    }

    /// Returns the number of programs that have a slot.
    pub(in crate::upstream) fn count(&self) -> usize {
        self.running.lock().by_number.len()
    }

    /// Takes a slot for one more program.
    ///
    /// # Errors
    /// [`Full`] if the server's previous program still runs, or the tenant or the replica runs as many as it may.
    pub(super) fn admit(
        self: &Arc<Self>,
        (tenant, server): (Uuid, Uuid),
        program: Weak<dyn RunningProgram>,
    ) -> Result<ChildPlace, Full> {
        let mut places = self.running.lock();
        let own = places.by_number.values().filter(|taken| taken.tenant == tenant);
        if own.clone().any(|taken| taken.server == server) {
            return Err(Full::Before);
        }
        let own = own.count();
        if own >= self.rules.running_per_tenant_max {
            return Err(Full::Tenant(own));
        }
        if places.by_number.len() >= self.rules.running_max {
            return Err(Full::Replica);
        }
        let number = places.next;
        places.next += 1;
        places.by_number.insert(number, Taken { tenant, server, program });
        Ok(ChildPlace { children: Arc::clone(self), number })
    }

    /// Ends the program that was unused for longest, the tenant's own ones first. Returns whether a slot will be
    /// free: not if all programs are in use.
    pub(super) fn make_room(&self, tenant: Uuid, full: Full) -> bool {
        let (own, others): (Vec<_>, Vec<_>) =
            self.running().into_iter().partition(|program| program.owner().0 == tenant);
        let others = if full == Full::Replica { others } else { Vec::new() };
        // one at a time: callers that wait for the same slot end no further programs
        if own.iter().chain(&others).any(|program| program.is_leaving()) {
            return true;
        }
        [own, others].into_iter().any(|programs| {
            let mut unused: Vec<_> =
                programs.into_iter().filter_map(|program| Some((program.unused_since()?, program))).collect();
            unused.sort_unstable_by_key(|(since, _)| *since);
            unused.iter().any(|(_, program)| program.leaves())
        })
    }

    /// Returns tenant and server of each program that was not listed for `interval`. They count as listed from now
    /// on.
    pub(in crate::upstream) fn take_unlisted(&self, interval: Duration) -> Vec<(Uuid, Uuid)> {
        let running = self.running().into_iter();
        let unlisted = running.filter(|program| program.take_unlisted(interval));
        unlisted.map(|program| program.owner()).collect()
    }

    /// Returns tenant and server of each program that announced a change of a list since the last call of this
    /// function.
    pub(in crate::upstream) fn take_announced(&self) -> Vec<(Uuid, Uuid)> {
        let announced = self.running().into_iter().filter(|program| program.take_announced());
        announced.map(|program| program.owner()).collect()
    }

    /// Returns the programs that have a slot. Their states must be read after the slots are unlocked: a program that
    /// asks for a slot locks its state first.
    fn running(&self) -> Vec<Arc<dyn RunningProgram>> {
        self.running.lock().by_number.values().filter_map(|taken| taken.program.upgrade()).collect()
    }

    /// Ends earlier programs of the same server at once, with the requests that they are answering.
    pub(super) fn end_before(&self, program: &Arc<impl RunningProgram + 'static>) {
        let own: Arc<dyn RunningProgram> = Arc::clone(program) as _;
        for other in self.running() {
            if other.owner() == own.owner() && !Arc::ptr_eq(&other, &own) {
                other.end_now();
            }
        }
    }

    /// Ends all programs, and waits until they have ended. No program can start afterwards.
    pub(in crate::upstream) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(CLOSE_WAIT_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("not all programs of stdio servers ended in time");
        }
    }
}

/// Slot of a program that runs. Dropping it frees the slot.
pub(super) struct ChildPlace {
    children: Arc<Children>,
    number: u64,
}

impl Drop for ChildPlace {
    fn drop(&mut self) {
        self.children.running.lock().by_number.remove(&self.number);
        self.children.freed.notify_waiters();
    }
}
