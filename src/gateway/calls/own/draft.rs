//! Single steps in the draft of a form: nothing is sent to its site.

use chrono::SecondsFormat;

use super::OwnCall;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::web_page::draft::{DraftStep, FormDraft, step_result};
use crate::gateway::calls::Calls;
use crate::gateway::calls::drafts::{self, DraftPut};
use crate::upstream::Answer;

/// Attempts to change a draft that other steps change at the same time.
const TRIES_MAX: usize = 5;

impl Calls {
    /// Sets a value in the caller's draft of a form, and begins the draft if there is none.
    pub(super) async fn set_in_draft(&self, call: OwnCall<'_>) -> Result<Answer, Refusal> {
        let OwnCall { attempt, tool, arguments } = call;
        let Some(facts) = tool.shape.page.as_deref() else { return Err(drafts::unreadable()) };
        let step = DraftStep::read(facts, arguments).map_err(|unknown| drafts::invalid(tool, &unknown))?;
        let place = drafts::place(&attempt.caller, tool.server.id, step.form);
        for _ in 0..TRIES_MAX {
            let found = self.draft(place).await?;
            let (version, draft) = found.map_or((None, None), |found| (Some(found.version), found.draft));
            if let (Some(version), Some(draft)) = (version, &draft)
                && !draft.is_of(step.form)
            {
                self.drop_draft(place, version).await;
                return Err(drafts::changed(&step.target.form));
            }
            let is_new = draft.is_none();
            let mut draft = draft.unwrap_or_else(|| FormDraft::of(step.form));
            let set = draft.set(&step.target.parameter, step.value.clone());
            set.map_err(|full| drafts::invalid(tool, &full))?;
            match self.put_draft(place, version, &draft).await? {
                DraftPut::Until(until) => {
                    let until = until.to_rfc3339_opts(SecondsFormat::Millis, true);
                    return Ok(Answer::Result(step_result(&step, &draft, (is_new, &until)).into()));
                }
                // another step came first: this one is taken in what that one left
                DraftPut::Superseded => {}
            }
        }
        let message = "Other steps change this draft at the same time; nothing was set, try again";
        Err(Refusal::new(Code::Overloaded, message))
    }
}
