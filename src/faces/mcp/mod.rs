//! The MCP face: `/mcp`, both eras on one URL, on raw JSON.
//!
//! The envelope is read; arguments and results are passed on as the bytes they came as.

mod args;
mod call;
mod envelope;
mod front;
mod jsonrpc;
mod listen;
mod methods;
mod modern;
mod result;
mod session;
mod text;
mod tools;

pub use front::handle;
pub use session::Sessions;

/// The modern, stateless revision.
pub const MODERN: &str = "2026-07-28";
/// Handshake revisions, newest first: the first is what an unknown wish is answered with.
pub const HANDSHAKE: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Which way of speaking a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2026-07-28: every request stands alone.
    Modern,
    /// The revisions that begin with `initialize`.
    Handshake,
}
