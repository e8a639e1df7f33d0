//! Backoff of a program that fails.

use std::time::Duration;

/// First backoff after a failure; each further one is twice as long, up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// Run time after which earlier failures of a program no longer count.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// Number of failures of a program since it last ran for [`GOOD_LIFE`].
#[derive(Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Records how long the program ran, however it ended.
    pub(super) fn lived(&mut self, life: Duration) {
        if life >= GOOD_LIFE {
            self.forget();
        }
    }

    /// Counts a failure; returns the backoff before the next start.
    pub(super) fn one_more(&mut self) -> Duration {
        self.0 = self.0.saturating_add(1);
        let doubled = 1_u32.checked_shl(self.0 - 1).unwrap_or(u32::MAX);
        REST_MIN.saturating_mul(doubled).min(REST_MAX)
    }

    pub(super) fn forget(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_to_a_bound() {
        let mut failures = Failures::default();
        let rests: Vec<u64> = (1..=9).map(|_| failures.one_more().as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let mut failures = Failures(u32::MAX);
        assert_eq!(failures.one_more(), REST_MAX);
    }

    #[test]
    fn a_good_life_makes_good_for_failures_however_it_ended() {
        let mut failures = Failures(5);
        failures.lived(GOOD_LIFE - Duration::from_secs(1));
        assert_eq!(failures.one_more().as_secs(), 32);
        failures.lived(GOOD_LIFE);
        assert_eq!(failures.one_more().as_secs(), 1);
    }
}
