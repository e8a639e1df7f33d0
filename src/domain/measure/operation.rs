//! What operations of MCP are told apart by, in the words of OpenTelemetry's conventions for it. Clients and servers
//! choose methods, names and codes: what is not on a list of ours is `_OTHER`, so that nobody can make series.

use std::time::Duration;

use super::{Series, SeriesKey};

/// What is on no list.
pub const OTHER: &str = "_OTHER";
/// The type of an error that stands in a tool's result.
pub const TOOL_ERROR: &str = "tool_error";

/// Methods of all revisions that we speak.
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
/// Revisions that we speak.
const VERSIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

/// A method's name, if it is one.
pub fn known_method(name: &str) -> &'static str {
    METHODS.into_iter().find(|known| *known == name).unwrap_or(OTHER)
}

/// A revision's name, if we speak it.
pub fn known_version(name: &str) -> Option<&'static str> {
    VERSIONS.into_iter().find(|known| *known == name)
}

/// A JSON-RPC error code as text, if it is one that JSON-RPC, MCP or this gateway defines.
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

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// HTTP.
    Tcp,
    /// The pipes of a program.
    Pipe,
}

impl Transport {
    /// The name in the conventions.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Pipe => "pipe",
        }
    }
}

/// One kind of operation, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationKey {
    /// A method of the list, or `_OTHER`.
    pub method: &'static str,
    /// One of the gateway's own tools.
    pub tool: Option<&'static str>,
    /// What kind of error it ended in.
    pub error: Option<&'static str>,
    /// The JSON-RPC code of its answer, where that is an error.
    pub code: Option<&'static str>,
    /// Between whom it was.
    pub between: Between,
}

/// Between whom something was: what a session shares with its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Between {
    /// What carried it.
    pub transport: Transport,
    /// The revision that was spoken, where that is known.
    pub version: Option<&'static str>,
}

/// Requests between clients and servers of one side of the gateway, and sessions.
#[derive(Debug)]
pub struct Measures {
    /// What was asked.
    pub operations: Series<OperationKey>,
    /// Sessions that have ended, and the kind of error that they ended in.
    pub sessions: Series<(Between, Option<&'static str>)>,
}

impl Default for Measures {
    fn default() -> Measures {
        Measures { operations: Series::of_operations(), sessions: Series::of_operations() }
    }
}

impl Measures {
    /// A request of this method, perhaps about a tool of the gateway's own, has ended: with this kind of error and code.
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
        // how it ended is what is looked at first, and there are not many ways
        OperationKey { method: OTHER, tool: None, error: self.error, code: None, between }
    }
}

/// A session and how it ended.
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
