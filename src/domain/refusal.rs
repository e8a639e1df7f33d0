//! Refusals of calls: the closed list of codes, and the content of a refusal.

use super::operation::{OperationType, Variant};

/// Codes of refusals and failures (behaviour, section 5). The text on the wire is [`Code::as_str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Check 1: the name is not `server:tool`.
    InvalidName,
    /// Checks 1 and 10: arguments are no JSON object, given twice, or against the schema.
    InvalidArguments,
    /// Check 2: the declaration of intent is malformed.
    InvalidIntent,
    /// Check 3: the declaration of intent is required and missing.
    MissingIntent,
    /// Check 4: the declared operation type is not the variant's.
    IntentMismatch,
    /// Check 5: the declared sensitivity is unknown.
    InvalidSensitivity,
    /// Check 6: the declared reason is too long.
    ReasonTooLong,
    /// Check 7: the variant is above the key's ceiling.
    OperationNotPermitted,
    /// Check 7: no such tool for this key, whatever the reason.
    NotFound,
    /// Check 8: the server is disabled.
    ServerDisabled,
    /// Check 8: the server is quarantined.
    ServerQuarantined,
    /// Check 8: the tool is new and not approved yet.
    ToolPending,
    /// Check 8: the definition is not the approved one.
    ToolChanged,
    /// Check 8: the tool is blocked.
    ToolBlocked,
    /// Check 9: the variant contradicts the server's annotations.
    ServerMismatch,
    /// Check 12: the key, or its tenant, used up its attempts per minute.
    RateLimited,
    /// Check 12: the deployment or this tenant has too much in flight.
    Overloaded,
    /// Check 12: the upstream cannot be reached.
    ServerUnavailable,
    /// Check 12: the activity record could not be committed.
    RecordUnavailable,
    /// The rest of a cut result cannot be read now.
    CacheUnavailable,
    /// After dispatch: no answer within the deadline.
    UpstreamTimeout,
    /// After dispatch: the connection ended without an answer.
    UpstreamLost,
    /// After dispatch: the answer is not readable as MCP.
    UpstreamInvalid,
    /// After dispatch: the answer is larger than the bound.
    UpstreamTooLarge,
    /// After dispatch: the upstream requests input that cannot be obtained here.
    UpstreamNeedsInput,
    /// The caller cancelled the call.
    Cancelled,
    /// A parameter of `retrieve_tools` or `read_cache` is unusable.
    InvalidQuery,
}

impl Code {
    /// All codes, in order.
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

    /// Returns the code as callers see it.
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

    /// Returns the class, which decides the status of the activity record and of the REST answer.
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

/// Class of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A check of the call refused it.
    Check,
    /// The key may not do this.
    Permission,
    /// The tool does not exist for this key.
    NotFound,
    /// The caller exceeds its rate; nothing was dispatched.
    Rate,
    /// A bound was reached, or the upstream or a store is unavailable; nothing was dispatched.
    Limit,
    /// The call was dispatched and has no usable answer: it may have run.
    AfterDispatch,
    /// The caller cancelled the call.
    Cancelled,
}

/// Refusal, or failure after dispatch, with all that `structuredContent` carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Code of the refusal.
    pub code: Code,
    /// Sentence for the caller, from which a model can correct itself.
    pub message: String,
    /// Operation type that was needed; `None` when the check was not about one.
    pub expected: Option<OperationType>,
    /// Variant that would be accepted, when there is one.
    pub recommended: Option<Variant>,
    /// Seconds after which a retry helps; `None` when unknown.
    pub retry_after_s: Option<u64>,
}

impl Refusal {
    /// Creates a refusal with a text and nothing to recommend.
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

    /// Adds the number of seconds after which a retry helps.
    pub fn retry_after(self, seconds: u64) -> Refusal {
        Refusal { retry_after_s: Some(seconds), ..self }
    }

    /// Adds the variant that would be accepted.
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
        // the last code of the enum: a later one must be added to the list, and here
        assert_eq!(Code::ALL.last(), Some(&Code::InvalidQuery));
    }
}
