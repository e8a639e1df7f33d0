//! Damping of listings for servers that announce changes.

use std::time::{Duration, Instant};

/// Shortest pause after a listing; the first announcement after it acts at once.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause after a listing.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Listings in a row without changes before the pauses grow.
const IDLE_MAX: u32 = 2;
/// Listings within a minute before the pauses grow, whatever they find.
const BUSY_MAX: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Counter of a server's announced listings: a server that announces without changes, or all the time, waits longer.
#[derive(Debug, Default)]
pub(super) struct ListingDamping {
    idle: u32,
    busy: u32,
    since: Option<Instant>,
}

impl ListingDamping {
    /// Returns the pause after a listing that ended at `now` and found `changes` changes.
    pub(super) fn pause(&mut self, now: Instant, changes: usize) -> Duration {
        if self.since.is_none_or(|since| now.duration_since(since) >= MINUTE) {
            *self = ListingDamping { since: Some(now), ..ListingDamping::default() };
        }
        self.busy += 1;
        self.idle = if changes == 0 { self.idle + 1 } else { 0 };
        let over = self.idle.saturating_sub(IDLE_MAX).max(self.busy.saturating_sub(BUSY_MAX));
        PAUSE_MIN.saturating_mul(1 << over.min(10)).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pauses: &[Duration]) -> Vec<u64> {
        pauses.iter().map(Duration::as_secs).collect()
    }

    #[test]
    fn who_announces_for_nothing_waits_longer() {
        let (mut damping, now) = (ListingDamping::default(), Instant::now());
        let pauses: Vec<_> = (0..9).map(|_| damping.pause(now, 0)).collect();
        assert_eq!(seconds(&pauses), [1, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(damping.pause(now, 1), PAUSE_MIN, "a real change is rewarded");
    }

    #[test]
    fn who_changes_all_the_time_waits_longer_until_the_minute_is_over() {
        let (mut damping, now) = (ListingDamping::default(), Instant::now());
        let pauses: Vec<_> = (0..13).map(|_| damping.pause(now, 3)).collect();
        assert_eq!(seconds(&pauses), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8]);
        assert_eq!(damping.pause(now + MINUTE, 3), PAUSE_MIN);
    }

    /// Bound on listings of one server per minute, whatever it announces.
    #[test]
    fn a_flood_costs_few_listings() {
        for changes in [0, 1] {
            let (mut damping, began) = (ListingDamping::default(), Instant::now());
            let (mut now, mut listings) = (began, 0);
            while now < began + MINUTE * 10 {
                now += damping.pause(now, changes);
                listings += 1;
            }
            assert!(listings <= 10 * 14, "{listings} listings in ten minutes");
        }
    }
}
