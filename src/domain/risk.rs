//! Risk of a call with its reasons (R4), from what the gateway knows of the tool and from the arguments.
//!
//! A risk is a set of signals, and its level a monotone function of the set. The caller's and the tool author's words can
//! add signals, never take one away. What lowers a risk are facts of the approved definition alone: its tier and its name.

mod arguments;
mod names;
mod places;
mod signal;
#[cfg(test)]
mod tests;

use super::annotations::Tier;
use super::operation::OperationType;
use super::text_enum::text_enum;
pub(super) use names::words as words_of_name;
pub use places::{RiskPlace, risk_places};
pub use signal::{RiskSignal, Signals};

text_enum! {
    /// Level of risk. R4's three levels are low (safe), moderate, and high with critical (destructive).
    #[derive(PartialOrd, Ord)]
    pub enum RiskLevel {
        /// The call changes nothing.
        Low = "low",
        /// Something changes, and can be changed back.
        Moderate = "moderate",
        /// Something is lost, leaves the house or runs as a program.
        High = "high",
        /// Something is lost for good, or several signals of high risk come together.
        Critical = "critical",
    }
}

text_enum! {
    /// Sensitivity of the data, as the caller declares it.
    pub enum Sensitivity {
        /// Anybody may see it.
        Public = "public",
        /// Members of the organisation may see it.
        Internal = "internal",
        /// Few may see it.
        Private = "private",
        /// The caller does not know.
        Unknown = "unknown",
    }
}

text_enum! {
    /// Origin of a tool, by who stands for it.
    pub enum TrustTier {
        /// A server that an administrator configured.
        Configured = "configured",
        /// A web page, whose tools its site describes.
        Site = "site",
    }
}

/// Call whose risk is assessed.
#[derive(Clone, Copy, Debug)]
pub struct RiskFacts<'a> {
    /// Canonical name, `server:tool`.
    pub name: &'a str,
    /// Tier of the approved definition, for the key that calls.
    pub tier: Tier,
    /// The hint `openWorldHint`; `None` when absent, which the protocol reads as true.
    pub open_world: Option<bool>,
    /// Origin of the tool.
    pub trust: TrustTier,
    /// True if the tool belongs to one of a web page's sensitive categories.
    pub is_sensitive: bool,
    /// True if the definition was changed within the last 24 hours.
    pub is_changed: bool,
    /// True if the variant contradicts the annotations and the key is not strict.
    pub is_mismatched: bool,
    /// Operation type of the variant.
    pub operation: OperationType,
    /// Declared sensitivity; `None` when the caller declared none, which raises nothing.
    pub sensitivity: Option<Sensitivity>,
    /// The arguments, a JSON object that passed [`super::json::members_of_text`].
    pub arguments: &'a str,
}

/// Risk of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Risk {
    /// Level of the signals.
    pub level: RiskLevel,
    /// Signals that were found.
    pub signals: Signals,
}

impl Risk {
    /// Assesses a call in one pass over its arguments.
    pub fn assess(facts: &RiskFacts<'_>) -> Risk {
        let mut signals = names::signals(facts.name, facts.tier);
        let is_claimed_private =
            matches!(facts.sensitivity, Some(Sensitivity::Private | Sensitivity::Unknown));
        for (signal, is_there) in [
            (RiskSignal::Destroys, facts.tier == Tier::Destructive),
            (RiskSignal::Site, facts.trust == TrustTier::Site),
            (RiskSignal::SensitiveCategory, facts.is_sensitive),
            (RiskSignal::Changed, facts.is_changed),
            (RiskSignal::Mismatch, facts.is_mismatched),
            (RiskSignal::Declared, facts.operation > facts.tier.operation()),
            (RiskSignal::LeavesTheHouse, is_claimed_private && facts.open_world != Some(false)),
        ] {
            if is_there {
                signals.add(signal);
            }
        }
        arguments::scan(facts.arguments, names::runs_commands(facts.name), &mut signals);
        Risk { level: signals.level(), signals }
    }
}
