//! Texts of refusals about permission requests.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::domain::reason::{self, whole_seconds};
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::tenants::Caller;
use crate::store::{ConsentRow, HeldFence};

/// News of a request that a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsentTold {
    /// A person is being asked.
    Pending,
    /// A person refused the call.
    Denied,
    /// No person answered in time.
    TimedOut,
    /// The tool changed after the answer.
    Changed,
    /// The answer was used, or its time is over.
    Used,
}

/// Returns the refusal of a call whose key is not valid any more.
pub(in crate::gateway) fn key_gone() -> Refusal {
    Refusal::new(Code::OperationNotPermitted, "This key is not valid any more; nothing was run")
}

pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns the refusal of a call of `tool` because of its request.
pub(super) fn of_row(told: ConsentTold, tool: &str, row: &ConsentRow) -> Refusal {
    let id = row.id;
    let (code, message) = match told {
        ConsentTold::Pending => (
            Code::ConsentPending,
            format!(
                "Waiting for approval ({id}, until {}). Repeat the same call with the same arguments later",
                time(row.expires_at)
            ),
        ),
        ConsentTold::Denied => {
            return reason::denial(id, row.decided_owner.as_deref()).quoting(words(row.comment.as_deref()));
        }
        ConsentTold::TimedOut => (
            Code::ConsentTimedOut,
            format!(
                "Nobody answered within {} ({id}); the call was not made. The same call asks once more",
                whole_seconds(row.ttl_s.unsigned_abs().into())
            ),
        ),
        ConsentTold::Changed => (
            Code::ConsentLapsed,
            format!("'{tool}' changed after approval; approval discarded ({id}). The same call asks again"),
        ),
        ConsentTold::Used => (
            Code::ConsentLapsed,
            format!(
                "The approval of '{tool}' ({id}) was used by another call, or is over; nothing was run. The same call \
                 asks again"
            ),
        ),
    };
    Refusal::new(code, message).about_consent(id)
}

/// Returns the refusal of a call whose person gave an answer that was not offered.
pub(super) fn malformed() -> Refusal {
    let message = "The approval channel sent an answer that was not offered; the call was not made";
    Refusal::new(Code::ConsentMalformed, message)
}

/// Returns a comment as the caller may read it.
fn words(comment: Option<&str>) -> Option<String> {
    comment.and_then(reason::quotation)
}

/// Returns the refusal of a call in a turn that a person ended; `fence` is `None` where the end is not known.
pub(super) fn turn_cancelled(fence: Option<&HeldFence>) -> Refusal {
    let until = fence.map(|fence| time(fence.ends_at));
    let comment = fence.and_then(|fence| fence.comment.as_deref());
    reason::turn_ended("The user", until.as_deref()).quoting(words(comment))
}

/// Returns the refusal of a call that was under way when its turn was ended; `began` says what became of it, `comment` is that of the person who ended
/// it.
pub(in crate::gateway) fn cut_off(began: &str, comment: Option<&str>) -> Refusal {
    reason::turn_ended(began, None).quoting(words(comment))
}

/// Returns the refusal of a call of a tool that was refused several times.
pub(super) fn cooling_down(tool: &str, denials: i64, until: DateTime<Utc>) -> Refusal {
    let message =
        format!("'{tool}' was refused {denials} times; it is refused automatically until {}", time(until));
    Refusal::new(Code::ConsentCooldown, message)
}

/// Returns the refusal of one more ask of a key. `is_full` is true if too many wait, which an answer ends.
pub(super) fn throttled(pending: i64, is_full: bool, retry_s: i64) -> Refusal {
    let until = match is_full {
        true => format!("for an answer to one of them, or {retry_s} s until one ends"),
        false => format!("{retry_s} s"),
    };
    let message = format!("Too many permission requests of this key ({pending} open); wait {until}");
    Refusal::new(Code::ConsentThrottled, message).retry_after(u64::try_from(retry_s).unwrap_or(1))
}

/// Returns the refusal of a call that a person would have to allow, where nobody can be asked.
pub(super) fn undeliverable(caller: &Caller) -> Refusal {
    let tenant = caller.tenant_name();
    Refusal::new(
        Code::ConsentUndeliverable,
        format!("No one can be asked right now (no channel for {tenant})"),
    )
}
