//! The states of a permission request, and the steps between them.

use crate::domain::text_enum::text_enum;

text_enum! {
    /// State of a permission request.
    pub enum ConsentState {
        /// A person is being asked.
        Pending = "pending",
        /// A person allowed the call, which may run once.
        Granted = "granted",
        /// A person refused the call.
        Denied = "denied",
        /// No person answered in time.
        TimedOut = "timed_out",
        /// The turn of the caller was cancelled.
        Cancelled = "cancelled",
        /// The answer came to nothing: the call was not repeated in time, the tool or the key changed, or what was remembered
        /// with it was revoked.
        Lapsed = "lapsed",
        /// No person can be asked.
        Undeliverable = "undeliverable",
        /// The call was let through, and has not ended.
        Consumed = "consumed",
        /// The call ran.
        Succeeded = "succeeded",
        /// The call failed.
        Failed = "failed",
        /// The call may have run: nobody knows its outcome.
        Unknown = "unknown",
    }
}

text_enum! {
    /// Reason for which a permission request lapsed.
    pub enum LapseReason {
        /// The call was allowed, and the agent did not repeat it in time.
        NotRepeated = "not_repeated",
        /// The definition of the tool changed.
        ToolChanged = "tool_changed",
        /// The key of the call was revoked, or its person was blocked.
        AskerRevoked = "asker_revoked",
        /// The key that allowed the call was revoked, or its person was blocked.
        DeciderRevoked = "decider_revoked",
        /// The grant that was given with the permission was revoked.
        GrantRevoked = "grant_revoked",
        /// A grant let the call through while a person was asked about it.
        AllowedByGrant = "allowed_by_grant",
    }
}

/// Event that moves a permission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsentStep {
    /// A person allowed the call.
    Grant,
    /// A person refused the call.
    Deny,
    /// The time for an answer, or for the repeated call, is over.
    Expire,
    /// A person ended the turn.
    Cancel,
    /// The tool, the key or the policy is not the one that was asked about, or what was remembered was revoked.
    Lapse,
    /// No channel reaches anybody.
    GiveUp,
    /// The call is let through.
    Consume,
    /// The call ran.
    Succeed,
    /// The call failed, or was not sent.
    Fail,
    /// The outcome of the call is lost.
    Lose,
}

impl ConsentStep {
    /// All steps.
    pub const ALL: [ConsentStep; 10] = [
        ConsentStep::Grant,
        ConsentStep::Deny,
        ConsentStep::Expire,
        ConsentStep::Cancel,
        ConsentStep::Lapse,
        ConsentStep::GiveUp,
        ConsentStep::Consume,
        ConsentStep::Succeed,
        ConsentStep::Fail,
        ConsentStep::Lose,
    ];
}

/// End of the meaning of a state after which nothing about the call is known any more.
const ASKS_AGAIN: &str = "; the same call asks again";

/// Returns the meaning of a state without the words that the same call asks again, which a remembered decision makes untrue.
pub fn without_asking_again(meaning: &str) -> &str {
    meaning.strip_suffix(ASKS_AGAIN).unwrap_or(meaning)
}

impl ConsentState {
    /// Returns the state after a step; `None` if the step does not exist in this state.
    pub fn after(self, step: ConsentStep) -> Option<ConsentState> {
        use ConsentState::{
            Cancelled, Consumed, Denied, Failed, Granted, Lapsed, Pending, Succeeded, TimedOut,
            Undeliverable, Unknown,
        };
        match (self, step) {
            (Pending, ConsentStep::Grant) => Some(Granted),
            (Pending, ConsentStep::Deny) => Some(Denied),
            (Pending, ConsentStep::Expire) => Some(TimedOut),
            (Pending, ConsentStep::GiveUp) => Some(Undeliverable),
            (Pending | Granted, ConsentStep::Cancel) => Some(Cancelled),
            (Pending | Granted, ConsentStep::Lapse) | (Granted, ConsentStep::Expire) => Some(Lapsed),
            (Granted, ConsentStep::Consume) => Some(Consumed),
            (Consumed, ConsentStep::Succeed) => Some(Succeeded),
            (Consumed, ConsentStep::Fail) => Some(Failed),
            (Consumed, ConsentStep::Lose) => Some(Unknown),
            _ => None,
        }
    }

    /// Returns what the state means for the call, and what may be done. `until` is the end of the request's time, `fenced_until` that
    /// of the fence, if its turn was ended, and `lapse` why it lapsed, if it did and that is known.
    pub fn meaning(self, until: &str, fenced_until: &str, lapse: Option<LapseReason>) -> String {
        match self {
            ConsentState::Pending => format!("a person may answer until {until}"),
            ConsentState::Granted => format!("the same call runs once, if the agent repeats it by {until}"),
            ConsentState::Denied => format!("the same call is refused until {until}, and asks again after that"),
            ConsentState::TimedOut => {
                format!("nobody answered by {until}, and the call was not made{ASKS_AGAIN}")
            }
            ConsentState::Cancelled => {
                format!("its turn was ended: calls of it that ask are refused until {fenced_until}; after that they ask again, unless a remembered decision covers them")
            }
            ConsentState::Lapsed => lapsed(lapse, until),
            ConsentState::Undeliverable => "nobody could be asked: look at the channels of the rule that asked \
                (mcpproxy policy explain); the same call asks again"
                .to_owned(),
            ConsentState::Consumed => {
                "the call was let through and is under way; its outcome comes here, and nothing runs twice".to_owned()
            }
            ConsentState::Succeeded => format!("the call ran{ASKS_AGAIN}"),
            ConsentState::Failed => {
                "the call failed, or was not sent: its record says why (mcpproxy activity list --consent-id ID); the same \
                 call asks again"
                    .to_owned()
            }
            ConsentState::Unknown => {
                "the call was let through, and its answer was lost: it may have run. Look at the server before the agent \
                 repeats it; the same call asks again"
                    .to_owned()
            }
        }
    }

    /// Returns whether no step leads away from the state.
    pub fn is_final(self) -> bool {
        ConsentStep::ALL.into_iter().all(|step| self.after(step).is_none())
    }
}

/// Returns what it means that a request lapsed; `until` is the end of its time.
fn lapsed(reason: Option<LapseReason>, until: &str) -> String {
    let why = match reason {
        Some(LapseReason::NotRepeated) => format!("the agent did not repeat the call by {until}"),
        Some(LapseReason::ToolChanged) => "the tool's definition changed".to_owned(),
        Some(LapseReason::DeciderRevoked) => {
            "the key that allowed it was revoked, or its person blocked".to_owned()
        }
        Some(LapseReason::GrantRevoked) => {
            return format!(
                "this very call was not run: the decision that was remembered with it was revoked{ASKS_AGAIN}"
            );
        }
        Some(LapseReason::AskerRevoked) => {
            return "nothing was run: the key that asked was revoked, or its person blocked".to_owned();
        }
        Some(LapseReason::AllowedByGrant) => {
            return "no answer was needed any more: a decision that was remembered let the call run when the agent repeated it"
                .to_owned();
        }
        None => format!(
            "the agent did not repeat the call by {until}, or before that the tool's definition changed, or the key that asked, \
             the key that allowed it or its grant was revoked"
        ),
    };
    format!("nothing was run: {why}{ASKS_AGAIN}")
}
