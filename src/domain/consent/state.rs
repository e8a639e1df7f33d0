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
        /// The time for an answer is over.
        TimedOut = "timed_out",
        /// The turn of the caller was cancelled.
        Cancelled = "cancelled",
        /// The answer came to nothing: the call was not repeated in time, or the tool or the key changed.
        Lapsed = "lapsed",
        /// No channel reaches anybody.
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
    /// The tool, the key or the policy is not the one that was asked about.
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

    /// Returns whether no step leads away from the state.
    pub fn is_final(self) -> bool {
        ConsentStep::ALL.into_iter().all(|step| self.after(step).is_none())
    }
}
