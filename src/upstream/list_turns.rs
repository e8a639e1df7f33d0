//! Whose turn it is to list a server, and how patient that is with lists that take too long.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long lists are left alone that took too long; doubled by every further time.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// The turns of one server.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Turns {
    pub(super) tools: Mutex<()>,
    pub(super) others: Mutex<Slowness>,
}

/// How a server fared with lists that are not its tools.
#[derive(Debug, Default)]
pub struct Slowness {
    times: u32,
    until: Option<Instant>,
}

impl Slowness {
    /// Whether they are left alone, where nobody asks for them: what else is done for the server would wait.
    pub fn rests(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// One of them took too long.
    pub fn was_slow(&mut self, now: Instant) {
        let pause = PAUSE_MIN.saturating_mul(1 << self.times.min(8)).min(PAUSE_MAX);
        self.times = self.times.saturating_add(1);
        self.until = Some(now + pause);
    }

    /// None did.
    pub fn was_quick(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_slow_is_left_alone_for_longer_and_longer() {
        let (mut slowness, now) = (Slowness::default(), Instant::now());
        assert!(!slowness.rests(now));
        for seconds in [60, 120, 240, 480, 600, 600] {
            slowness.was_slow(now);
            let end = now + Duration::from_secs(seconds);
            assert!(slowness.rests(end - Duration::from_millis(1)) && !slowness.rests(end), "{seconds}");
        }
        slowness.was_quick();
        assert!(!slowness.rests(now));
        slowness.was_slow(now);
        assert!(!slowness.rests(now + PAUSE_MIN));
    }
}
