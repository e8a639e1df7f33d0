//! Policy: rules that allow a call, ask a person first, or deny it (behaviour, section 10).
//!
//! A document is parsed and compiled once per version; an evaluation is a pure function of the compiled layers, the call and
//! a time. The strictest matching rule of all layers counts, so a lower layer can only tighten. A remembered decision may
//! relax an ask that permits it, and what no rule matches is decided by the mode.

mod asks;
mod decision;
mod evaluate;
mod file;
#[cfg(test)]
mod fuzz;
mod past;
mod reach;
mod read;
mod selectors;
#[cfg(test)]
mod tests;
mod when;
mod window;

use std::sync::Arc;

use super::glob;
use super::near;
use super::text_enum::text_enum;
use asks::StrictestAsks;
pub use decision::{Decision, PolicyLayer, Ruling, TraceStep};
pub use evaluate::{PolicyCall, PolicyLayers, Remembered};
pub use file::read_file;
pub use past::PastDecision;
pub use read::{PolicyDocument, PolicyFault, SELECTORS};
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
/// Warnings about one document that name what was meant, the first ones.
const MEANT_MAX: usize = 5;
/// Most comparisons of a glob with a tool, for the warnings about one document.
const COMPARISONS_MAX: usize = 2_000_000;

text_enum! {
    /// Effect of a rule, from the mildest.
    #[derive(PartialOrd, Ord)]
    pub enum Effect {
        /// The call runs.
        Allow = "allow",
        /// A person is asked first.
        Ask = "ask",
        /// The call does not run.
        Deny = "deny",
    }
}

text_enum! {
    /// Value of the setting `policy_mode`: what happens to calls that no rule matches.
    pub enum PolicyMode {
        /// Evaluates as [`PolicyMode::ByRisk`] and records the result; only enforced rules block.
        Observe = "observe",
        /// The risk decides.
        ByRisk = "by_risk",
        /// A person is asked.
        AlwaysAsk = "always_ask",
        /// The call runs.
        AlwaysAllow = "always_allow",
        /// The call does not run.
        DenyUnlessAllowed = "deny_unless_allowed",
    }
}

text_enum! {
    /// Way by which a call comes in, as rules select it.
    pub enum Entrance {
        /// The tools `call_tool_*` of `/mcp`.
        Mcp = "mcp",
        /// `/mcp/direct`
        Direct = "direct",
        /// The REST API.
        Rest = "rest",
        /// The command line.
        Cli = "cli",
    }
}

text_enum! {
    /// Kind of answer that an ask needs, from the weaker.
    #[derive(PartialOrd, Ord)]
    pub enum Assurance {
        /// An answer through the caller's own client is enough.
        Client = "client",
        /// Another person with the right to approve must answer.
        Approver = "approver",
    }
}

impl Assurance {
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

    /// Returns terms that hold where none are known: another person decides, and nothing is remembered.
    pub fn strictest() -> AskTerms {
        AskTerms::plain(Assurance::Approver, false)
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
    /// True if the rule says which assurance its asks need.
    names_assurance: bool,
    is_enforced: bool,
    message: Option<Arc<str>>,
}

/// Compiled rules of one layer, in the order of their document.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Box<[PolicyRule]>,
    /// For each rule a test that few calls pass, side by side in memory.
    filters: Box<[Filter]>,
    asks: StrictestAsks,
}

impl RuleSet {
    fn of(rules: Vec<PolicyRule>) -> RuleSet {
        let filters = rules.iter().map(|rule| rule.selectors.filter()).collect();
        let asks = StrictestAsks::of(&rules);
        RuleSet { rules: rules.into(), filters, asks }
    }

    /// Returns the rules that stand in for a stored document which this release cannot read: every call is denied in every
    /// mode, as the document may have enforced rules.
    pub fn unreadable() -> RuleSet {
        RuleSet::of(vec![PolicyRule {
            id: "unreadable".into(),
            effect: Effect::Deny,
            selectors: Selectors::ANY,
            except: None,
            when: None,
            ask: AskTerms::plain(Assurance::Client, false),
            names_assurance: false,
            is_enforced: true,
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

    /// Returns whether some rule asks or denies, and does so in mode `observe` for the log alone.
    pub fn has_unenforced(&self) -> bool {
        self.rules.iter().any(|rule| rule.effect != Effect::Allow && !rule.is_enforced)
    }

    /// Returns warnings about rules that can never match or that a caller can avoid, about asks that reach nobody or need a
    /// weak answer, and about globs that match none of the `known` tools. `has_webhook` is true if the tenant has a webhook.
    /// Takes time for long policies and many tools, within a bound above which the rest of the globs is not compared.
    pub fn warnings(&self, known: &[&str], has_webhook: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut globs_left = COMPARISONS_MAX / known.len().max(1);
        'rules: for rule in &self.rules {
            let id = &rule.id;
            if rule.except.as_ref().is_some_and(|except| except.covers(&rule.selectors)) {
                found.push(format!("Rule '{id}' never matches: its 'except' excludes all that it matches."));
            }
            if rule.effect != Effect::Allow && rule.selectors.believes_the_caller() {
                found.push(format!(
                    "Rule '{id}' selects by 'op', which the caller chooses: tools without annotations can be called as \
                     read. Leave 'op' out, or select by 'tier'."
                ));
            }
            found.extend(rule.ask_warnings(has_webhook));
            let excepted =
                rule.except.iter().flat_map(|except| &except.globs).map(|glob| ("'except' has ", glob));
            let globs = rule.selectors.globs.iter().map(|glob| ("", glob)).chain(excepted);
            for (place, glob) in globs {
                if found.len() >= WARNINGS_MAX || globs_left == 0 {
                    break 'rules;
                }
                globs_left -= 1;
                if known.iter().any(|tool| glob::matches(glob, tool)) {
                    continue;
                }
                // each search for a near name reads all names
                let meant = if found.len() < MEANT_MAX { near::tool(glob, known) } else { None };
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
                let comma = if place.is_empty() { "" } else { ", which" };
                found.push(format!(
                    "Rule '{id}': {place}'{glob}'{comma} matches no tool that is known now{meant}"
                ));
            }
        }
        found.truncate(WARNINGS_MAX);
        found
    }
}
