//! Conclusion of a call: turns the upstream's answer or failure into an outcome, and into the record.

use std::borrow::Cow;

use bytes::Bytes;
use uuid::Uuid;

use super::logins::{exchange_refused, login_needed, login_refused, login_unavailable};
use super::outcome::CallOutcome;
use super::record::KnownSecrets;
use super::round::Asking;
use super::{record, round};
use crate::domain::activity::{Record, Status};
use crate::domain::refusal::{Class, Code, Refusal};
use crate::domain::tool::ResultHead;
use crate::gateway::calls::Calls;
use crate::gateway::calls::under_way::CallStop;
use crate::gateway::consent::cut_off;
use crate::gateway::log::record_unavailable;
use crate::upstream::{Answer, FailureKind, UpstreamError};

/// Suggested retry delay when all program slots are in use, in seconds.
const NO_PLACE_RETRY_S: u64 = 5;

impl Calls {
    /// Turns the upstream's answer or failure into the outcome, and notes it in the record.
    pub(super) async fn conclude(
        &self,
        asking: &Asking<'_>,
        record: &mut Record,
        ended: Result<Answer, Refusal>,
        digest: impl FnOnce() -> [u8; 32],
    ) -> Result<CallOutcome, Refusal> {
        let target = &asking.server.target;
        let known = KnownSecrets::of(asking.server, &asking.attempt.caller, &self.upstreams);
        let outcome = match ended {
            Ok(Answer::Error { raw, code }) => {
                record.status = Status::UpstreamError;
                record::upstream_error(record, &known, &raw);
                Ok(CallOutcome::UpstreamError { raw, code })
            }
            Ok(Answer::Result(raw)) => match self.head_of(target.tenant, &raw).await {
                Some(head) if head.result_type.as_deref() == Some("input_required") => {
                    round::note_asked(record);
                    self.ask_caller(asking, &raw, digest)
                }
                Some(head) => {
                    record.status = if head.is_error { Status::UpstreamError } else { Status::Success };
                    let warning = record.warning.clone();
                    Ok(CallOutcome::Result { raw, head, warning, truncated: None })
                }
                None => {
                    Err(Refusal::after_dispatch(Code::UpstreamInvalid, "the server's answer is no result"))
                }
            },
            Err(refusal) => Err(refusal),
        };
        match &outcome {
            Ok(outcome) => {
                let shown = shown(outcome);
                record::response(record, &known, shown.as_deref(), self.options.preview_bytes);
            }
            Err(refusal) => {
                record.status = status_after_checks(refusal.code);
                record::error(record, refusal);
            }
        }
        outcome
    }
}

impl Calls {
    /// Reads the head of a result; a large one in the tenant's slot for long work. Returns `None` if it is not a result.
    pub(super) async fn head_of(&self, tenant: Uuid, raw: &Bytes) -> Option<ResultHead> {
        let read = || std::str::from_utf8(raw).ok().and_then(ResultHead::read);
        self.upstreams.aside(tenant, raw.len(), read).await
    }
}

/// Returns the part of an outcome that the record keeps.
fn shown(outcome: &CallOutcome) -> Option<Cow<'_, Bytes>> {
    match outcome {
        CallOutcome::Result { raw, .. } | CallOutcome::UpstreamError { raw, .. } => Some(Cow::Borrowed(raw)),
        CallOutcome::InputRequired { raw, .. } => Some(Cow::Owned(round::without_state(raw))),
        CallOutcome::Refused(_) | CallOutcome::InvalidState => None,
    }
}

pub(super) fn status_of(code: Code) -> Status {
    match code.class() {
        // a check refused it, though the caller has to wait
        _ if code == Code::ConsentThrottled => Status::Blocked,
        Class::Check | Class::Permission | Class::NotFound => Status::Blocked,
        Class::Rate | Class::Limit => Status::Rejected,
        Class::AfterDispatch => Status::Error,
        Class::Cancelled => Status::Cancelled,
    }
}

/// Notes what became of a round of a call that is held open. The result is in the record of the call.
pub(super) fn note_outcome(record: &mut Record, known: &KnownSecrets<'_>, outcome: &CallOutcome) {
    match outcome {
        CallOutcome::Result { head, .. } => {
            record.status = if head.is_error { Status::UpstreamError } else { Status::Success };
        }
        CallOutcome::InputRequired { .. } => round::note_asked(record),
        CallOutcome::UpstreamError { raw, .. } => {
            record.status = Status::UpstreamError;
            record::upstream_error(record, known, raw);
        }
        CallOutcome::Refused(refused) => {
            record.status = status_after_checks(refused.refusal.code);
            record::error(record, &refused.refusal);
        }
        CallOutcome::InvalidState => round::note_invalid(record),
    }
}

/// Returns the status of a call that passed all checks.
fn status_after_checks(code: Code) -> Status {
    match code {
        Code::TurnCancelled => Status::Cancelled,
        code => status_of(code),
    }
}

/// Returns the refusal for a call that was stopped.
pub(super) fn withdrawn(stop: &CallStop, is_dispatched: bool) -> Refusal {
    match (stop, is_dispatched) {
        (CallStop::Person(comment), true) => {
            cut_off("The call was sent and may have run, but the user", comment.as_deref())
        }
        (CallStop::Person(comment), false) => cut_off("The user", comment.as_deref()),
        (CallStop::Caller, true) => {
            Refusal::after_dispatch(Code::Cancelled, "it was cancelled by its caller")
        }
        (CallStop::Caller, false) => {
            Refusal::new(Code::Cancelled, "The call was cancelled by its caller; nothing was run")
        }
    }
}

/// Maps the failure of the server of this name to a refusal: before dispatch a retry is safe, afterwards the call may have run.
pub(super) fn from_upstream(error: &UpstreamError, server: &str) -> Refusal {
    if !error.dispatched {
        return match error.kind {
            FailureKind::LoginUnavailable { retry_s } => login_unavailable(server, Some(retry_s)),
            FailureKind::LoginRefused { .. } => login_refused(server),
            FailureKind::ExchangeRefused => exchange_refused(server),
            FailureKind::LoginNeeded(need) => login_needed((server, need), &error.detail, None),
            FailureKind::Overloaded => Refusal::new(
                Code::Overloaded,
                "Too many calls to this server are under way; nothing was run, try again in a few seconds",
            ),
            FailureKind::Resting { retry_s } => Refusal::new(
                Code::ServerUnavailable,
                format!(
                    "The server failed several times in a row; nothing was run; it is tried again in about {retry_s} s"
                ),
            )
            .retry_after(retry_s.into()),
            FailureKind::NotRunning { retry_s } => {
                let again = match retry_s {
                    Some(retry_s) => format!("; try again in about {retry_s} s"),
                    None => String::new(),
                };
                let refusal = Refusal::new(
                    Code::ServerUnavailable,
                    format!("The server is not running: {}; nothing was run{again}", error.detail),
                );
                retry_s.into_iter().fold(refusal, |refusal, retry_s| refusal.retry_after(retry_s.into()))
            }
            FailureKind::NoRounds => Refusal::new(
                Code::ServerUnavailable,
                "The server does not take answers to its questions any more; nothing was run; call it again without them",
            ),
            FailureKind::Changed => Refusal::new(
                Code::ToolChanged,
                format!("The form of this tool changed on its page ({}); nothing was sent; list the server again", error.detail),
            ),
            FailureKind::Unrecorded => record_unavailable(),
            FailureKind::DraftGone => Refusal::new(
                Code::InvalidArguments,
                "The draft of this form was changed or sent by another call meanwhile; nothing was sent",
            ),
            FailureKind::NoPlace => Refusal::new(
                Code::ServerUnavailable,
                format!("The server is not running: {}; nothing was run, try again in a few seconds", error.detail),
            )
            .retry_after(NO_PLACE_RETRY_S),
            _ => Refusal::new(
                Code::ServerUnavailable,
                format!("The server cannot be reached ({error}); nothing was run, a retry may help later"),
            ),
        };
    }
    match error.kind {
        FailureKind::Timeout => {
            Refusal::after_dispatch(Code::UpstreamTimeout, "no answer came within the time limit")
        }
        FailureKind::TooLarge => {
            Refusal::after_dispatch(Code::UpstreamTooLarge, "the answer is larger than the limit")
        }
        FailureKind::Crowded => Refusal::after_dispatch(
            Code::UpstreamTooLarge,
            "there was no memory for its answer while other large answers are under way",
        ),
        FailureKind::Invalid => {
            Refusal::after_dispatch(Code::UpstreamInvalid, "the answer could not be read as MCP")
        }
        _ => Refusal::after_dispatch(Code::UpstreamLost, "the connection ended before an answer came"),
    }
}
