//! Signals of risk, and the level of a set of them.

use super::RiskLevel;
use crate::domain::text_enum::text_enum;

text_enum! {
    /// Observation that may raise the risk of a call; in the order in which reasons are given.
    pub enum RiskSignal {
        /// The tool belongs to one of a web page's sensitive categories.
        SensitiveCategory = "sensitive_category",
        /// The tool is of tier destructive.
        Destroys = "destroys",
        /// The effect of the name's verb cannot be undone.
        Irreversible = "irreversible",
        /// The name has a verb that destroys, sends, pays or runs something.
        Verb = "verb",
        /// The tool matches R4's pattern `terminal*`.
        Terminal = "terminal",
        /// The tool matches R4's pattern `http*`.
        Http = "http",
        /// A command deletes recursively, takes rights, stops the machine or runs what it downloads.
        HostileCommand = "hostile_command",
        /// An argument drops, truncates or alters what a database holds, or grants rights in it.
        SqlStructure = "sql_structure",
        /// An argument deletes or updates all rows of a table.
        SqlAllRows = "sql_all_rows",
        /// A command has characters that a shell interprets.
        ShellCharacters = "shell_characters",
        /// An argument such as `force`, `recursive` or `all` is true.
        Force = "force",
        /// An argument has a wildcard.
        Wildcard = "wildcard",
        /// A list in the arguments is long.
        LongList = "long_list",
        /// An argument is an amount of money or an account.
        Money = "money",
        /// An argument names a path of the system, of keys or of credentials.
        SystemPath = "system_path",
        /// An argument is a URL of a private network.
        PrivateUrl = "private_url",
        /// Data that the caller calls private or does not know go to a tool that reaches outside.
        LeavesTheHouse = "leaves_the_house",
        /// The tool is a web page's.
        Site = "site",
        /// The definition was changed within the last 24 hours.
        Changed = "changed",
        /// The variant contradicts the annotations.
        Mismatch = "mismatch",
        /// The caller declares a more severe operation than the tool's tier.
        Declared = "declared",
        /// The tool matches R4's pattern `fs_write*`.
        WritesFiles = "writes_files",
        /// The tool is not read-only.
        Writes = "writes",
    }
}

/// Weight of a signal in the level.
enum Weight {
    /// The level is at least this one, before steps are added.
    Base(RiskLevel),
    /// The level is at least this one, after steps were added.
    Floor(RiskLevel),
    /// The level is one higher, once for all signals of the group.
    Step(Group),
    /// A step of the group, and a floor.
    StepWithFloor(Group, RiskLevel),
    /// The level before steps is one higher than that of the tool's tier.
    OverTier,
    /// No weight by itself.
    None,
}

/// Group of signals that add at most one step together.
#[derive(Clone, Copy)]
enum Group {
    Arguments,
    Data,
    Doubt,
}

impl RiskSignal {
    fn weight(self) -> Weight {
        use RiskLevel::{Critical, High, Moderate};
        match self {
            RiskSignal::Writes | RiskSignal::WritesFiles => Weight::Base(Moderate),
            RiskSignal::Destroys | RiskSignal::Verb | RiskSignal::Terminal | RiskSignal::Http => {
                Weight::Base(High)
            }
            RiskSignal::Irreversible => Weight::None,
            RiskSignal::Site => Weight::Floor(Moderate),
            RiskSignal::SensitiveCategory => Weight::Floor(Critical),
            RiskSignal::Changed | RiskSignal::Mismatch => Weight::Step(Group::Doubt),
            RiskSignal::Declared => Weight::OverTier,
            RiskSignal::LeavesTheHouse => Weight::Step(Group::Data),
            RiskSignal::SqlStructure | RiskSignal::HostileCommand => {
                Weight::StepWithFloor(Group::Arguments, High)
            }
            RiskSignal::SqlAllRows
            | RiskSignal::ShellCharacters
            | RiskSignal::Force
            | RiskSignal::Wildcard
            | RiskSignal::LongList
            | RiskSignal::Money
            | RiskSignal::SystemPath
            | RiskSignal::PrivateUrl => Weight::Step(Group::Arguments),
        }
    }

    /// Returns whether the signal is found in the arguments of a call.
    pub fn is_of_arguments(self) -> bool {
        matches!(self.weight(), Weight::Step(Group::Arguments) | Weight::StepWithFloor(Group::Arguments, _))
    }

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

/// Set of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signals(u32);

impl Signals {
    /// Adds a signal.
    pub fn add(&mut self, signal: RiskSignal) {
        self.0 |= signal.bit();
    }

    /// Returns whether the signal is in the set.
    pub fn has(self, signal: RiskSignal) -> bool {
        self.0 & signal.bit() != 0
    }

    /// Returns the signals, those that say most first.
    pub fn iter(self) -> impl Iterator<Item = RiskSignal> {
        RiskSignal::ALL.into_iter().filter(move |signal| self.has(*signal))
    }

    /// Returns the level of the set. Another signal never lowers it.
    pub fn level(self) -> RiskLevel {
        let (mut base, mut floor, mut groups) = (RiskLevel::Low, RiskLevel::Low, 0_u32);
        let mut step = |group: Group| groups |= 1 << group as u32;
        for signal in self.iter() {
            match signal.weight() {
                Weight::Base(level) => base = base.max(level),
                Weight::Floor(level) => floor = floor.max(level),
                Weight::Step(group) => step(group),
                Weight::StepWithFloor(group, level) => {
                    step(group);
                    floor = floor.max(level);
                }
                Weight::OverTier if self.has(RiskSignal::Writes) => base = base.max(RiskLevel::High),
                Weight::OverTier => base = base.max(RiskLevel::Moderate),
                Weight::None => {}
            }
        }
        if self.has(RiskSignal::Destroys) && self.has(RiskSignal::Irreversible) {
            return RiskLevel::Critical;
        }
        let steps = base as usize + groups.count_ones() as usize;
        RiskLevel::ALL.get(steps).copied().unwrap_or(RiskLevel::Critical).max(floor)
    }
}
