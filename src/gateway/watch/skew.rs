//! How far this replica's clock is from the database's. Records and the ids of records are stamped here, partitions, leases
//! and ages are the database's.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

use super::Upkeep;
use crate::gateway::Gateway;

/// What the two clocks may differ by without a word, in seconds: less than a person would notice in the log.
const SKEW_MAX_S: i64 = 2;
const JOB: &str = "clock";

/// This replica's clock against the database's, in milliseconds; positive when it is ahead.
#[derive(Debug, Default)]
pub(super) struct Skew(AtomicI64);

/// What is certain of it: the database read its clock at some moment between these two of ours.
fn certain(sent: DateTime<Utc>, database: DateTime<Utc>, received: DateTime<Utc>) -> TimeDelta {
    if database < sent {
        return sent - database;
    }
    if database > received { received - database } else { TimeDelta::zero() }
}

impl Upkeep {
    /// Says once that the clocks differ, and once that they agree again.
    pub(super) fn compare_clocks(
        &self,
        sent: DateTime<Utc>,
        database: DateTime<Utc>,
        received: DateTime<Utc>,
    ) {
        let skew = certain(sent, database, received);
        self.skew.0.store(skew.num_milliseconds(), Ordering::Relaxed);
        let (off_s, is_off) = (skew.num_seconds(), skew.num_seconds().abs() >= SKEW_MAX_S);
        let word = if skew < TimeDelta::zero() { "behind" } else { "ahead of" };
        if is_off && self.is_new_complaint(JOB, word) {
            tracing::warn!(
                off_s,
                "this replica's clock is {word} the database's: times in the activity log are wrong by that; look at NTP"
            );
        }
        if !is_off && self.forget_complaint(JOB) {
            tracing::info!("this replica's clock agrees with the database's again");
        }
    }
}

impl Gateway {
    /// How far this replica's clock is ahead of the database's as of the last heartbeat, in milliseconds; 0 while they cannot be
    /// told apart.
    pub fn clock_skew_ms(&self) -> i64 {
        self.upkeep.skew.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::certain;

    #[test]
    fn a_slow_answer_is_no_skew() {
        let at = |s: i64| DateTime::<Utc>::from_timestamp(s, 0).unwrap();
        for (sent, database, received, expected) in
            [(10, 10, 10, 0), (10, 15, 20, 0), (10, 25, 20, -5), (10, 3, 20, 7), (10, 20, 20, 0)]
        {
            assert_eq!(certain(at(sent), at(database), at(received)).num_seconds(), expected);
        }
    }
}
