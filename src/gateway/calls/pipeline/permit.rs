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
        // boxed: rare, it must not be part of every call's future
        Box::pin(self.consent.consume(attempt, permit, &call.as_consent())).await
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
            Ok(CallOutcome::InputRequired { .. }) => Box::pin(self.consent.keep(attempt, used, record)).await,
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::domain::refusal::Code;
    use crate::domain::tool::ResultHead;

    #[test]
    fn what_became_of_a_call_that_was_sent_and_not_answered_is_unknown() {
        let result = |raw: &'static str| {
            let (head, raw) = (ResultHead::read(raw).unwrap(), Bytes::from_static(raw.as_bytes()));
            Ok(CallOutcome::Result { raw, head, warning: None, truncated: None })
        };
        let error = Ok(CallOutcome::UpstreamError { raw: Bytes::from_static(b"{}"), code: -32603 });
        let lost = || Err(Refusal::new(Code::UpstreamLost, ""));
        for (concluded, was_sent, expected) in [
            (result(r#"{"content":[]}"#), true, ConsentState::Succeeded),
            (result(r#"{"content":[],"isError":true}"#), true, ConsentState::Failed),
            (error, true, ConsentState::Failed),
            (lost(), true, ConsentState::Unknown),
            (lost(), false, ConsentState::Failed),
        ] {
            assert_eq!(state_of(&concluded, was_sent), expected, "{concluded:?} {was_sent}");
        }
    }
}
