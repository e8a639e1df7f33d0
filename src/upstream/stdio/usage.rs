//! What a program is asked, and when it was asked last.

use std::time::Duration;

use tokio::time::Instant;

use super::state::Shared;

/// How much in use a program is.
pub(super) struct Usage {
    /// Requests under way.
    asked: usize,
    /// Of them listings.
    listings: usize,
    /// When it was listed last since it came up.
    listed: Option<Instant>,
    /// When the last call ended, or it came up.
    used: Instant,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self { asked: 0, listings: 0, listed: None, used: Instant::now() }
    }

    /// It can be asked from now on, however long it took to start.
    pub(super) fn came_up(&mut self) {
        self.listed = None;
        self.used = Instant::now();
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

/// A request under way: it keeps the program. A call also begins the time anew in which nobody calls it; the
/// gateway's own questions keep no program awake.
pub(super) struct Open<'a> {
    shared: &'a Shared,
    is_call: bool,
    is_listing: bool,
}

impl<'a> Open<'a> {
    pub(super) fn new(shared: &'a Shared, method: &str) -> Self {
        let is_call =
            matches!(method, "tools/call" | "prompts/get" | "resources/read" | "completion/complete");
        let is_listing = method == "tools/list";
        shared.with_usage(|usage| {
            usage.asked += 1;
            usage.listings += usize::from(is_listing);
        });
        Self { shared, is_call, is_listing }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.with_usage(|usage| {
            usage.asked = usage.asked.saturating_sub(1);
            if self.is_call {
                usage.used = Instant::now();
            }
            if self.is_listing {
                usage.listings = usage.listings.saturating_sub(1);
                usage.listed = Some(Instant::now());
            }
        });
    }
}
