//! Entry points of calls, and their differences.

use crate::domain::activity::RecordKind;
use crate::domain::operation::Variant;
use crate::domain::tool::PinState;
use crate::gateway::catalog::Tool;

/// Entry point of a call: it decides how the tool is named, and which operations are permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `call_tool_*`: the caller chose the variant, and may declare an intent.
    Variant(Variant),
    /// `/mcp/direct`: the caller names the tool itself, in either spelling. The variant is the tool's `call_with`, and no
    /// intent is declared.
    Direct,
}

impl Door {
    /// Returns the record kind of a call by this door.
    pub(super) fn kind(self) -> RecordKind {
        match self {
            Door::Variant(_) => RecordKind::ToolCall,
            Door::Direct => RecordKind::DirectCall,
        }
    }

    /// Returns the variant; `None` if only the tool determines it.
    pub(super) fn variant(self) -> Option<Variant> {
        match self {
            Door::Variant(variant) => Some(variant),
            Door::Direct => None,
        }
    }

    /// Returns whether a refusal may be in `structuredContent`. `call_tool_*` have no output schema. On `/mcp/direct` a
    /// client may know one, possibly from an earlier definition.
    pub(super) fn is_structured(self, tool: &Tool) -> bool {
        self != Door::Direct || (tool.state == PinState::Approved && !tool.shape.has_output_schema)
    }
}
