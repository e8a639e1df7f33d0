//! Backoff between attempts: growing pauses with jitter.

use std::time::Duration;

/// Backoff that doubles from a first pause to a maximum. Each pause is drawn between half of its value and all of it,
/// so that replicas that failed together do not retry together.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a backoff that doubles from `first` up to `max`.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, next: first }
    }

    /// Returns the pause after one more failure.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        jittered(pause)
    }

    /// Resets the backoff after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Returns a random duration between half of `pause` and all of it.
pub fn jittered(pause: Duration) -> Duration {
    // without a random number it is the full pause: never shorter than intended
    let random = getrandom::u32().unwrap_or(u32::MAX);
    pause.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
        for full in [50, 100, 200, 400, 400, 400] {
            let pause = backoff.pause();
            let full = Duration::from_millis(full);
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(50));
    }

    #[test]
    fn no_two_replicas_pause_alike() {
        let drawn: std::collections::HashSet<Duration> =
            (0..20).map(|_| jittered(Duration::from_secs(2))).collect();
        assert!(drawn.len() > 15, "{drawn:?}");
    }
}
