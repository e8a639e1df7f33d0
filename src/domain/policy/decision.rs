//! Results of an evaluation.

use std::sync::Arc;

use super::{AskTerms, Effect};
use crate::domain::text_enum::text_enum;

text_enum! {
    /// Layer from which a decision comes.
    pub enum PolicyLayer {
        /// Built into the gateway, whatever the rules say: sensitive categories of web pages ask.
        BuiltIn = "built_in",
        /// Rules of the deployment.
        Deployment = "deployment",
        /// Rules of the tenant.
        Tenant = "tenant",
        /// Rules of the API key.
        Key = "key",
        /// A decision that a person had remembered.
        Remembered = "remembered",
        /// The mode, where no rule matched.
        Mode = "mode",
    }
}

text_enum! {
    /// Consequence of a decision for the call, as records name it in `decision`.
    pub enum Ruling {
        /// The call runs.
        Allowed = "allowed",
        /// The call runs, and would be asked for if the mode were not `observe`.
        WouldAsk = "would_ask",
        /// The call runs, and would be denied if the mode were not `observe`.
        WouldDeny = "would_deny",
        /// A person is asked.
        Asked = "asked",
        /// The call runs, since the caller's host asks by itself.
        Delegated = "delegated",
        /// The call does not run.
        Denied = "denied",
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
    /// True if only a remembered allow keeps the call from being asked about.
    pub is_by_grant: bool,
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
