//! How often a program failed, and how long it is left alone for it.

use std::time::Duration;

/// The pause after a program failed; each is twice the one before.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// A program that ran this long was a good one: what failed before does not count.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// Failures of a program, without a good life between them.
#[derive(Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// The program has run for so long, however it ended.
    pub(super) fn lived(&mut self, life: Duration) {
        if life >= GOOD_LIFE {
            self.forget();
        }
    }

    /// It has failed; gives how long it is left alone.
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
