//! Why a call did not run: the closed list of codes, and what a refusal says.

use super::operation::{OperationType, Variant};

/// Codes of refusals and failures (behaviour, section 5). The text on the wire is [`Code::as_str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Check 1: the name is not `server:tool`.
    InvalidName,
    /// Checks 1 and 10: arguments are no JSON object, given twice, or against the schema.
    InvalidArguments,
    /// Check 2.
    InvalidIntent,
    /// Check 3.
    MissingIntent,
    /// Check 4.
    IntentMismatch,
    /// Check 5.
    InvalidSensitivity,
    /// Check 6.
    ReasonTooLong,
    /// Check 7: the variant is above the key's ceiling.
    OperationNotPermitted,
    /// Check 7: no such tool for this key, whatever the reason.
    NotFound,
    /// Check 8.
    ServerDisabled,
    /// Check 8.
    ServerQuarantined,
    /// Check 8: a new tool nobody approved yet.
    ToolPending,
    /// Check 8: the definition is not the approved one.
    ToolChanged,
    /// Check 8.
    ToolBlocked,
    /// Check 9.
    ServerMismatch,
    /// Check 12: the key, or its tenant, made as many attempts as its minute allows.
    RateLimited,
    /// Check 12: the deployment or this tenant has too much in flight.
    Overloaded,
    /// Check 12: the upstream cannot be reached.
    ServerUnavailable,
    /// Check 12: the activity record could not be committed.
    RecordUnavailable,
    /// What was cut off a result cannot be read now.
    CacheUnavailable,
    /// After dispatch: no answer within the deadline.
    UpstreamTimeout,
    /// After dispatch: the connection ended without an answer.
    UpstreamLost,
    /// After dispatch: the answer is not readable as MCP.
    UpstreamInvalid,
    /// After dispatch: the answer is larger than the bound.
    UpstreamTooLarge,
    /// After dispatch: the upstream wants input that cannot be asked for here.
    UpstreamNeedsInput,
    /// The caller took the call back.
    Cancelled,
    /// A parameter of `retrieve_tools` or `read_cache` is unusable.
    InvalidQuery,
}

impl Code {
    /// All of them, in order.
    pub const ALL: [Code; 27] = [
        Code::InvalidName,
        Code::InvalidArguments,
        Code::InvalidIntent,
        Code::MissingIntent,
        Code::IntentMismatch,
        Code::InvalidSensitivity,
        Code::ReasonTooLong,
        Code::OperationNotPermitted,
        Code::NotFound,
        Code::ServerDisabled,
        Code::ServerQuarantined,
        Code::ToolPending,
        Code::ToolChanged,
        Code::ToolBlocked,
        Code::ServerMismatch,
        Code::RateLimited,
        Code::Overloaded,
        Code::ServerUnavailable,
        Code::RecordUnavailable,
        Code::CacheUnavailable,
        Code::UpstreamTimeout,
        Code::UpstreamLost,
        Code::UpstreamInvalid,
        Code::UpstreamTooLarge,
        Code::UpstreamNeedsInput,
        Code::Cancelled,
        Code::InvalidQuery,
    ];

    /// The code as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidName => "invalid_name",
            Code::InvalidArguments => "invalid_arguments",
            Code::InvalidIntent => "invalid_intent",
            Code::MissingIntent => "missing_intent",
            Code::IntentMismatch => "intent_mismatch",
            Code::InvalidSensitivity => "invalid_sensitivity",
            Code::ReasonTooLong => "reason_too_long",
            Code::OperationNotPermitted => "operation_not_permitted",
            Code::NotFound => "not_found",
            Code::ServerDisabled => "server_disabled",
            Code::ServerQuarantined => "server_quarantined",
            Code::ToolPending => "tool_pending",
            Code::ToolChanged => "tool_changed",
            Code::ToolBlocked => "tool_blocked",
            Code::ServerMismatch => "server_mismatch",
            Code::RateLimited => "rate_limited",
            Code::Overloaded => "overloaded",
            Code::ServerUnavailable => "server_unavailable",
            Code::RecordUnavailable => "record_unavailable",
            Code::CacheUnavailable => "unavailable",
            Code::UpstreamTimeout => "upstream_timeout",
            Code::UpstreamLost => "upstream_lost",
            Code::UpstreamInvalid => "upstream_invalid",
            Code::UpstreamTooLarge => "upstream_too_large",
            Code::UpstreamNeedsInput => "upstream_needs_input",
            Code::Cancelled => "cancelled",
            Code::InvalidQuery => "invalid_request",
        }
    }

    /// Which status the record of the attempt gets, and which class of answer REST gives.
    pub fn class(self) -> Class {
        match self {
            Code::RateLimited => Class::Rate,
            Code::Overloaded | Code::ServerUnavailable | Code::RecordUnavailable | Code::CacheUnavailable => {
                Class::Limit
            }
            Code::UpstreamTimeout
            | Code::UpstreamLost
            | Code::UpstreamInvalid
            | Code::UpstreamTooLarge
            | Code::UpstreamNeedsInput => Class::AfterDispatch,
            Code::Cancelled => Class::Cancelled,
            Code::NotFound => Class::NotFound,
            Code::OperationNotPermitted => Class::Permission,
            Code::InvalidName
            | Code::InvalidArguments
            | Code::InvalidIntent
            | Code::MissingIntent
            | Code::IntentMismatch
            | Code::InvalidSensitivity
            | Code::ReasonTooLong
            | Code::ServerDisabled
            | Code::ServerQuarantined
            | Code::ToolPending
            | Code::ToolChanged
            | Code::ToolBlocked
            | Code::ServerMismatch
            | Code::InvalidQuery => Class::Check,
        }
    }
}

/// What kind of "no" a code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A check of the call itself refused it.
    Check,
    /// The key may not do this.
    Permission,
    /// It does not exist for this key.
    NotFound,
    /// The caller asks too often; nothing was dispatched.
    Rate,
    /// A bound, the upstream or the record stood in the way; nothing was dispatched.
    Limit,
    /// It was dispatched and has no usable answer: the call may have run.
    AfterDispatch,
    /// The caller does not want an answer any more.
    Cancelled,
}

/// A refusal, or a failure after dispatch, with everything `structuredContent` carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// The sentence for the caller; for a model to correct itself by.
    pub message: String,
    /// The operation type that was needed, when the check was about one.
    pub expected: Option<OperationType>,
    /// The variant that would do, when there is one.
    pub recommended: Option<Variant>,
    /// After how many seconds a retry helps, when that is known.
    pub retry_after_s: Option<u64>,
}

impl Refusal {
    /// A refusal with a text and nothing to recommend.
    pub fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into(), expected: None, recommended: None, retry_after_s: None }
    }

    /// Creates the refusal of a call that was sent and may have run; `what` says what went wrong after that.
    pub fn after_dispatch(code: Code, what: &str) -> Refusal {
        let text = format!("The call was sent and may have run, but {what}; check before calling again");
        Refusal::new(code, text)
    }

    /// Adds the operation type that was needed.
    pub fn expecting(self, expected: OperationType) -> Refusal {
        Refusal { expected: Some(expected), ..self }
    }

    /// Adds when a retry helps.
    pub fn retry_after(self, seconds: u64) -> Refusal {
        Refusal { retry_after_s: Some(seconds), ..self }
    }

    /// Adds the variant that would do.
    pub fn recommending(self, variant: Variant) -> Refusal {
        Refusal { recommended: Some(variant), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_codes_are_all() {
        assert!(Code::ALL.into_iter().enumerate().all(|(place, code)| place == code as usize));
        // the last of the enum: one that comes after it belongs into the list, and here
        assert_eq!(Code::ALL.last(), Some(&Code::InvalidQuery));
    }
}
