//! Calls that a program has had, as far as it may still speak of them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::protocol::events::CallerMark;

/// Time after the end of a call in which a program may still speak of it, or still work on one that was given up.
pub(super) const ECHO_TIME: Duration = Duration::from_secs(300);
/// Most calls that were given up whose late answers are waited for.
pub(super) const STRAYS_MAX: usize = 1024;

/// Calls that have ended for their callers. What the program says meanwhile may be about one of them, and must not reach
/// the caller of another.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Callers of the calls that were given up and not answered since, by request id.
    strays: HashMap<u64, CallerMark>,
    /// True if there were more than [`STRAYS_MAX`], of which the rest is not known.
    is_over: bool,
    /// Time after which the program counts as done with all that were given up.
    until: Option<Instant>,
    /// Caller whose call ended last, and when.
    last: Option<(CallerMark, Instant)>,
    /// End of the last call of anybody else than that caller.
    other: Option<Instant>,
}

impl Past {
    /// Notes that a call ended; `None` stands for a request of the gateway's own, which nobody hears about.
    pub(super) fn ended(&mut self, caller: Option<CallerMark>, now: Instant) {
        let Some(caller) = caller else { return };
        if let Some((before, at)) = self.last
            && before != caller
        {
            self.other = Some(at);
        }
        self.last = Some((caller, now));
    }

    /// Notes that a caller gave its call up, on which the program may still work.
    pub(super) fn given_up(&mut self, id: u64, caller: CallerMark, now: Instant) {
        self.ended(Some(caller), now);
        self.until = Some(now + ECHO_TIME);
        if self.strays.len() < STRAYS_MAX {
            self.strays.insert(id, caller);
        } else {
            self.is_over = true;
        }
    }

    /// Notes that the program is done with a call that was given up, as its late answer shows.
    pub(super) fn answered_late(&mut self, id: u64, now: Instant) {
        let caller = self.strays.remove(&id);
        self.ended(caller, now);
    }

    /// Returns whether all that the program says now is about calls of this caller: it works on none that was given up, and
    /// the last call of anybody else ended at least [`ECHO_TIME`] ago.
    pub(super) fn is_over_for(&mut self, caller: CallerMark, now: Instant) -> bool {
        if self.until.is_some_and(|until| now >= until) {
            self.strays.clear();
            (self.is_over, self.until) = (false, None);
        }
        let others = match self.last {
            Some((last, at)) if last != caller => Some(at),
            _ => self.other,
        };
        self.strays.is_empty() && !self.is_over && others.is_none_or(|at| now >= at + ECHO_TIME)
    }
}
