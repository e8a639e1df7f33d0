//! Labels of MCP operations, in the terms of OpenTelemetry's conventions for MCP. Clients and servers choose methods,
//! names and codes. Values that are on no list of ours become `_OTHER`, so that nobody outside can create series.

use std::time::Duration;

use super::{Series, SeriesKey};
use crate::domain::text_enum::text_enum;

/// Label of values that are on no list.
pub const OTHER: &str = "_OTHER";
/// Value of `error.type` for a tool result with `isError`.
pub const TOOL_ERROR: &str = "tool_error";

/// Methods of all MCP revisions that the gateway supports.
const METHODS: [&str; 22] = [
    "tools/call",
    "tools/list",
    "initialize",
    "ping",
    "server/discover",
    "subscriptions/listen",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/list",
    "tasks/cancel",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
];
/// MCP revisions that the gateway supports.
const VERSIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

/// Returns the label of a method: its name if it is known, else [`OTHER`].
pub fn known_method(name: &str) -> &'static str {
    METHODS.into_iter().find(|known| *known == name).unwrap_or(OTHER)
}

/// Returns the label of an MCP revision; `None` if the gateway does not support it.
pub fn known_version(name: &str) -> Option<&'static str> {
    VERSIONS.into_iter().find(|known| *known == name)
}

/// Returns the label of a JSON-RPC error code: its digits if JSON-RPC, MCP or this gateway defines it, else [`OTHER`].
pub fn code_name(code: i64) -> &'static str {
    match code {
        -32700 => "-32700",
        -32600 => "-32600",
        -32601 => "-32601",
        -32602 => "-32602",
        -32603 => "-32603",
        -32000 => "-32000",
        -32001 => "-32001",
        -32002 => "-32002",
        -32003 => "-32003",
        -32020 => "-32020",
        -32021 => "-32021",
        -32022 => "-32022",
        -32042 => "-32042",
        -31429 => "-31429",
        _ => OTHER,
    }
}

text_enum! {
    /// Transport of MCP messages.
    pub enum Transport {
        /// HTTP.
        Tcp = "tcp",
        /// Standard input and output of a local program.
        Pipe = "pipe",
    }
}

/// Labels of an MCP operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationKey {
    /// MCP method, or `_OTHER`.
    pub method: &'static str,
    /// Tool of the gateway's own that was called; `None` for all else.
    pub tool: Option<&'static str>,
    /// The `error.type`; `None` when the operation did not fail.
    pub error: Option<&'static str>,
    /// JSON-RPC error code of the answer; `None` when the answer is no error.
    pub code: Option<&'static str>,
    /// Transport and revision of the connection.
    pub between: Between,
}

/// Labels of a connection, which a session shares with its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Between {
    /// Transport of the connection.
    pub transport: Transport,
    /// MCP revision in use; `None` when unknown.
    pub version: Option<&'static str>,
}

/// Histograms of requests and sessions on one side of the gateway: towards clients or towards servers.
#[derive(Debug)]
pub struct Measures {
    /// Durations of requests.
    pub operations: Series<OperationKey>,
    /// Durations of ended sessions, by connection and `error.type`.
    pub sessions: Series<(Between, Option<&'static str>)>,
}

impl Default for Measures {
    fn default() -> Measures {
        Measures { operations: Series::of_operations(), sessions: Series::of_operations() }
    }
}

impl Measures {
    /// Records the end of a request: method and own tool, connection, duration, `error.type` and JSON-RPC code.
    pub fn ended(
        &self,
        (method, tool): (&'static str, Option<&'static str>),
        between: Between,
        took: Duration,
        (error, code): (Option<&'static str>, Option<&'static str>),
    ) {
        self.operations.observe(OperationKey { method, tool, error, code, between }, took);
    }
}

impl SeriesKey for OperationKey {
    fn rest(self) -> OperationKey {
        let between = Between { version: None, ..self.between };
        // the outcome matters most, and there are few of them
        OperationKey { method: OTHER, tool: None, error: self.error, code: None, between }
    }
}

/// Labels of a session, with the `error.type` of its end.
impl SeriesKey for (Between, Option<&'static str>) {
    fn rest(self) -> Self {
        (Between { version: None, ..self.0 }, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_words_are_other() {
        assert_eq!((known_method("tools/call"), known_method("tools/call\n")), ("tools/call", OTHER));
        assert_eq!((known_version("2025-06-18"), known_version("2024-11-05")), (Some("2025-06-18"), None));
        assert_eq!((code_name(-32602), code_name(7)), ("-32602", OTHER));
    }

    #[test]
    fn what_finds_no_place_still_says_how_it_ended() {
        let between = Between { transport: Transport::Tcp, version: known_version("2025-06-18") };
        let (method, tool, error) = ("tools/call", Some("read_cache"), Some(TOOL_ERROR));
        let rest = OperationKey { method, tool, error, code: None, between }.rest();
        assert_eq!((rest.method, rest.tool, rest.error, rest.between.version), (OTHER, None, error, None));
    }
}
