//! State of upstream servers.

use super::text_enum::text_enum;

text_enum! {
    /// State of the connection to a server.
    pub enum ConnectionState {
        /// Not reached yet since it was added, moved or enabled.
        Unknown = "unknown",
        /// Listed, and alive since.
        Connected = "connected",
        /// Out of reach, or held back because it comes and goes.
        Disconnected = "disconnected",
    }
}
