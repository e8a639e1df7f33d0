//! What a program is asked, and when it was asked last.

use std::time::Duration;

use tokio::time::Instant;

/// How much in use a program is.
pub(super) struct ProgramUsage {
    /// Requests under way.
    asked: usize,
    /// Of them listings.
    listings: usize,
    /// When it was listed last since it came up.
    listed: Option<Instant>,
    /// When the last call ended, or it came up.
    used: Instant,
}

impl ProgramUsage {
    pub(super) fn new() -> Self {
        Self { asked: 0, listings: 0, listed: None, used: Instant::now() }
    }

    /// It can be asked from now on, however long it took to start.
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

    /// Since when nobody has called it; nothing while it is being asked.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        (self.asked == 0).then_some(self.used)
    }

    /// Whether it was not listed since it came up, or not for `interval`. If so, it counts as listed from now on.
    pub(super) fn take_unlisted(&mut self, interval: Duration) -> bool {
        let is_due = self.listings == 0 && self.listed.is_none_or(|at| at.elapsed() >= interval);
        if is_due {
            self.listed = Some(Instant::now());
        }
        is_due
    }
}
