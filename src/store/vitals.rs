//! How the store is, for whoever watches over it: what is at hand, without a query.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use sqlx::PgPool;

use super::Store;

/// What the store notes of itself.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Units of work that wait for a connection, by pool: control, commit, report.
    waiting: [AtomicUsize; 3],
    /// Up to where the log has partitions; `None` before the first upkeep.
    ahead: Mutex<Option<Ahead>>,
    /// How the last try for each lease ended.
    leases: Mutex<BTreeMap<&'static str, bool>>,
}

/// The last day that has a partition, and the database's clock when that was seen to, since it goes by that one.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    last_day: NaiveDate,
    database_time: DateTime<Utc>,
    seen_at: Instant,
}

impl Ahead {
    /// Days from the database's today to the last one, by the time that has passed here since.
    fn days(self, now: Instant) -> i64 {
        let passed = TimeDelta::from_std(now - self.seen_at).unwrap_or_default();
        let today = self.database_time.checked_add_signed(passed).unwrap_or(self.database_time).date_naive();
        self.last_day.signed_duration_since(today).num_days()
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

    pub(super) fn has_partitions_until(&self, last_day: NaiveDate, database_time: DateTime<Utc>) {
        let ahead = Ahead { last_day, database_time, seen_at: Instant::now() };
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
    }

    pub(super) fn tried_lease(&self, name: &'static str, is_held: bool) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(name, is_held);
    }
}

/// How one pool of connections is.
#[derive(Clone, Copy, Debug)]
pub struct StorePoolVitals {
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
    pub pools: [StorePoolVitals; 3],
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
            StorePoolVitals {
                name,
                used: (pool.size() as usize).saturating_sub(idle),
                idle,
                max: pool.options().get_max_connections(),
                waiting: waiting.load(Ordering::Relaxed),
            }
        };
        let ahead = *noted.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = noted.leases.lock().unwrap_or_else(PoisonError::into_inner);
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
