//! Use of a program: requests under way, and the times of the last ones.

use std::time::Duration;

use tokio::time::Instant;

/// Use of a program since its start.
pub(super) struct ProgramUsage {
    /// Requests under way.
    asked: usize,
    /// Listings under way, which are among the requests.
    listings: usize,
    /// Time of the last listing since the program started; `None` if there was none.
    listed: Option<Instant>,
    /// Time when the last call ended, or when the program started if that was later.
    used: Instant,
}

impl ProgramUsage {
    pub(super) fn new() -> Self {
        Self { asked: 0, listings: 0, listed: None, used: Instant::now() }
    }

    /// Records that the program takes requests from now on, however long its start took.
    pub(super) fn came_up(&mut self) {
        self.listed = None;
        self.used = Instant::now();
    }

    /// Notes that a request begins.
    pub(super) fn begin(&mut self, is_listing: bool) {
        self.asked += 1;
        self.listings += usize::from(is_listing);
    }

    /// Notes that a request is over.
    pub(super) fn end(&mut self, is_call: bool, is_listing: bool) {
        self.asked = self.asked.saturating_sub(1);
        if is_call {
            self.used = Instant::now();
        }
        if is_listing {
            self.listings = self.listings.saturating_sub(1);
            self.listed = Some(Instant::now());
        }
    }

    /// Returns the time of the last use; `None` while a request is under way.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        (self.asked == 0).then_some(self.used)
    }

    /// Returns whether the program was not listed since its start, or not for `interval`. If so, it counts as listed
    /// from now on.
    pub(super) fn take_unlisted(&mut self, interval: Duration) -> bool {
        let is_due = self.listings == 0 && self.listed.is_none_or(|at| at.elapsed() >= interval);
        if is_due {
            self.listed = Some(Instant::now());
        }
        is_due
    }
}
