//! Locks for listing a server, and the backoff for its slow lists.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::domain::backoff::Backoff;

/// First backoff after lists took too long; each further one is twice as long, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Locks for listing one server.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Turns {
    pub(in crate::upstream) tools: Mutex<()>,
    pub(in crate::upstream) others: Mutex<Slowness>,
}

/// Backoff for the lists of a server that are not its tools, with the end of its last delay; `None` if the last
/// lists were not slow.
#[derive(Debug, Default)]
pub struct Slowness(Option<(Backoff, Instant)>);

impl Slowness {
    /// Returns whether listings that nobody asked for should be skipped at `now`: other work for the server waits for
    /// them.
    pub fn rests(&self, now: Instant) -> bool {
        self.0.is_some_and(|(_, until)| now < until)
    }

    /// Records that a list took too long: starts the next backoff.
    pub fn was_slow(&mut self, now: Instant) {
        let mut backoff = self.0.map_or(Backoff::new(PAUSE_MIN, PAUSE_MAX), |(backoff, _)| backoff);
        let until = now + backoff.delay();
        self.0 = Some((backoff, until));
    }

    /// Records that no list took too long: ends the backoff.
    pub fn was_quick(&mut self) {
        self.0 = None;
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
