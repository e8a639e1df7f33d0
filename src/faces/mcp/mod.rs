//! The MCP face: `/mcp` and `/mcp/direct`, both eras on one URL, on raw JSON.
//!
//! The envelope is read; arguments and results are passed on as the bytes they came as.

mod args;
mod call;
mod direct;
mod entry;
mod envelope;
mod front;
mod jsonrpc;
mod listen;
mod management;
mod media;
mod methods;
mod modern;
mod notify;
mod offers;
mod operation;
mod refused;
mod result;
mod session;
mod text;
mod tools;

pub use front::{handle, handle_direct};
pub use session::Sessions;

use crate::domain::activity::{RecordKind, Source};
use crate::domain::publish::Reader;

/// The modern, stateless revision.
pub const MODERN: &str = "2026-07-28";
/// Handshake revisions, newest first: the first is what an unknown wish is answered with.
pub const HANDSHAKE: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Which way of speaking a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEra {
    /// 2026-07-28: every request stands alone.
    Modern,
    /// The revisions that begin with `initialize`.
    Handshake,
}

impl ClientEra {
    /// Who reads what is answered.
    fn reader(self) -> Reader {
        match self {
            ClientEra::Modern => Reader::Modern,
            ClientEra::Handshake => Reader::Handshake,
        }
    }
}

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/mcp`: tools are found by a search.
    Search,
    /// `/mcp/direct`: every tool is listed.
    Direct,
}

impl Endpoint {
    /// The name in session tokens.
    fn as_str(self) -> &'static str {
        match self {
            Endpoint::Search => "mcp",
            Endpoint::Direct => "direct",
        }
    }

    /// The name in the activity log.
    fn source(self) -> Source {
        match self {
            Endpoint::Search => Source::Mcp,
            Endpoint::Direct => Source::Direct,
        }
    }

    /// The kind of act that a call is which cannot be told to be any other.
    fn call_kind(self) -> RecordKind {
        match self {
            Endpoint::Search => RecordKind::ToolCall,
            Endpoint::Direct => RecordKind::DirectCall,
        }
    }
}
