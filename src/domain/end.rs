//! How an operation of MCP ended: the one source of what spans and histograms say of it.

use super::measure::{TOOL_ERROR, code_name};
use super::span::Span;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should, or with a question to whoever asked.
    Well,
    /// With a result that says that it failed, or without an answer: in this way.
    Failed(&'static str),
    /// With a JSON-RPC error.
    Error {
        /// The code that whoever asked got.
        code: i64,
        /// Whether, and in which way, whoever answered has failed.
        fault: EndFault,
    },
}

/// What a JSON-RPC error says of the side that is asked (OpenTelemetry conventions for MCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndFault {
    /// Nothing: whoever asked is to blame.
    Asker,
    /// That it failed as the code says.
    Code,
    /// That it failed in this way.
    Named(&'static str),
}

impl End {
    /// Nobody waits for it any more.
    pub const GIVEN_UP: End = End::Failed("cancelled");

    /// With a result, of which a tool may say that it is an error.
    pub fn result(is_error: bool) -> End {
        if is_error { End::Failed(TOOL_ERROR) } else { End::Well }
    }

    /// With an error of a server that we asked. To who asks, each is one.
    pub fn asked(code: i64) -> End {
        End::Error { code, fault: EndFault::Code }
    }

    /// Tells a span of it, with the number as it is.
    pub fn tell(self, span: &mut Span) {
        match self {
            End::Well => {}
            End::Failed(how) => span.fail(how),
            End::Error { code, fault } => {
                span.set("rpc.response.status_code", code.to_string());
                match fault {
                    EndFault::Asker => {}
                    EndFault::Code => span.fail(code.to_string()),
                    EndFault::Named(how) => span.fail(how),
                }
            }
        }
    }

    /// The type of the error and the JSON-RPC code, each out of a closed list.
    pub fn labels(self) -> (Option<&'static str>, Option<&'static str>) {
        match self {
            End::Well => (None, None),
            End::Failed(how) => (Some(how), None),
            End::Error { code, fault } => {
                let name = code_name(code);
                let how = match fault {
                    EndFault::Asker => None,
                    EndFault::Code => Some(name),
                    EndFault::Named(how) => Some(how),
                };
                (how, Some(name))
            }
        }
    }
}
