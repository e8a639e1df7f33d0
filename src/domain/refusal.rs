//! Refusals of calls: the closed list of codes, and the content of a refusal.

use uuid::Uuid;

use super::operation::{OperationType, Variant};
use super::text_enum::text_enum;

text_enum! {
    /// Codes of refusals and failures (behaviour, section 5). The text on the wire is [`Code::as_str`].
    pub enum Code {
        /// Check 1: the name is not `server:tool`.
        InvalidName = "invalid_name",
        /// Checks 1 and 10: arguments are no JSON object, given twice, or against the schema.
        InvalidArguments = "invalid_arguments",
        /// Check 2: the declaration of intent is malformed.
        InvalidIntent = "invalid_intent",
        /// Check 3: the declaration of intent is required and missing.
        MissingIntent = "missing_intent",
        /// Check 4: the declared operation type is not the variant's.
        IntentMismatch = "intent_mismatch",
        /// Check 5: the declared sensitivity is unknown.
        InvalidSensitivity = "invalid_sensitivity",
        /// Check 6: the declared reason is too long.
        ReasonTooLong = "reason_too_long",
        /// Check 7: the variant is above the key's ceiling.
        OperationNotPermitted = "operation_not_permitted",
        /// Check 7: the scopes of the person's token do not allow the operation, and another login may get more.
        InsufficientScope = "insufficient_scope",
        /// Check 7: no such tool for this key, whatever the reason.
        NotFound = "not_found",
        /// Check 8: the server is disabled.
        ServerDisabled = "server_disabled",
        /// Check 8: the server is quarantined.
        ServerQuarantined = "server_quarantined",
        /// Check 8: the tool is new and not approved yet.
        ToolPending = "tool_pending",
        /// Check 8: the definition is not the approved one.
        ToolChanged = "tool_changed",
        /// Check 8: the tool is blocked.
        ToolBlocked = "tool_blocked",
        /// Check 9: the variant contradicts the server's annotations.
        ServerMismatch = "server_mismatch",
        /// Check 11: the policy denies the call.
        PolicyDenied = "policy_denied",
        /// Check 11: a person is being asked; the same call gets the answer later.
        ConsentPending = "consent_pending",
        /// Check 11: a person refused the call.
        ConsentDenied = "consent_denied",
        /// Check 11: nobody answered in time.
        ConsentTimedOut = "consent_timed_out",
        /// Check 11: the answer that came was not on offer.
        ConsentMalformed = "consent_malformed",
        /// Check 11: a person ended the caller's turn.
        TurnCancelled = "turn_cancelled",
        /// Check 11: the policy asks a person first, and nobody can be asked.
        ConsentUndeliverable = "consent_undeliverable",
        /// Check 11: the key has too many open or new permission requests.
        ConsentThrottled = "consent_throttled",
        /// Check 11: the tool was refused several times, and nobody is asked for a while.
        ConsentCooldown = "consent_cooldown",
        /// Check 11: a person's answer is for another definition, or was used already.
        ConsentLapsed = "consent_lapsed",
        /// Check 12: the key, or its tenant, used up its attempts per minute.
        RateLimited = "rate_limited",
        /// Check 12: the deployment or this tenant has too much in flight.
        Overloaded = "overloaded",
        /// Check 12: the upstream cannot be reached.
        ServerUnavailable = "server_unavailable",
        /// Check 12: the login service of the upstream gives no token.
        UpstreamAuthUnavailable = "upstream_auth_unavailable",
        /// Check 12: the upstream, or its login service, refuses the gateway's own credentials.
        UpstreamAuthRefused = "upstream_auth_refused",
        /// Check 12: a person has to log in at the upstream first.
        UpstreamLoginRequired = "upstream_login_required",
        /// Check 12: the identity provider gives no token for the upstream in exchange for that of the caller.
        UpstreamExchangeRefused = "upstream_exchange_refused",
        /// Check 12: the upstream names another authorization server than the one that an administrator confirmed.
        UpstreamAuthChanged = "upstream_auth_changed",
        /// Check 12: the activity record could not be committed.
        RecordUnavailable = "record_unavailable",
        /// The rest of a cut result cannot be read now.
        CacheUnavailable = "unavailable",
        /// After dispatch: no answer within the deadline.
        UpstreamTimeout = "upstream_timeout",
        /// After dispatch: the connection ended without an answer.
        UpstreamLost = "upstream_lost",
        /// After dispatch: the answer is not readable as MCP.
        UpstreamInvalid = "upstream_invalid",
        /// After dispatch: the answer is larger than the bound.
        UpstreamTooLarge = "upstream_too_large",
        /// After dispatch: the upstream requests input that cannot be obtained here.
        UpstreamNeedsInput = "upstream_needs_input",
        /// The caller cancelled the call.
        Cancelled = "cancelled",
        /// A parameter of `retrieve_tools` or `read_cache` is unusable.
        InvalidQuery = "invalid_request",
    }
}

impl Code {
    /// Returns the class, which decides the status of the activity record and of the REST answer.
    pub fn class(self) -> Class {
        match self {
            Code::RateLimited | Code::ConsentThrottled => Class::Rate,
            Code::Overloaded
            | Code::ServerUnavailable
            | Code::UpstreamAuthUnavailable
            | Code::UpstreamAuthRefused
            | Code::UpstreamAuthChanged
            | Code::RecordUnavailable
            | Code::CacheUnavailable => Class::Limit,
            Code::UpstreamTimeout
            | Code::UpstreamLost
            | Code::UpstreamInvalid
            | Code::UpstreamTooLarge
            | Code::UpstreamNeedsInput => Class::AfterDispatch,
            Code::Cancelled => Class::Cancelled,
            Code::NotFound => Class::NotFound,
            Code::OperationNotPermitted
            | Code::InsufficientScope
            | Code::UpstreamLoginRequired
            | Code::UpstreamExchangeRefused
            | Code::PolicyDenied
            | Code::ConsentPending
            | Code::ConsentDenied
            | Code::ConsentTimedOut
            | Code::ConsentMalformed
            | Code::TurnCancelled
            | Code::ConsentUndeliverable
            | Code::ConsentCooldown
            | Code::ConsentLapsed => Class::Permission,
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
    /// The key may not do this, or a policy forbids it.
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
    /// Permission request that the refusal is about; `None` without one.
    pub consent_id: Option<Uuid>,
    /// Words of the person who decided, fit for a quotation; `None` without any.
    pub approver_says: Option<String>,
    /// URL of a page on which the caller can do what is missing; `None` without one.
    pub page: Option<Box<str>>,
}

impl Refusal {
    /// Creates a refusal with a text and nothing to recommend.
    pub fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
            expected: None,
            recommended: None,
            retry_after_s: None,
            consent_id: None,
            approver_says: None,
            page: None,
        }
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

    /// Returns the operation that needs a broader scope; `None` if the refusal is not about scopes.
    pub fn scope_for(&self) -> Option<OperationType> {
        self.expected.filter(|_| self.code == Code::InsufficientScope)
    }

    /// Adds the number of seconds after which a retry helps.
    pub fn retry_after(self, seconds: u64) -> Refusal {
        Refusal { retry_after_s: Some(seconds), ..self }
    }

    /// Adds the permission request that the refusal is about.
    pub fn about_consent(self, id: Uuid) -> Refusal {
        Refusal { consent_id: Some(id), ..self }
    }

    /// Adds the words of the person who decided, marked as such. They must be fit for a quotation.
    pub fn quoting(self, words: Option<String>) -> Refusal {
        match &words {
            Some(said) => {
                let message = format!("{}. The approver says: \"{said}\"", self.message);
                Refusal { message, approver_says: words, ..self }
            }
            None => self,
        }
    }

    /// Adds the variant that would be accepted.
    pub fn recommending(self, variant: Variant) -> Refusal {
        Refusal { recommended: Some(variant), ..self }
    }
}
