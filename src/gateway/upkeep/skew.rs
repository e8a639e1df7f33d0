//! Difference between this replica's clock and the database's. This replica's clock stamps records and their ids, and
//! expires keys; the database's decides about retention, partitions, heartbeats and leases.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

use super::Upkeep;
use super::complaints::Complaints;

/// Difference from which a warning is logged, in seconds; smaller ones are hardly visible in the log.
const SKEW_MAX_S: i64 = 2;
/// Difference below which the clocks agree again, in seconds: a difference that wavers about the bound is logged once.
const SKEW_AGREES_S: i64 = 1;
const JOB: &str = "clock";

/// Difference between this replica's clock and the database's, in milliseconds; positive if this one is ahead.
#[derive(Debug, Default)]
pub(super) struct Skew(AtomicI64);

/// Returns the certain part of the difference: the database read its clock between `sent` and `received`.
fn certain(sent: DateTime<Utc>, database: DateTime<Utc>, received: DateTime<Utc>) -> TimeDelta {
    if database < sent {
        return sent - database;
    }
    if database > received { received - database } else { TimeDelta::zero() }
}

impl Skew {
    /// Stores the difference. Logs once that the clocks differ, and once that they agree again.
    pub(super) fn compare(
        &self,
        sent: DateTime<Utc>,
        database: DateTime<Utc>,
        received: DateTime<Utc>,
        complaints: &Complaints,
    ) {
        let skew = certain(sent, database, received);
        self.0.store(skew.num_milliseconds(), Ordering::Relaxed);
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
        self.skew.0.load(Ordering::Relaxed)
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
