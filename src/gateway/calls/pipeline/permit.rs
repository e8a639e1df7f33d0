//! Permissions of persons, as calls use them up: right before the call is sent, when its record is committed.

use ulid::Ulid;

use super::checks::Checked;
use super::checks::tool::CheckedTool;
use super::outcome::CallOutcome;
use crate::domain::consent::ConsentState;
use crate::domain::refusal::Refusal;
use crate::gateway::calls::Calls;
use crate::gateway::consent::{ConsentCall, Permit, UsedPermit};
use crate::gateway::log::Attempt;

impl CheckedTool {
    /// Returns the call as a permission is about it.
    pub(super) fn as_consent(&self) -> ConsentCall<'_> {
        ConsentCall {
            tool: &self.tool,
            variant: self.variant,
            arguments: std::str::from_utf8(&self.arguments).unwrap_or_default(),
        }
    }
}

impl Calls {
    /// Uses a permission up, if the call needs one.
    pub(super) async fn use_permit(
        &self,
        attempt: &Attempt,
        checked: &Checked,
        permit: Option<Permit>,
    ) -> Result<Option<UsedPermit>, Refusal> {
        let (Some(permit), Checked::Tool(call)) = (permit, checked) else { return Ok(None) };
        self.consent.consume(attempt, permit, &call.as_consent()).await.map(Some)
    }

    /// Notes the outcome of a call that used a permission up, or keeps the permission for the next round.
    pub(super) async fn finish_permit(
        &self,
        attempt: &Attempt,
        used: Option<UsedPermit>,
        record: Ulid,
        (concluded, was_sent): (&Result<CallOutcome, Refusal>, bool),
    ) {
        let Some(used) = used else { return };
        match concluded {
            // before the caller can come back
            Ok(CallOutcome::InputRequired { .. }) => self.consent.keep(attempt, used, record).await,
            _ => self.consent.finish(attempt, used, state_of(concluded, was_sent)),
        }
    }
}

/// Returns the state of a permission after its call.
fn state_of(concluded: &Result<CallOutcome, Refusal>, was_sent: bool) -> ConsentState {
    match concluded {
        Ok(CallOutcome::Result { head, .. }) if !head.is_error => ConsentState::Succeeded,
        Err(_) if was_sent => ConsentState::Unknown,
        Ok(_) | Err(_) => ConsentState::Failed,
    }
}
