//! How the store is, for whoever watches over it: what is at hand, without a query.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use chrono::{NaiveDate, Utc};
use sqlx::PgPool;

use super::Store;

/// No upkeep yet.
const UNKNOWN: i64 = i64::MIN;

/// What the store notes of itself.
#[derive(Debug)]
pub(super) struct Noted {
    /// Units of work that wait for a connection, by pool: control, commit, report.
    waiting: [AtomicUsize; 3],
    /// The last day that has a partition, in days of our era.
    last_day: AtomicI64,
    /// How the last try for each lease ended.
    leases: Mutex<BTreeMap<&'static str, bool>>,
}

impl Default for Noted {
    fn default() -> Noted {
        Noted { waiting: Default::default(), last_day: AtomicI64::new(UNKNOWN), leases: Mutex::default() }
    }
}

/// Which pool a connection is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolKind {
    Control,
    Commit,
    Report,
}

/// Somebody who waits for a connection, until dropped.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Noted {
    pub(super) fn waits(&self, kind: PoolKind) -> Waiting<'_> {
        let [control, commit, report] = &self.waiting;
        let waiting = match kind {
            PoolKind::Control => control,
            PoolKind::Commit => commit,
            PoolKind::Report => report,
        };
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }

    pub(super) fn has_partitions_until(&self, day: NaiveDate) {
        self.last_day.store(days(day), Ordering::Relaxed);
    }

    pub(super) fn tried_lease(&self, name: &'static str, is_held: bool) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(name, is_held);
    }
}

fn days(day: NaiveDate) -> i64 {
    day.signed_duration_since(NaiveDate::default()).num_days()
}

/// How one pool of connections is.
#[derive(Clone, Copy, Debug)]
pub struct PoolVitals {
    /// What it is for.
    pub name: &'static str,
    /// Connections at work.
    pub used: usize,
    /// Connections that wait for work.
    pub idle: usize,
    /// Connections that it may have.
    pub max: u32,
    /// Work that waits for a connection.
    pub waiting: usize,
}

/// How the store is.
#[derive(Clone, Debug)]
pub struct StoreVitals {
    /// Whether the database answered last time.
    pub is_reachable: bool,
    /// The pools.
    pub pools: [PoolVitals; 3],
    /// Days after today that have a partition of the log; `None` before the first upkeep.
    pub partitions_ahead_days: Option<i64>,
    /// The leases that were tried for, and whether they are this replica's.
    pub leases: Vec<(&'static str, bool)>,
}

impl Store {
    /// How the store is now; asks nobody.
    pub fn vitals(&self) -> StoreVitals {
        let noted = &self.noted;
        let [control, commit, report] = &noted.waiting;
        let pool = |name, pool: &PgPool, waiting: &AtomicUsize| {
            let idle = pool.num_idle();
            PoolVitals {
                name,
                used: (pool.size() as usize).saturating_sub(idle),
                idle,
                max: pool.options().get_max_connections(),
                waiting: waiting.load(Ordering::Relaxed),
            }
        };
        let last_day = Some(noted.last_day.load(Ordering::Relaxed)).filter(|day| *day != UNKNOWN);
        let leases = noted.leases.lock().unwrap_or_else(PoisonError::into_inner);
        StoreVitals {
            is_reachable: !self.reach.is_down(),
            pools: [
                pool("control", &self.control, control),
                pool("commit", &self.commit, commit),
                pool("report", &self.report, report),
            ],
            partitions_ahead_days: last_day.map(|day| day - days(Utc::now().date_naive())),
            leases: leases.iter().map(|(name, is_held)| (*name, *is_held)).collect(),
        }
    }
}
