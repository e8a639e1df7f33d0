//! Token buckets that bound how fast the gateway reads input. A peer that sends faster has to wait, and takes no
//! processor time from others.

use std::time::Duration;

use tokio::time::Instant;

/// Longest wait that is due at any time, in seconds.
const DEBT_S_MAX: f64 = 2.0;

/// Token bucket, in units of the caller's choice (bytes, lines).
#[derive(Debug)]
pub(in crate::upstream) struct Pace {
    per_s: f64,
    burst: f64,
    left: f64,
    at: Instant,
}

impl Pace {
    /// Creates a full bucket of `burst` units that refills by `per_s` units per second.
    pub(in crate::upstream) fn new(burst: u32, per_s: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_s: f64::from(per_s.max(1)), burst, left: burst, at: Instant::now() }
    }

    /// Takes `units` that were read; returns how long to wait before reading more.
    pub(in crate::upstream) fn take(&mut self, units: usize, now: Instant) -> Duration {
        self.fill(now);
        // one large read does not slow its sender down for long
        self.left = (self.left - units as f64).max(-self.per_s * DEBT_S_MAX);
        if self.left >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.left / self.per_s) }
    }

    /// Takes one unit; returns false if there is none.
    pub(in crate::upstream) fn try_one(&mut self, now: Instant) -> bool {
        self.fill(now);
        let is_there = self.left >= 1.0;
        if is_there {
            self.left -= 1.0;
        }
        is_there
    }

    fn fill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * self.per_s).min(self.burst);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_waited_for() {
        let now = Instant::now();
        let mut pace = Pace::new(100, 50);
        assert_eq!(pace.take(100, now), Duration::ZERO);
        assert_eq!(pace.take(50, now), Duration::from_secs(1));
        assert_eq!(pace.take(0, now + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(Pace::new(1, 50).take(1_000_000, now), Duration::from_secs(2), "but not for ever");
        assert!(!pace.try_one(now + Duration::from_secs(1)));
        assert!(pace.try_one(now + Duration::from_secs(60)));
        assert_eq!(pace.take(99, now + Duration::from_secs(60)), Duration::ZERO, "no more than the burst");
        assert!(!pace.try_one(now + Duration::from_secs(60)));
    }
}
