//! Permission requests: states, decisions, options, grants, and who may decide (behaviour, section 10).

mod digest;
mod may_not;
mod state;

pub use digest::{ConsentSubject, DIGEST_BYTES};
pub use may_not::{ADD_APPROVER, MayNotDecide};
pub use state::{ConsentState, ConsentStep, LapseReason, without_asking_again};

use chrono::TimeDelta;

use super::person::{OnePerson, Person};
use super::policy::{AskTerms, Assurance, Remembered};
use super::risk::RiskLevel;
use super::tenant::{Action, Role};
use super::text_enum::text_enum;

/// Time for which a cancelled turn stays fenced.
pub const FENCE: TimeDelta = TimeDelta::seconds(30);
/// Denials of one tool within [`COOLDOWN`] after which calls of it are refused without asking anybody.
pub const COOLDOWN_DENIALS: i64 = 3;
/// Time within which denials add up, and for which calls are refused after the last one.
pub const COOLDOWN: TimeDelta = TimeDelta::minutes(10);
/// Longest comment on a decision, in characters.
pub const COMMENT_CHARS_MAX: usize = 500;
/// Life of a remembered decision, but for risk high.
const GRANT_LIFE: TimeDelta = TimeDelta::hours(8);
/// Life of a remembered decision about a call of risk high.
const GRANT_LIFE_HIGH: TimeDelta = TimeDelta::hours(1);

text_enum! {
    /// Decision about a permission request.
    pub enum ConsentDecision {
        /// The call may run once.
        AllowOnce = "allow_once",
        /// The call may run, and so may later ones of the tool until the grant ends.
        AllowAlways = "allow_always",
        /// The call does not run.
        RejectOnce = "reject_once",
        /// The call does not run, and nor do later ones of the tool until the grant ends.
        RejectAlways = "reject_always",
        /// The call does not run, and the whole turn of the caller ends.
        CancelTurn = "cancel_turn",
    }
}

text_enum! {
    /// Way by which a permission request was decided.
    pub enum DecidedVia {
        /// The REST API.
        Rest = "rest",
        /// The command line.
        Cli = "cli",
        /// The console.
        Console = "console",
        /// A question through the caller's own client.
        Elicitation = "elicitation",
        /// The Agent Client Protocol.
        Acp = "acp",
    }
}

text_enum! {
    /// Effect of a remembered decision.
    pub enum GrantEffect {
        /// Calls run.
        Allow = "allow",
        /// Calls do not run.
        Reject = "reject",
    }
}

impl ConsentDecision {
    /// Returns the state of a request after this decision.
    pub fn state(self) -> ConsentState {
        match self {
            ConsentDecision::AllowOnce | ConsentDecision::AllowAlways => ConsentState::Granted,
            ConsentDecision::RejectOnce | ConsentDecision::RejectAlways => ConsentState::Denied,
            ConsentDecision::CancelTurn => ConsentState::Cancelled,
        }
    }

    /// Returns what is remembered; `None` for decisions about one call.
    pub fn remembers(self) -> Option<GrantEffect> {
        match self {
            ConsentDecision::AllowAlways => Some(GrantEffect::Allow),
            ConsentDecision::RejectAlways => Some(GrantEffect::Reject),
            ConsentDecision::AllowOnce | ConsentDecision::RejectOnce | ConsentDecision::CancelTurn => None,
        }
    }

    /// Returns whether the call may run after this decision.
    pub fn allows(self) -> bool {
        self.state() == ConsentState::Granted
    }
}

impl GrantEffect {
    /// Returns the decision as a policy takes it: `assurance` is that of the answer, `risk` that of the call.
    pub fn remembered(self, assurance: Assurance, risk: RiskLevel) -> Remembered {
        match self {
            GrantEffect::Allow => Remembered::Allow { assurance, risk },
            GrantEffect::Reject => Remembered::Reject,
        }
    }
}

/// Returns the decisions that a request offers. A decision about arguments that nobody saw whole is not remembered, and nor
/// is one about a call of risk critical.
pub fn options(terms: &AskTerms, risk: RiskLevel, was_cut: bool) -> Vec<ConsentDecision> {
    let may_remember = risk < RiskLevel::Critical && !was_cut;
    let is_offered = |decision: &ConsentDecision| match decision.remembers() {
        Some(_) => may_remember && terms.remember.has(decision.as_str()),
        None => true,
    };
    ConsentDecision::ALL.into_iter().filter(is_offered).collect()
}

/// Returns the reason for which a request does not offer to remember a decision; `rule` is the one that asks. For requests
/// whose [`options`] lack it.
pub fn why_once(risk: RiskLevel, was_cut: bool, rule: Option<&str>) -> String {
    match rule {
        _ if risk == RiskLevel::Critical => {
            "the risk is critical, and no decision about such a call is remembered".to_owned()
        }
        _ if was_cut => {
            "the arguments are too long to be shown whole, and no decision about such a call is remembered"
                .to_owned()
        }
        Some(rule) => {
            format!(
                "rule '{rule}', or another one that asks, does not name it in 'remember' (ask: {{remember: […]}})"
            )
        }
        None => "what asks does not let it be remembered".to_owned(),
    }
}

/// Returns how long a remembered decision lasts: `asked` if that is shorter than the longest for this risk.
pub fn grant_life(risk: RiskLevel, asked: Option<TimeDelta>) -> TimeDelta {
    let longest = if risk < RiskLevel::High { GRANT_LIFE } else { GRANT_LIFE_HIGH };
    asked.map_or(longest, |asked| asked.min(longest))
}

/// Returns the assurance of an answer out of band, over REST or the command line.
///
/// Only approvals need another person: whoever asked may also refuse. The own key and its rotations never approve out of band; another
/// key of the same person does where the own client could, so with [`Assurance::Client`] only.
///
/// # Errors
/// The reason for which this person may not decide so.
pub fn assurance_of(
    decision: ConsentDecision,
    role: Role,
    decider: &Person,
    requester: &Person,
    needed: Assurance,
) -> Result<Assurance, MayNotDecide> {
    if !role.may(Action::DecideConsent) {
        return Err(MayNotDecide::NotApprover);
    }
    let Some(same) = decider.same_as(requester) else { return Ok(Assurance::Approver) };
    let is_own = matches!(same, OnePerson::SameKey | OnePerson::Rotated);
    let is_enough = !is_own && Assurance::Client >= needed;
    if decision.allows() && !is_enough {
        return Err(MayNotDecide::SelfApproval { same, needed });
    }
    Ok(Assurance::Client)
}

#[cfg(test)]
mod tests;
