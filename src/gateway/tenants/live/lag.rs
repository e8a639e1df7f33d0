//! How far a tenant's keys and settings are behind the database's: a tenant whose rows cannot be loaded is on its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Behind or not, and whether somebody is on it.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Lag {
    since: RwLock<Option<Instant>>,
    is_followed: AtomicBool,
}

impl Lag {
    /// The database has moved on, no earlier than `since`. `true` for whoever is to follow: nobody does yet.
    pub(in crate::gateway) fn begin(&self, since: Instant) -> bool {
        self.since.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(since);
        !self.is_followed.swap(true, Ordering::AcqRel)
    }

    /// Whoever followed could not.
    pub(in crate::gateway) fn give_up(&self) {
        self.is_followed.store(false, Ordering::Release);
    }

    /// What is here is what is there.
    pub(in crate::gateway) fn end(&self) {
        if self.since.read().unwrap_or_else(PoisonError::into_inner).is_some() {
            *self.since.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.give_up();
    }

    /// Whether it has lasted for longer than `max`.
    pub(in crate::gateway) fn is_over(&self, max: Duration) -> bool {
        let since = *self.since.read().unwrap_or_else(PoisonError::into_inner);
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
