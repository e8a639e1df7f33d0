//! Operation types of tool calls, and the tool variants that stand for them (R1, R2).

use serde::{Deserialize, Serialize};

/// Effect of an operation, from the least to the most severe.
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
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationType::Read => "read",
            OperationType::Write => "write",
            OperationType::Destructive => "destructive",
        }
    }

    /// Parses a name on the wire; `None` for any other text.
    pub fn parse(text: &str) -> Option<OperationType> {
        match text {
            "read" => Some(OperationType::Read),
            "write" => Some(OperationType::Write),
            "destructive" => Some(OperationType::Destructive),
            _ => None,
        }
    }

    /// Returns the tool variant of this operation type.
    pub fn variant(self) -> Variant {
        match self {
            OperationType::Read => Variant::Read,
            OperationType::Write => Variant::Write,
            OperationType::Destructive => Variant::Destructive,
        }
    }
}

/// Tool variants through which callers call an upstream's tools, from the least to the most severe.
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
    /// All variants, in order.
    pub const ALL: [Variant; 3] = [Variant::Read, Variant::Write, Variant::Destructive];

    /// Returns the name of the variant's tool.
    pub fn as_str(self) -> &'static str {
        match self {
            Variant::Read => "call_tool_read",
            Variant::Write => "call_tool_write",
            Variant::Destructive => "call_tool_destructive",
        }
    }

    /// Parses the name of a variant's tool; `None` for any other name.
    pub fn parse(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|variant| variant.as_str() == name)
    }

    /// Returns the operation type that this variant stands for.
    pub fn operation(self) -> OperationType {
        match self {
            Variant::Read => OperationType::Read,
            Variant::Write => OperationType::Write,
            Variant::Destructive => OperationType::Destructive,
        }
    }
}
