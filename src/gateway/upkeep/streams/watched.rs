//! What is known of one server whose announcements are awaited.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::upstream::Announced;

/// How long after a listing that found something new its announcement may still come.
const ANNOUNCEMENT_LATE_MAX: Duration = Duration::from_secs(10);

/// Shared by the task that holds a server's stream, and the jobs that look after the server.
#[derive(Debug, Default)]
pub(super) struct Watched {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when the stream is open.
    live: Option<Instant>,
    /// When its tools were last listed while it was.
    listed: Option<Instant>,
    /// When a listing found a change that nobody had announced: of tools, and of all else.
    silent_changes: [Option<Instant>; 2],
    /// Whether the server has something whose changes it does not announce.
    hears_a_part: bool,
}

impl Watched {
    /// The stream is open.
    pub(super) fn went_live(&self, now: Instant) {
        *self.state() = State { live: Some(now), ..State::default() };
    }

    /// Not all that the server has is announced on the stream that is open: the rest must be listed as ever.
    pub(super) fn hears_a_part(&self) {
        self.state().hears_a_part = true;
    }

    /// The stream has ended; gives how long it was open.
    pub(super) fn went_down(&self, now: Instant) -> Duration {
        let state = std::mem::take(&mut *self.state());
        state.live.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// A change was announced.
    pub(super) fn announced(&self, what: Announced, now: Instant) {
        let [tools, others] = &mut self.state().silent_changes;
        let silent = if what == Announced::Tools { tools } else { others };
        if silent.is_some_and(|at| now.duration_since(at) <= ANNOUNCEMENT_LATE_MAX) {
            *silent = None;
        }
    }

    /// The tools were listed because of an announcement.
    pub(super) fn listed(&self, now: Instant) {
        let mut state = self.state();
        if state.live.is_some() {
            state.listed = Some(now);
        }
    }

    /// The server was listed because it was time, and so many tools, and so much else, were other than before.
    pub(super) fn relisted(&self, now: Instant, changes: [usize; 2]) {
        self.listed(now);
        let mut state = self.state();
        if state.live.is_none() {
            return;
        }
        for (silent, changes) in state.silent_changes.iter_mut().zip(changes) {
            if changes > 0 {
                *silent = Some(now);
            }
        }
    }

    /// The tools were listed, and some are held back: only another listing lets them in.
    pub(super) fn holds_back(&self) {
        self.state().listed = None;
    }

    /// Whether a sign of life will do instead of a listing.
    pub(super) fn can_wait(&self, now: Instant, interval: Duration) -> bool {
        let state = self.state();
        let is_fresh = state.listed.is_some_and(|at| now.duration_since(at) < interval);
        state.live.is_some() && is_fresh && state.silent_changes == [None; 2] && !state.hears_a_part
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(300);

    #[test]
    fn only_a_live_stream_with_a_listing_can_wait() {
        let (watched, now) = (Watched::default(), Instant::now());
        watched.listed(now);
        assert!(!watched.can_wait(now, INTERVAL), "not live");
        watched.went_live(now);
        assert!(!watched.can_wait(now, INTERVAL), "not listed since");
        watched.listed(now);
        assert!(watched.can_wait(now, INTERVAL));
        assert!(!watched.can_wait(now + INTERVAL, INTERVAL), "listed too long ago");
        watched.holds_back();
        assert!(!watched.can_wait(now, INTERVAL), "something is held back");
        watched.listed(now);
        assert_eq!(watched.went_down(now + INTERVAL), INTERVAL);
        assert!(!watched.can_wait(now, INTERVAL));
    }

    #[test]
    fn a_change_that_nobody_announced_ends_the_trust() {
        for (changes, what, other) in [
            ([1, 0], Announced::Tools, Announced::Resources),
            ([0, 1], Announced::Resources, Announced::Tools),
            ([0, 1], Announced::Prompts, Announced::Tools),
        ] {
            let (watched, now) = (Watched::default(), Instant::now());
            watched.went_live(now);
            watched.relisted(now, [0, 0]);
            assert!(watched.can_wait(now, INTERVAL));
            watched.relisted(now, changes);
            assert!(!watched.can_wait(now, INTERVAL));
            watched.announced(other, now);
            assert!(!watched.can_wait(now, INTERVAL), "{other:?} says nothing about {what:?}");
            watched.announced(what, now + ANNOUNCEMENT_LATE_MAX);
            assert!(watched.can_wait(now, INTERVAL), "the announcement was only late");
            watched.relisted(now, changes);
            watched.announced(what, now + ANNOUNCEMENT_LATE_MAX * 2);
            assert!(!watched.can_wait(now, INTERVAL));
            watched.went_live(now);
            watched.listed(now);
            assert!(watched.can_wait(now, INTERVAL), "a new stream starts anew");
        }
    }
}
