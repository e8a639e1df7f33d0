//! Backoff of a program that fails.

use std::time::Duration;

use crate::domain::backoff::Backoff;

/// First backoff after a failure; doubles up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// Run time after which earlier failures of a program no longer count.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// Backoff of a program since it last ran for [`GOOD_LIFE`].
pub(super) struct Failures(Backoff);

impl Failures {
    pub(super) fn none() -> Self {
        Self(Backoff::new(REST_MIN, REST_MAX))
    }

    /// Records how long the program ran, however it ended.
    pub(super) fn lived(&mut self, life: Duration) {
        if life >= GOOD_LIFE {
            self.forget();
        }
    }

    /// Counts a failure; returns the backoff before the next start.
    pub(super) fn one_more(&mut self) -> Duration {
        self.0.delay()
    }

    pub(super) fn forget(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_to_a_bound() {
        let mut failures = Failures::none();
        let rests: Vec<u64> = (1..=9).map(|_| failures.one_more().as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn a_good_life_makes_good_for_failures_however_it_ended() {
        let mut failures = Failures::none();
        for _ in 0..5 {
            failures.one_more();
        }
        failures.lived(GOOD_LIFE - Duration::from_secs(1));
        assert_eq!(failures.one_more().as_secs(), 32);
        failures.lived(GOOD_LIFE);
        assert_eq!(failures.one_more().as_secs(), 1);
    }
}
