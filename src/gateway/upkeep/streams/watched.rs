//! State of one server whose announcements are awaited.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::upstream::Announced;

/// Longest delay between a listing that finds a change and its announcement.
const ANNOUNCEMENT_LATE_MAX: Duration = Duration::from_secs(10);

/// State shared by the task of a server's stream and the jobs that list the server.
#[derive(Debug, Default)]
pub(super) struct Watched {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Time at which the stream was opened; `None` while it is not open.
    live: Option<Instant>,
    /// Time at which the tools were last listed while the stream was open.
    listed: Option<Instant>,
    /// Time at which a listing found a change that was not announced: of tools, and of other kinds.
    silent_changes: [Option<Instant>; 2],
    /// True if the server has kinds whose changes it does not announce.
    hears_a_part: bool,
}

impl Watched {
    /// Notes that the stream is open.
    pub(super) fn went_live(&self, now: Instant) {
        *self.state.lock() = State { live: Some(now), ..State::default() };
    }

    /// Notes that the open stream does not announce all kinds: the server must be listed at the usual interval.
    pub(super) fn hears_a_part(&self) {
        self.state.lock().hears_a_part = true;
    }

    /// Notes that the stream has ended. Returns how long it was open.
    pub(super) fn went_down(&self, now: Instant) -> Duration {
        let state = std::mem::take(&mut *self.state.lock());
        state.live.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Notes an announced change.
    pub(super) fn announced(&self, what: Announced, now: Instant) {
        let [tools, others] = &mut self.state.lock().silent_changes;
        let silent = if what == Announced::Tools { tools } else { others };
        if silent.is_some_and(|at| now.duration_since(at) <= ANNOUNCEMENT_LATE_MAX) {
            *silent = None;
        }
    }

    /// Notes a listing of the tools after an announcement.
    pub(super) fn listed(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.live.is_some() {
            state.listed = Some(now);
        }
    }

    /// Notes a scheduled listing, with its number of changes in tools and in other kinds.
    pub(super) fn relisted(&self, now: Instant, changes: [usize; 2]) {
        self.listed(now);
        let mut state = self.state.lock();
        if state.live.is_none() {
            return;
        }
        for (silent, changes) in state.silent_changes.iter_mut().zip(changes) {
            if changes > 0 {
                *silent = Some(now);
            }
        }
    }

    /// Notes a listing whose changes are held back: only another listing applies them.
    pub(super) fn holds_back(&self) {
        self.state.lock().listed = None;
    }

    /// Returns whether a ping suffices instead of a listing.
    pub(super) fn can_wait(&self, now: Instant, interval: Duration) -> bool {
        let state = self.state.lock();
        let is_fresh = state.listed.is_some_and(|at| now.duration_since(at) < interval);
        state.live.is_some() && is_fresh && state.silent_changes == [None; 2] && !state.hears_a_part
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
