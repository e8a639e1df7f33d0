//! Requests under way at a program.

use super::state::Shared;

/// Guard of a request under way, during which the program is not ended for lack of calls. The end of a call restarts
/// that time; the gateway's own requests keep no program awake.
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
