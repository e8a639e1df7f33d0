//! Outcomes of MCP operations, the common source of the attributes of spans and the labels of histograms.

use super::measure::{TOOL_ERROR, code_name};
use super::span::Span;

/// Outcome of an MCP operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Success, or a question back to the requester.
    Well,
    /// Failure without a JSON-RPC error: a result that says so, or no answer. Contains the `error.type`.
    Failed(&'static str),
    /// A JSON-RPC error.
    Error {
        /// Code that the requester received.
        code: i64,
        /// Failure of the responder, if it has failed.
        fault: EndFault,
    },
}

/// Failure of the responder behind a JSON-RPC error (OpenTelemetry conventions for MCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndFault {
    /// None: the requester caused the error.
    Asker,
    /// Failure with the JSON-RPC code as its `error.type`.
    Code,
    /// Failure with this `error.type`.
    Named(&'static str),
}

impl End {
    /// Outcome of an operation that was given up by its requester.
    pub const GIVEN_UP: End = End::Failed("cancelled");

    /// Returns the outcome of an operation that ended with a result; `is_error` is the tool's `isError`.
    pub fn result(is_error: bool) -> End {
        if is_error { End::Failed(TOOL_ERROR) } else { End::Well }
    }

    /// Returns the outcome of a request of ours that a server answered with a JSON-RPC error. For a client, every such
    /// error is a failure.
    pub fn asked(code: i64) -> End {
        End::Error { code, fault: EndFault::Code }
    }

    /// Records the outcome on a span, with the JSON-RPC code as it is.
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

    /// Returns the labels for histograms, `error.type` and the JSON-RPC code, each from a closed list.
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
