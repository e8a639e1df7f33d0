//! The MCP face: `/mcp` and `/mcp/direct`, each for both eras of the protocol.
//!
//! Only the envelope is parsed. Arguments and results are passed on as raw JSON.

mod args;
mod asked;
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
mod pages;
mod recipient;
mod refused;
mod result;
mod session;
mod text;
mod told;
mod tools;
mod wishes;

pub use front::handle;
pub use session::Sessions;

use crate::domain::activity::{RecordKind, Source};
use crate::domain::publish::Reader;
use crate::domain::text_enum::text_enum;

/// The modern, stateless revision.
pub const MODERN: &str = "2026-07-28";
/// Handshake revisions, newest first. The first is the answer to a client that asks for an unknown one.
pub const HANDSHAKE: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Era of the protocol that a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEra {
    /// 2026-07-28: every request stands alone.
    Modern,
    /// Revisions that begin with `initialize`.
    Handshake,
}

impl ClientEra {
    /// Returns the kind of reader that gets the answer.
    fn reader(self) -> Reader {
        match self {
            ClientEra::Modern => Reader::Modern,
            ClientEra::Handshake => Reader::Handshake,
        }
    }
}

text_enum! {
    /// Endpoint that a request came to.
    pub enum Endpoint {
        /// `/mcp`: tools are found by a search.
        Search = "mcp",
        /// `/mcp/direct`: every tool is listed.
        Direct = "direct",
    }
}

impl Endpoint {
    /// Returns the endpoint at a path; `None` if another face has it.
    pub fn at(path: &str) -> Option<Endpoint> {
        match path {
            "/mcp" => Some(Endpoint::Search),
            "/mcp/direct" => Some(Endpoint::Direct),
            _ => None,
        }
    }

    /// Returns the source in activity records.
    fn source(self) -> Source {
        match self {
            Endpoint::Search => Source::Mcp,
            Endpoint::Direct => Source::Direct,
        }
    }

    /// Returns the kind of record of a call that is of no more specific kind.
    fn call_kind(self) -> RecordKind {
        match self {
            Endpoint::Search => RecordKind::ToolCall,
            Endpoint::Direct => RecordKind::DirectCall,
        }
    }
}
