//! Policy: rules that allow a call, ask a person first, or deny it (behaviour, section 10).
//!
//! A document is parsed and compiled once per version; an evaluation is a pure function of the compiled layers, the call and
//! a time. The strictest matching rule of all layers counts, so a lower layer can only tighten. A remembered decision may
//! relax an ask that permits it, and what no rule matches is decided by the mode.

mod decision;
mod evaluate;
mod read;
mod selectors;
#[cfg(test)]
mod tests;
mod when;
mod window;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::near;
pub use decision::{Decision, PolicyLayer, Ruling, TraceStep};
pub use evaluate::{PolicyCall, PolicyLayers, Remembered};
pub use read::{PolicyDocument, PolicyFault};
use selectors::{Filter, Selectors};
use when::When;

/// Longest document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Most rules of one document.
pub const RULES_MAX: usize = 500;
/// Most globs of one rule, those of `except` apart.
pub const GLOBS_MAX: usize = 64;
/// Most warnings about one document.
pub const WARNINGS_MAX: usize = 50;

/// Effect of a rule, from the mildest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The call runs.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call does not run.
    Deny,
}

impl Effect {
    const ALL: [Effect; 3] = [Effect::Allow, Effect::Ask, Effect::Deny];

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::Ask => "ask",
            Effect::Deny => "deny",
        }
    }
}

/// Value of the setting `policy_mode`: what happens to calls that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// Evaluates as [`PolicyMode::ByRisk`] and records the result; only enforced rules block.
    Observe,
    /// The risk decides.
    ByRisk,
    /// A person is asked.
    AlwaysAsk,
    /// The call runs.
    AlwaysAllow,
    /// The call does not run.
    DenyUnlessAllowed,
}

impl PolicyMode {
    /// All modes.
    pub const ALL: [PolicyMode; 5] = [
        PolicyMode::Observe,
        PolicyMode::ByRisk,
        PolicyMode::AlwaysAsk,
        PolicyMode::AlwaysAllow,
        PolicyMode::DenyUnlessAllowed,
    ];

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyMode::Observe => "observe",
            PolicyMode::ByRisk => "by_risk",
            PolicyMode::AlwaysAsk => "always_ask",
            PolicyMode::AlwaysAllow => "always_allow",
            PolicyMode::DenyUnlessAllowed => "deny_unless_allowed",
        }
    }

    /// Parses a name on the wire; `None` for any other text.
    pub fn parse(text: &str) -> Option<PolicyMode> {
        PolicyMode::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// Way by which a call comes in, as rules select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entrance {
    /// The tools `call_tool_*` of `/mcp`.
    Mcp,
    /// `/mcp/direct`
    Direct,
    /// The REST API.
    Rest,
    /// The command line.
    Cli,
}

impl Entrance {
    /// All entrances.
    pub const ALL: [Entrance; 4] = [Entrance::Mcp, Entrance::Direct, Entrance::Rest, Entrance::Cli];

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Entrance::Mcp => "mcp",
            Entrance::Direct => "direct",
            Entrance::Rest => "rest",
            Entrance::Cli => "cli",
        }
    }
}

/// Kind of answer that an ask needs, from the weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Assurance {
    /// An answer through the caller's own client is enough.
    Client,
    /// Another person with the right to approve must answer.
    Approver,
}

impl Assurance {
    const ALL: [Assurance; 2] = [Assurance::Client, Assurance::Approver];

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Assurance::Client => "client",
            Assurance::Approver => "approver",
        }
    }

    /// Returns how long an ask of this kind stays open where its rule does not say, in seconds.
    pub fn default_ttl_s(self) -> u32 {
        match self {
            Assurance::Client => 600,
            Assurance::Approver => 1800,
        }
    }
}

/// Set of a few values, such as channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice<const N: usize> {
    bits: u8,
    names: [&'static str; N],
}

impl<const N: usize> Choice<N> {
    const fn of(bits: u8, names: [&'static str; N]) -> Choice<N> {
        Choice { bits, names }
    }

    /// Returns the names of the values, in the order of the contract.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        self.names
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| self.bits >> at & 1 == 1)
            .map(|(_, name)| name)
    }

    /// Returns whether a value is in the set, by its name.
    pub fn has(self, name: &str) -> bool {
        self.iter().any(|own| own == name)
    }
}

/// Names of the decisions that an ask may remember.
const REMEMBERED: [&str; 2] = ["allow_always", "reject_always"];
/// Names of the channels by which an ask reaches people.
const CHANNELS: [&str; 4] = ["elicitation", "acp", "inbox", "webhook"];

/// Terms of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskTerms {
    /// Kind of answer that is needed.
    pub assurance: Assurance,
    /// Time until the ask ends unanswered, in seconds.
    pub ttl_s: u32,
    /// Decisions that may be remembered: `allow_always`, `reject_always`.
    pub remember: Choice<2>,
    /// Channels by which the ask is delivered: `elicitation`, `acp`, `inbox`, `webhook`.
    pub channels: Choice<4>,
}

impl AskTerms {
    /// Creates the terms of an ask that no rule words.
    fn plain(assurance: Assurance, may_be_remembered: bool) -> AskTerms {
        AskTerms {
            assurance,
            ttl_s: assurance.default_ttl_s(),
            remember: Choice::of(if may_be_remembered { 0b11 } else { 0 }, REMEMBERED),
            channels: Choice::of(0b1111, CHANNELS),
        }
    }

    /// Returns the terms without anything to remember.
    fn once(self) -> AskTerms {
        AskTerms { remember: Choice::of(0, REMEMBERED), ..self }
    }

    /// Returns the terms that satisfy both asks. Asks without a common channel go by all channels of either.
    fn and(self, other: AskTerms) -> AskTerms {
        let common = self.channels.bits & other.channels.bits;
        let either = self.channels.bits | other.channels.bits;
        AskTerms {
            assurance: self.assurance.max(other.assurance),
            ttl_s: self.ttl_s.min(other.ttl_s),
            remember: Choice::of(self.remember.bits & other.remember.bits, REMEMBERED),
            channels: Choice::of(if common == 0 { either } else { common }, CHANNELS),
        }
    }
}

/// Compiled rule.
#[derive(Debug)]
struct PolicyRule {
    id: Arc<str>,
    effect: Effect,
    selectors: Selectors,
    except: Option<Selectors>,
    when: Option<When>,
    /// Terms of a rule with [`Effect::Ask`]; otherwise those of a plain ask.
    ask: AskTerms,
    is_enforced: bool,
    message: Option<Arc<str>>,
}

/// Compiled rules of one layer, in the order of their document.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Box<[PolicyRule]>,
    /// For each rule a test that few calls pass, side by side in memory.
    filters: Box<[Filter]>,
}

impl RuleSet {
    fn of(rules: Vec<PolicyRule>) -> RuleSet {
        let filters = rules.iter().map(|rule| rule.selectors.filter()).collect();
        RuleSet { rules: rules.into(), filters }
    }

    /// Returns the rules that stand in for a stored document which this release cannot read: every call is denied.
    pub fn unreadable() -> RuleSet {
        RuleSet::of(vec![PolicyRule {
            id: "unreadable".into(),
            effect: Effect::Deny,
            selectors: Selectors::ANY,
            except: None,
            when: None,
            ask: AskTerms::plain(Assurance::Client, false),
            is_enforced: false,
            message: Some("The stored policy cannot be read by this release.".into()),
        }])
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns warnings about rules that can never match, and about globs that match none of the `known` tools.
    pub fn warnings(&self, known: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for rule in &self.rules {
            let id = &rule.id;
            if rule.except.as_ref().is_some_and(|except| except.covers(&rule.selectors)) {
                found.push(format!("Rule '{id}' never matches: its 'except' excludes all that it matches."));
            }
            for glob in rule.selectors.globs_without(known) {
                let meant = near::closest(&glob.replace(['*', '?'], ""), known.iter().copied());
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
                found.push(format!("Rule '{id}': '{glob}' matches no tool that is known now{meant}"));
            }
        }
        found.truncate(WARNINGS_MAX);
        found
    }
}
