//! Messages of servers to clients in the middle of a call, and which of them may pass.

use super::text_enum::text_enum;

text_enum! {
    /// Severity of a log message of a server, from the lowest to the highest (MCP, logging).
    #[derive(PartialOrd, Ord)]
    pub enum LogLevel {
        /// Detail for debugging.
        Debug = "debug",
        /// General information.
        Info = "info",
        /// Normal, but worth noting.
        Notice = "notice",
        /// Warning.
        Warning = "warning",
        /// Error.
        Error = "error",
        /// Critical condition.
        Critical = "critical",
        /// Action is needed at once.
        Alert = "alert",
        /// The system is unusable.
        Emergency = "emergency",
    }
}
