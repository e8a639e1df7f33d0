//! Eras of the MCP protocol.

/// Protocol era that an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revision 2026-07-28: every request stands alone.
    Modern,
    /// Revisions 2025-03-26 to 2025-11-25: `initialize` first.
    Handshake,
}
