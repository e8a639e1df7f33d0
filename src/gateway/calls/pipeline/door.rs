//! The doors that calls come in by, and what differs behind them.

use crate::domain::activity::RecordKind;
use crate::domain::operation::Variant;
use crate::domain::tool::PinState;
use crate::gateway::catalog::Tool;

/// How a call says which tool it is about, and what it may do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `call_tool_*`: the caller chose the variant, and may have declared an intent.
    Variant(Variant),
    /// `/mcp/direct`: the tool itself is called, by either spelling of its name. The variant is the tool's `call_with`,
    /// and nothing is declared.
    Direct,
}

impl Door {
    /// What kind of act a call by this door is.
    pub(super) fn kind(self) -> RecordKind {
        match self {
            Door::Variant(_) => RecordKind::ToolCall,
            Door::Direct => RecordKind::DirectCall,
        }
    }

    /// The variant, where it is known before the tool is.
    pub(super) fn variant(self) -> Option<Variant> {
        match self {
            Door::Variant(variant) => Some(variant),
            Door::Direct => None,
        }
    }

    /// Whether a refusal may stand in `structuredContent`. `call_tool_*` have no output schema; on `/mcp/direct` a client
    /// may know one, be it that of a definition from before.
    pub(super) fn is_structured(self, tool: &Tool) -> bool {
        self != Door::Direct || (tool.state == PinState::Approved && !tool.shape.has_output_schema)
    }
}
