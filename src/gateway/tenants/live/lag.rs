//! Lag of a tenant's keys and settings behind the database's. Each tenant has its own: rows that cannot be loaded affect
//! their tenant only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

/// Start of the lag, and whether a task is catching up.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Lag {
    since: RwLock<Option<Instant>>,
    is_followed: AtomicBool,
}

impl Lag {
    /// Notes that the database has newer keys, since `since` at the earliest. Returns `true` if the caller must catch up,
    /// because no task does yet.
    pub(in crate::gateway) fn begin(&self, since: Instant) -> bool {
        self.since.write().get_or_insert(since);
        !self.is_followed.swap(true, Ordering::AcqRel)
    }

    /// Notes that catching up has failed.
    pub(in crate::gateway) fn give_up(&self) {
        self.is_followed.store(false, Ordering::Release);
    }

    /// Notes that keys and settings are current.
    pub(in crate::gateway) fn end(&self) {
        if self.since.read().is_some() {
            *self.since.write() = None;
        }
        self.give_up();
    }

    /// Returns whether the lag has lasted longer than `max`.
    pub(in crate::gateway) fn is_over(&self, max: Duration) -> bool {
        let since = *self.since.read();
        since.is_some_and(|since| since.elapsed() > max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_first_change_and_one_follows() {
        let (lag, now) = (Lag::default(), Instant::now());
        let long_ago = now.checked_sub(Duration::from_secs(9)).unwrap();
        assert!(!lag.is_over(Duration::ZERO));
        assert!(lag.begin(long_ago));
        assert!(!lag.begin(now), "two at the same time");
        lag.give_up();
        assert!(lag.begin(now), "nobody goes on");
        assert!(lag.is_over(Duration::from_secs(8)) && !lag.is_over(Duration::from_secs(60)));
        lag.end();
        assert!(!lag.is_over(Duration::ZERO));
        assert!(lag.begin(now));
    }
}
