//! Eras of the MCP protocol.

use super::text_enum::text_enum;

impl Era {
    /// Returns the revisions of the era, for people.
    pub fn revisions(self) -> &'static str {
        match self {
            Era::Modern => "2026-07-28",
            Era::Handshake => "2025-03-26 to 2025-11-25",
        }
    }
}

text_enum! {
    /// Protocol era that an upstream speaks.
    pub enum Era {
        /// Revision 2026-07-28: every request stands alone.
        Modern = "modern",
        /// Revisions 2025-03-26 to 2025-11-25: `initialize` first.
        Handshake = "handshake",
    }
}
