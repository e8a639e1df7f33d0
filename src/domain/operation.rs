//! Operation types of tool calls, and the tool variants that stand for them (R1, R2).

use serde::{Deserialize, Serialize};

/// What an operation does, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationType {
    /// Queries data.
    Read,
    /// Creates or updates.
    Write,
    /// Deletes, or cannot be undone.
    Destructive,
}

impl OperationType {
    /// The value on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationType::Read => "read",
            OperationType::Write => "write",
            OperationType::Destructive => "destructive",
        }
    }

    /// `None` for any other text.
    pub fn parse(text: &str) -> Option<OperationType> {
        match text {
            "read" => Some(OperationType::Read),
            "write" => Some(OperationType::Write),
            "destructive" => Some(OperationType::Destructive),
            _ => None,
        }
    }

    /// The tool variant of this operation type.
    pub fn variant(self) -> Variant {
        match self {
            OperationType::Read => Variant::Read,
            OperationType::Write => Variant::Write,
            OperationType::Destructive => Variant::Destructive,
        }
    }
}

/// The three tool variants, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// `call_tool_read`
    Read,
    /// `call_tool_write`
    Write,
    /// `call_tool_destructive`
    Destructive,
}

impl Variant {
    /// All of them, in order.
    pub const ALL: [Variant; 3] = [Variant::Read, Variant::Write, Variant::Destructive];

    /// The tool's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Variant::Read => "call_tool_read",
            Variant::Write => "call_tool_write",
            Variant::Destructive => "call_tool_destructive",
        }
    }

    /// `None` for any other name.
    pub fn parse(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|variant| variant.as_str() == name)
    }

    /// The operation type that this variant stands for.
    pub fn operation(self) -> OperationType {
        match self {
            Variant::Read => OperationType::Read,
            Variant::Write => OperationType::Write,
            Variant::Destructive => OperationType::Destructive,
        }
    }
}
