//! Records of calls on `/mcp/direct` that are refused before the pipeline.

use super::Calls;
use super::pipeline::checks::tool::direct;
use super::pipeline::{Door, Facts};
use crate::domain::annotations::Tier;
use crate::gateway::log::{Attempt, RefusedAttempt};

impl Calls {
    /// Records a call on `/mcp/direct` that was refused before the pipeline. Unless its tool only reads, waits until the
    /// record is committed, at most as long as a call would.
    pub async fn record_refused_directly(&self, attempt: &Attempt, refused: &RefusedAttempt<'_>) {
        if !self.log.keeps_record(attempt, refused) {
            return;
        }
        let mut record = self.log.refused_record(attempt, refused);
        if let Some(name) = refused.tool {
            let mut facts = Facts::new(Door::Direct);
            direct::identify(&attempt.caller, name, &mut facts);
            facts.write_into(&mut record, self.options.preview_bytes);
        }
        if record.tier == Some(Tier::Read) {
            return self.log.write(record);
        }
        let kept = match self.log.activity.begin_call(record).await {
            Ok(pending) => pending.close_committed().await,
            Err(full) => Err(full),
        };
        if kept.is_err() {
            // nothing was run, and the request stays refused
            tracing::error!(kind = refused.kind.as_str(), "a refusal was not recorded in time");
        }
    }
}
