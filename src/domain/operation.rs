//! Operation types of tool calls, and the tool variants that stand for them (R1, R2).

use super::text_enum::text_enum;

text_enum! {
    /// Effect of an operation, from the least to the most severe.
    #[derive(PartialOrd, Ord)]
    pub enum OperationType {
        /// Queries data.
        Read = "read",
        /// Creates or updates.
        Write = "write",
        /// Deletes, or cannot be undone.
        Destructive = "destructive",
    }
}

impl OperationType {
    /// Returns the tool variant of this operation type.
    pub fn variant(self) -> Variant {
        match self {
            OperationType::Read => Variant::Read,
            OperationType::Write => Variant::Write,
            OperationType::Destructive => Variant::Destructive,
        }
    }
}

text_enum! {
    /// Tool variants through which callers call an upstream's tools, from the least to the most severe.
    #[derive(PartialOrd, Ord)]
    pub enum Variant {
        /// `call_tool_read`
        Read = "call_tool_read",
        /// `call_tool_write`
        Write = "call_tool_write",
        /// `call_tool_destructive`
        Destructive = "call_tool_destructive",
    }
}

impl Variant {
    /// Returns the operation type that this variant stands for.
    pub fn operation(self) -> OperationType {
        match self {
            Variant::Read => OperationType::Read,
            Variant::Write => OperationType::Write,
            Variant::Destructive => OperationType::Destructive,
        }
    }
}
