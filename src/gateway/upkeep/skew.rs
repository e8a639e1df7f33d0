//! Difference between this replica's clock and the database's. This replica's clock stamps records and their ids, and
//! expires keys; the database's decides about retention, partitions, heartbeats and leases.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

use super::Upkeep;
use super::complaints::Complaints;
use crate::gateway::clock;

/// Difference from which a warning is logged, in seconds; smaller ones are hardly visible in the log.
const SKEW_MAX_S: i64 = 2;
/// Difference below which the clocks agree again, in seconds: a difference that wavers about the bound is logged once.
const SKEW_AGREES_S: i64 = 1;
const JOB: &str = "clock";

/// Difference between this replica's clock and the database's.
#[derive(Debug, Default)]
pub(super) struct Skew {
    /// Certain part, in milliseconds; positive if this clock is ahead.
    certain_ms: AtomicI64,
    /// Most that the database's clock may be ahead, in milliseconds; negative if it is behind for certain.
    behind_max_ms: AtomicI64,
}

/// Returns the certain part of the difference: the database read its clock between `sent` and `received`.
fn certain(sent: DateTime<Utc>, database: DateTime<Utc>, received: DateTime<Utc>) -> TimeDelta {
    if database < sent {
        return sent - database;
    }
    if database > received { received - database } else { TimeDelta::zero() }
}

impl Skew {
    /// Returns the time by the database's clock at `here` by this one, at the latest.
    fn at_most(&self, here: DateTime<Utc>) -> DateTime<Utc> {
        here + TimeDelta::milliseconds(self.behind_max_ms.load(Ordering::Relaxed))
    }

    /// Stores the difference. Logs once that the clocks differ, and once that they agree again.
    pub(super) fn compare(
        &self,
        sent: DateTime<Utc>,
        database: DateTime<Utc>,
        received: DateTime<Utc>,
        complaints: &Complaints,
    ) {
        let skew = certain(sent, database, received);
        self.certain_ms.store(skew.num_milliseconds(), Ordering::Relaxed);
        self.behind_max_ms.store((database - sent).num_milliseconds() + 1, Ordering::Relaxed);
        let off_s = skew.num_seconds();
        let word = if skew < TimeDelta::zero() { "behind" } else { "ahead of" };
        if off_s.abs() >= SKEW_MAX_S && complaints.is_new(JOB, word) {
            tracing::warn!(
                off_s,
                "this replica's clock is {word} the database's: times in the activity log are wrong by that; look at NTP"
            );
        }
        if off_s.abs() < SKEW_AGREES_S && complaints.forget(JOB) {
            tracing::info!("this replica's clock agrees with the database's again");
        }
    }
}

impl Upkeep {
    /// Returns how far this replica's clock was ahead of the database's at the last heartbeat, in milliseconds; 0 if no
    /// difference is certain.
    pub fn clock_skew_ms(&self) -> i64 {
        self.skew.certain_ms.load(Ordering::Relaxed)
    }

    /// Returns the time that it is at the latest by the database's clock, as known from the last heartbeat.
    pub fn database_time_at_most(&self) -> DateTime<Utc> {
        self.skew.at_most(clock::now())
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::{Complaints, JOB, Skew, certain};

    #[test]
    fn a_slow_answer_is_no_skew() {
        let at = |s: i64| DateTime::<Utc>::from_timestamp(s, 0).unwrap();
        for (sent, database, received, expected) in
            [(10, 10, 10, 0), (10, 15, 20, 0), (10, 25, 20, -5), (10, 3, 20, 7), (10, 20, 20, 0)]
        {
            assert_eq!(certain(at(sent), at(database), at(received)).num_seconds(), expected);
        }
    }

    #[test]
    fn the_databases_time_is_never_later_than_said() {
        let at = |s: i64| DateTime::<Utc>::from_timestamp(s, 0).unwrap();
        for (sent, database, received, expected) in
            [(10, 10, 10, 20), (10, 15, 20, 25), (10, 70, 11, 80), (10, 3, 11, 13)]
        {
            let skew = Skew::default();
            skew.compare(at(sent), at(database), at(received), &Complaints::default());
            assert_eq!(skew.at_most(at(20)).timestamp(), expected);
        }
    }

    #[test]
    fn a_skew_that_wavers_about_the_bound_is_said_once() {
        let (skew, complaints) = (Skew::default(), Complaints::default());
        let here = DateTime::<Utc>::from_timestamp(1_000, 0).unwrap();
        let mut said = Vec::new();
        for off_ms in [1_900, 2_100, 1_900, 2_100, 1_000, 900, 1_900, 2_100] {
            skew.compare(here, here - chrono::TimeDelta::milliseconds(off_ms), here, &complaints);
            said.push(complaints.has(JOB));
        }
        assert_eq!(said, [false, true, true, true, true, false, false, true]);
    }
}
