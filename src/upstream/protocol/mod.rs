//! Protocol of all kinds of upstream: JSON-RPC envelopes, the two eras of MCP, first answers, lists, and the exchange that
//! each kind implements.

pub(super) mod ask;
pub(super) mod events;
pub(super) mod exchange;
pub(super) mod hello;
pub(super) mod jsonrpc;
pub(super) mod list_kind;
pub(super) mod measures;
pub(super) mod offers;
pub(super) mod page;
pub(super) mod param_headers;
pub(super) mod questions;
pub(super) mod sent;
