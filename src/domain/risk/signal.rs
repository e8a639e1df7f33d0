//! Signals of risk, and the level of a set of them.

use super::RiskLevel;

/// Observation that may raise the risk of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The tool is not read-only.
    Writes,
    /// The tool matches R4's pattern `fs_write*`.
    WritesFiles,
    /// The tool is of tier destructive.
    Destroys,
    /// The name has a verb that destroys, sends, pays or runs something.
    Verb,
    /// That verb's effect cannot be undone.
    Irreversible,
    /// The tool matches R4's pattern `terminal*`.
    Terminal,
    /// The tool matches R4's pattern `http*`.
    Http,
    /// The tool is a web page's.
    Site,
    /// The tool belongs to one of a web page's sensitive categories.
    SensitiveCategory,
    /// The definition was changed within the last 24 hours.
    Changed,
    /// The variant contradicts the annotations.
    Mismatch,
    /// The caller declares a more severe operation than the tool's tier.
    Declared,
    /// Data that the caller calls private or does not know go to a tool that reaches outside.
    LeavesTheHouse,
    /// An argument drops, truncates or alters what a database holds, or grants rights in it.
    SqlStructure,
    /// An argument deletes or updates all rows of a table.
    SqlAllRows,
    /// A command deletes recursively, takes rights, stops the machine or runs what it downloads.
    HostileCommand,
    /// A command has characters that a shell interprets.
    ShellCharacters,
    /// An argument such as `force`, `recursive` or `all` is true.
    Force,
    /// An argument has a wildcard.
    Wildcard,
    /// A list in the arguments is long.
    LongList,
    /// An argument is an amount of money or an account.
    Money,
    /// An argument names a path of the system, of keys or of credentials.
    SystemPath,
    /// An argument is a URL of a private network.
    PrivateUrl,
}

/// What a signal does to the level.
enum Weight {
    /// The level is at least this one, before steps are added.
    Base(RiskLevel),
    /// The level is at least this one, after steps were added.
    Floor(RiskLevel),
    /// The level is one higher, once for all signals of the group.
    Step(Group),
    /// One step of the group, and a floor.
    StepWithFloor(Group, RiskLevel),
    /// The level before steps is one higher than that of the tool's tier.
    OverTier,
    /// Nothing by itself.
    None,
}

/// Group of signals that add at most one step together.
#[derive(Clone, Copy)]
enum Group {
    Arguments,
    Data,
    Doubt,
}

impl Signal {
    /// All signals, in the order in which reasons are given.
    pub const ALL: [Signal; 23] = [
        Signal::SensitiveCategory,
        Signal::Destroys,
        Signal::Irreversible,
        Signal::Verb,
        Signal::Terminal,
        Signal::Http,
        Signal::HostileCommand,
        Signal::SqlStructure,
        Signal::SqlAllRows,
        Signal::ShellCharacters,
        Signal::Force,
        Signal::Wildcard,
        Signal::LongList,
        Signal::Money,
        Signal::SystemPath,
        Signal::PrivateUrl,
        Signal::LeavesTheHouse,
        Signal::Site,
        Signal::Changed,
        Signal::Mismatch,
        Signal::Declared,
        Signal::WritesFiles,
        Signal::Writes,
    ];

    /// Returns the name that is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Writes => "writes",
            Signal::WritesFiles => "writes_files",
            Signal::Destroys => "destroys",
            Signal::Verb => "verb",
            Signal::Irreversible => "irreversible",
            Signal::Terminal => "terminal",
            Signal::Http => "http",
            Signal::Site => "site",
            Signal::SensitiveCategory => "sensitive_category",
            Signal::Changed => "changed",
            Signal::Mismatch => "mismatch",
            Signal::Declared => "declared",
            Signal::LeavesTheHouse => "leaves_the_house",
            Signal::SqlStructure => "sql_structure",
            Signal::SqlAllRows => "sql_all_rows",
            Signal::HostileCommand => "hostile_command",
            Signal::ShellCharacters => "shell_characters",
            Signal::Force => "force",
            Signal::Wildcard => "wildcard",
            Signal::LongList => "long_list",
            Signal::Money => "money",
            Signal::SystemPath => "system_path",
            Signal::PrivateUrl => "private_url",
        }
    }

    /// Parses a stored name; `None` for any other text.
    pub fn parse(text: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.as_str() == text)
    }

    fn weight(self) -> Weight {
        use RiskLevel::{Critical, High, Moderate};
        match self {
            Signal::Writes | Signal::WritesFiles => Weight::Base(Moderate),
            Signal::Destroys | Signal::Verb | Signal::Terminal | Signal::Http => Weight::Base(High),
            Signal::Irreversible => Weight::None,
            Signal::Site => Weight::Floor(Moderate),
            Signal::SensitiveCategory => Weight::Floor(Critical),
            Signal::Changed | Signal::Mismatch => Weight::Step(Group::Doubt),
            Signal::Declared => Weight::OverTier,
            Signal::LeavesTheHouse => Weight::Step(Group::Data),
            Signal::SqlStructure | Signal::HostileCommand => Weight::StepWithFloor(Group::Arguments, High),
            Signal::SqlAllRows
            | Signal::ShellCharacters
            | Signal::Force
            | Signal::Wildcard
            | Signal::LongList
            | Signal::Money
            | Signal::SystemPath
            | Signal::PrivateUrl => Weight::Step(Group::Arguments),
        }
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
    pub fn add(&mut self, signal: Signal) {
        self.0 |= signal.bit();
    }

    /// Returns whether the signal is in the set.
    pub fn has(self, signal: Signal) -> bool {
        self.0 & signal.bit() != 0
    }

    /// Returns the signals, those that say most first.
    pub fn iter(self) -> impl Iterator<Item = Signal> {
        Signal::ALL.into_iter().filter(move |signal| self.has(*signal))
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
                Weight::OverTier if self.has(Signal::Writes) => base = base.max(RiskLevel::High),
                Weight::OverTier => base = base.max(RiskLevel::Moderate),
                Weight::None => {}
            }
        }
        if self.has(Signal::Destroys) && self.has(Signal::Irreversible) {
            return RiskLevel::Critical;
        }
        let steps = base as usize + groups.count_ones() as usize;
        RiskLevel::ALL.get(steps).copied().unwrap_or(RiskLevel::Critical).max(floor)
    }
}
