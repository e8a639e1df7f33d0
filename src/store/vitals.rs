//! State of the store for monitoring, read without a query.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use parking_lot::Mutex;
use sqlx::PgPool;

use super::Store;

/// Counters and observations that the store keeps about itself.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Units of work that wait for a connection, by pool: control, commit, report.
    waiting: [AtomicUsize; 3],
    /// Last day that has a partition of the activity log; `None` before the first upkeep.
    ahead: Mutex<Option<Ahead>>,
    /// Results of the last attempts to take each lease, by name: true if this replica holds it.
    leases: Mutex<BTreeMap<&'static str, bool>>,
}

/// Last day that has a partition, and the time of that observation by the database's clock and by this one.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    last_day: NaiveDate,
    database_time: DateTime<Utc>,
    seen_at: Instant,
}

impl Ahead {
    /// Returns the days from the database's current day to the last partition; negative if that day has passed.
    fn days(self, now: Instant) -> i64 {
        let passed = TimeDelta::from_std(now - self.seen_at).unwrap_or_default();
        let today = self.database_time.checked_add_signed(passed).unwrap_or(self.database_time).date_naive();
        self.last_day.signed_duration_since(today).num_days()
    }
}

/// Pool that a connection is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolKind {
    Control,
    Commit,
    Report,
}

/// A waiter for a connection, counted until it is dropped.
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

    pub(super) fn has_partitions_until(&self, last_day: NaiveDate, database_time: DateTime<Utc>) {
        let ahead = Ahead { last_day, database_time, seen_at: Instant::now() };
        *self.ahead.lock() = Some(ahead);
    }

    pub(super) fn tried_lease(&self, name: &'static str, is_held: bool) {
        self.leases.lock().insert(name, is_held);
    }
}

/// State of one connection pool.
#[derive(Clone, Copy, Debug)]
pub struct StorePoolVitals {
    /// Name of the pool: `control`, `commit` or `report`.
    pub name: &'static str,
    /// Number of connections in use.
    pub used: usize,
    /// Number of idle connections.
    pub idle: usize,
    /// Most connections that the pool may have.
    pub max: u32,
    /// Number of units of work that wait for a connection.
    pub waiting: usize,
}

/// State of the store.
#[derive(Clone, Debug)]
pub struct StoreVitals {
    /// True if the last attempt to reach the database succeeded, or none was made yet.
    pub is_reachable: bool,
    /// States of the pools.
    pub pools: [StorePoolVitals; 3],
    /// Days from today to the last partition of the activity log; `None` before the first upkeep.
    pub partitions_ahead_days: Option<i64>,
    /// Leases that this replica has tried to take, by name; true if it holds the lease.
    pub leases: Vec<(&'static str, bool)>,
}

impl Store {
    /// Returns the present state of the store, without a query.
    pub fn vitals(&self) -> StoreVitals {
        let noted = &self.noted;
        let [control, commit, report] = &noted.waiting;
        let pool = |name, pool: &PgPool, waiting: &AtomicUsize| {
            let idle = pool.num_idle();
            StorePoolVitals {
                name,
                used: (pool.size() as usize).saturating_sub(idle),
                idle,
                max: pool.options().get_max_connections(),
                waiting: waiting.load(Ordering::Relaxed),
            }
        };
        let ahead = *noted.ahead.lock();
        let leases = noted.leases.lock();
        StoreVitals {
            is_reachable: !self.reach.is_down(),
            pools: [
                pool("control", &self.control, control),
                pool("commit", &self.commit, commit),
                pool("report", &self.report, report),
            ],
            partitions_ahead_days: ahead.map(|ahead| ahead.days(Instant::now())),
            leases: leases.iter().map(|(name, is_held)| (*name, *is_held)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_ahead_grow_less_as_time_passes() {
        let database_time = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let last_day = database_time.date_naive() + chrono::Days::new(14);
        let ahead = Ahead { last_day, database_time, seen_at: Instant::now() };
        for (days, expected) in [(0, 14), (1, 13), (20, -6)] {
            let later = ahead.seen_at + Duration::from_secs(days * 86_400);
            assert_eq!(ahead.days(later), expected, "after {days} days");
        }
    }
}
