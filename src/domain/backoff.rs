//! Backoff between attempts: delays that double up to a bound. Randomness is passed in, from [`chance`].

use std::time::Duration;

/// Backoff that doubles from a first delay to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff that doubles from `first` up to `max`.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, failures: 0 }
    }

    /// Returns the delay after one more failure.
    pub fn delay(&mut self) -> Duration {
        let delay = doubled(self.first, self.max, self.failures);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Returns the delay after one more failure, [`jittered`].
    pub fn jittered(&mut self, chance: f64) -> Duration {
        jittered(self.delay(), chance)
    }

    /// Resets the backoff if what failed had worked for as long as `good` before.
    pub fn worked_for(&mut self, life: Duration, good: Duration) {
        if life >= good {
            self.reset();
        }
    }

    /// Resets the backoff after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns `first`, doubled so many `times`, but no more than `max`.
pub fn doubled(first: Duration, max: Duration, times: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}

/// Returns a duration between half of `delay`, for a `chance` of 0, and all of it, for 1. So replicas that failed
/// together do not retry together.
pub fn jittered(delay: Duration, chance: f64) -> Duration {
    let half = delay / 2;
    half + half.mul_f64(chance.clamp(0.0, 1.0))
}

/// Returns a random number from 0 to 1. Without a source of randomness it is 1: no delay is shorter than intended.
pub fn chance() -> f64 {
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound_and_begin_anew() {
        let ms = Duration::from_millis;
        for (chance, delays) in [(0.0, [25, 50, 100, 200, 200]), (1.0, [50, 100, 200, 400, 400])] {
            let mut backoff = Backoff::new(ms(50), ms(400));
            assert_eq!(delays.map(|_| backoff.jittered(chance)), delays.map(ms));
            backoff.failures = u32::MAX;
            assert_eq!(backoff.delay(), ms(400));
            backoff.reset();
            assert_eq!(backoff.delay(), ms(50));
        }
        assert_eq!(Backoff::new(ms(50), ms(10)).delay(), ms(10));
    }

    #[test]
    fn a_good_life_makes_good_for_failures() {
        let s = Duration::from_secs;
        let mut backoff = Backoff { failures: 5, ..Backoff::new(s(1), s(60)) };
        backoff.worked_for(s(59), s(60));
        assert_eq!(backoff.delay(), s(32));
        backoff.worked_for(s(60), s(60));
        assert_eq!(backoff.delay(), s(1));
    }

    #[test]
    fn no_two_replicas_pause_alike() {
        let drawn: std::collections::HashSet<Duration> =
            (0..20).map(|_| jittered(Duration::from_secs(2), chance())).collect();
        assert!(drawn.len() > 15, "{drawn:?}");
    }
}
