//! Selectors of a rule, and a test for them that is cheap enough for hundreds of rules.

use chrono::{DateTime, Utc};

use super::Entrance;
use super::window::TimeWindow;
use crate::domain::glob;

/// Selectors with a few values each, which are those of the enums in the same order.
pub(super) const DIMENSIONS: [(&str, &[&str]); 6] = [
    ("op", &["read", "write", "destructive"]),
    ("tier", &["read", "write", "destructive", "unknown"]),
    ("risk", &["low", "moderate", "high", "critical"]),
    ("sensitivity", &["public", "internal", "private", "unknown"]),
    ("endpoint", &["mcp", "direct", "rest", "cli"]),
    ("trust", &["configured", "site"]),
];
/// Place of the endpoint in the dimensions.
const ENDPOINT: usize = 4;
/// Bits of one dimension.
const WIDTH: u32 = 4;
const ALL_OF_ONE: u32 = (1 << WIDTH) - 1;
const ALL: u32 = (1 << (WIDTH * DIMENSIONS.len() as u32)) - 1;

/// Returns the bit of a value, by the places of the dimension and of the value in it.
pub(super) const fn bit(dimension: usize, value: usize) -> u32 {
    1 << (WIDTH * dimension as u32 + value as u32)
}

/// Returns the bits of a whole dimension.
pub(super) const fn all_of(dimension: usize) -> u32 {
    ALL_OF_ONE << (WIDTH * dimension as u32)
}

/// Selectors of a rule; all must hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selectors {
    /// Globs on `server:tool`, of which one must match; empty for any tool.
    pub(super) globs: Vec<String>,
    /// Values of all dimensions that are selected.
    pub(super) bits: u32,
    /// `None` for any time.
    pub(super) time: Option<TimeWindow>,
}

/// Selector that a call does not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mismatch {
    Tool,
    Dimension(usize),
    Time,
}

/// Call, as selectors see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleSubject<'a> {
    pub(super) tool: &'a str,
    /// The value of each dimension, a bit in its place.
    pub(super) bits: u32,
    pub(super) pairs: u64,
    pub(super) at: DateTime<Utc>,
}

/// First test of a rule: few calls pass it that the rule does not select, and none fails that it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    bits: u32,
    pairs: u64,
}

impl Filter {
    /// Returns whether the rule may select the call.
    pub(super) fn passes(self, subject: &RuleSubject<'_>) -> bool {
        self.bits & subject.bits == subject.bits && self.pairs & !subject.pairs == 0
    }
}

impl Selectors {
    /// Selectors that every call meets.
    pub(super) const ANY: Selectors = Selectors { globs: Vec::new(), bits: ALL, time: None };

    /// Returns these selectors with the REST API and the command line as one: by which of them a call came is known from
    /// the client's word alone.
    pub(super) fn whatever_the_client_says(self) -> Selectors {
        let both = bit(ENDPOINT, Entrance::Rest as usize) | bit(ENDPOINT, Entrance::Cli as usize);
        Selectors { bits: self.bits | if self.bits & both == 0 { 0 } else { both }, ..self }
    }

    /// Returns the first test of these selectors.
    pub(super) fn filter(&self) -> Filter {
        let needed = |glob: &String| glob.split(['*', '?']).fold(0, |all, part| all | pairs(part));
        // each glob may be the one that matches: only what all of them need is needed
        Filter {
            bits: self.bits,
            pairs: self.globs.iter().map(needed).reduce(|a, b| a & b).unwrap_or_default(),
        }
    }

    /// Returns the first selector that the call does not meet; `None` if it meets all.
    pub(super) fn mismatch(&self, subject: &RuleSubject<'_>) -> Option<Mismatch> {
        if !self.globs.is_empty() && !self.globs.iter().any(|glob| glob::matches(glob, subject.tool)) {
            return Some(Mismatch::Tool);
        }
        let differs = |dimension: &usize| self.bits & subject.bits & all_of(*dimension) == 0;
        if let Some(dimension) = (0..DIMENSIONS.len()).find(differs) {
            return Some(Mismatch::Dimension(dimension));
        }
        self.time.is_some_and(|time| !time.contains(subject.at)).then_some(Mismatch::Time)
    }

    /// Returns whether the variant, which the caller chooses, decides alone if these selectors meet a call of a tool without
    /// annotations.
    pub(super) fn believes_the_caller(&self) -> bool {
        let (read, unknown) = (bit(0, 0), bit(1, 3));
        self.bits & read == 0 && self.bits & unknown != 0
    }

    /// Returns whether these selectors meet, as far as can be seen, every call that `other` meets.
    pub(super) fn covers(&self, other: &Selectors) -> bool {
        let covers_tools = self.globs.is_empty() || self.globs == other.globs;
        let covers_time = self.time.is_none() || self.time == other.time;
        covers_tools && covers_time && self.bits & other.bits == other.bits
    }
}

/// Returns the pairs of neighbouring bytes of a text as a set of hashes. A text that holds another has all of its pairs.
pub(super) fn pairs(text: &str) -> u64 {
    let bytes = text.as_bytes();
    bytes.iter().zip(bytes.iter().skip(1)).fold(0, |set, (a, b)| {
        let hash = (u32::from(*a) << 8 | u32::from(*b)).wrapping_mul(0x9e37_79b1);
        set | 1 << (hash >> 26)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::annotations::Tier;
    use crate::domain::operation::OperationType;
    use crate::domain::policy::Entrance;
    use crate::domain::risk::{RiskLevel, Sensitivity, TrustTier};

    #[test]
    fn values_stand_in_the_order_of_their_enums() {
        use OperationType::{Destructive, Read, Write};
        let tiers = [Tier::Read, Tier::Write, Tier::Destructive, Tier::Unknown];
        let found: [Vec<(usize, &str)>; 6] = [
            [Read, Write, Destructive].map(|value| (value as usize, value.as_str())).to_vec(),
            tiers.map(|value| (value as usize, value.as_str())).to_vec(),
            RiskLevel::ALL.map(|value| (value as usize, value.as_str())).to_vec(),
            Sensitivity::ALL.map(|value| (value as usize, value.as_str())).to_vec(),
            Entrance::ALL.map(|value| (value as usize, value.as_str())).to_vec(),
            TrustTier::ALL.map(|value| (value as usize, value.as_str())).to_vec(),
        ];
        for (found, (name, names)) in found.iter().zip(DIMENSIONS) {
            let expected: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
            assert_eq!(*found, expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_filter_lets_every_match_pass(globs in prop::collection::vec("[ab:*?_é]{0,6}", 0..3), tool in "[ab]:[ab_é]{0,6}") {
            let selectors = Selectors { globs, ..Selectors::ANY };
            let at = DateTime::UNIX_EPOCH;
            let subject = RuleSubject { tool: &tool, bits: bit(0, 1), pairs: pairs(&tool), at };
            if selectors.mismatch(&subject) != Some(Mismatch::Tool) {
                prop_assert!(selectors.filter().passes(&subject), "{:?}", selectors.globs);
            }
        }
    }

    #[test]
    fn the_filter_stops_nearly_all_others() {
        let subject = |tool| RuleSubject { tool, bits: 0, pairs: pairs(tool), at: DateTime::UNIX_EPOCH };
        let filters: Vec<Filter> = (0..500)
            .map(|n| Selectors { globs: vec![format!("*:delete_{n}_*")], ..Selectors::ANY }.filter())
            .collect();
        for tool in ["github:get_repository", "files:read_file", "weather:forecast", "mail:list_threads_123"]
        {
            let passed = filters.iter().filter(|filter| filter.passes(&subject(tool))).count();
            assert!(passed < 10, "{passed} for {tool}");
        }
    }
}
