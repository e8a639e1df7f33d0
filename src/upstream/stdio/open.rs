//! Requests under way at a program.

use super::state::Shared;

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
        shared.with_usage(|usage| usage.begin(is_listing));
        Self { shared, is_call, is_listing }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.with_usage(|usage| usage.end(self.is_call, self.is_listing));
    }
}
