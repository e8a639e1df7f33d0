//! Results of an evaluation.

use std::sync::Arc;

use super::{AskTerms, Effect};

/// Layer from which a decision comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyLayer {
    /// What holds whatever the rules say: sensitive categories of web pages ask.
    BuiltIn,
    /// Rules of the deployment.
    Deployment,
    /// Rules of the tenant.
    Tenant,
    /// Rules of the API key.
    Key,
    /// A decision that a person had remembered.
    Remembered,
    /// The mode, where no rule matched.
    Mode,
}

impl PolicyLayer {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyLayer::BuiltIn => "built_in",
            PolicyLayer::Deployment => "deployment",
            PolicyLayer::Tenant => "tenant",
            PolicyLayer::Key => "key",
            PolicyLayer::Remembered => "remembered",
            PolicyLayer::Mode => "mode",
        }
    }
}

/// Consequence of a decision for the call, as records name it in `decision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// The call runs.
    Allowed,
    /// The call runs, and would be asked for if the mode were not `observe`.
    WouldAsk,
    /// The call runs, and would be denied if the mode were not `observe`.
    WouldDeny,
    /// A person is asked.
    Asked,
    /// The call runs, since the caller's host asks by itself.
    Delegated,
    /// The call does not run.
    Denied,
}

impl Ruling {
    /// Returns the name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Ruling::Allowed => "allowed",
            Ruling::WouldAsk => "would_ask",
            Ruling::WouldDeny => "would_deny",
            Ruling::Asked => "asked",
            Ruling::Delegated => "delegated",
            Ruling::Denied => "denied",
        }
    }
}

/// Result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Consequence for the call.
    pub ruling: Ruling,
    /// Effect of the rules; the mode `observe` does not soften it.
    pub effect: Effect,
    /// Layer that decided the effect.
    pub layer: PolicyLayer,
    /// Rule that decided the effect; `None` if none did.
    pub rule: Option<Arc<str>>,
    /// Message of that rule, for the caller.
    pub message: Option<Arc<str>>,
    /// Terms of the ask, where the ruling or the effect is one.
    pub ask: Option<AskTerms>,
}

/// Step of an evaluation, for people who ask for an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// Layer of the step.
    pub layer: PolicyLayer,
    /// Rule that was tried; `None` in layers without rules.
    pub rule: Option<Arc<str>>,
    /// True if the step has an effect on the call.
    pub matched: bool,
    /// Effect of the step, if it matched.
    pub effect: Option<Effect>,
    /// Reason, in English.
    pub why: String,
}
