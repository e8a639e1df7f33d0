//! Numbers of the tools that a key has.

use crate::domain::tenant::Action;
use crate::gateway::catalog::ToolCounts;
use crate::gateway::tenants::Caller;

impl Caller {
    /// Counts the tools that lists and searches show the caller; `None` for a role without tools, and outside of tenants.
    pub async fn count_tools(&self) -> Option<ToolCounts> {
        self.authorise(Action::UseTools).ok()?;
        let catalogue = self.tenant.as_ref()?.catalogue();
        Some(catalogue.view_soon(&self.settings).await.counts)
    }
}
