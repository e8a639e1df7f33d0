//! Client side: MCP to upstream servers, over streamable HTTP and over the pipes of programs that the gateway runs
//! (`stdio`). Both protocol eras are spoken; payloads pass as raw bytes.
//!
//! A [`Pool`] holds one [`Connection`] per (tenant, server). A connection detects which [`Era`] its server speaks,
//! opens a session where one is needed, and sends calls over kept-alive HTTP/1.1 connections. Arguments, results and
//! definitions are never decoded. [`Egress`] checks every address after name resolution. Every queue, body and wait
//! has a bound. A call is sent again only if it certainly was not processed.

mod admission;
mod ask;
mod breaker;
mod command;
mod connect;
mod connection;
mod discover;
mod egress;
mod embedder;
mod error;
mod gate;
mod health;
mod http_link;
mod jsonrpc;
mod link;
mod list;
mod list_kind;
mod list_turns;
mod measures;
mod meter;
mod offers;
mod pace;
mod param_headers;
mod pool;
mod post;
mod rmcp;
mod sent;
mod session;
mod shares;
mod sse;
mod stdio;
mod target;
mod wire;
mod wires;

#[cfg(test)]
mod tests;

use crate::domain::era;

pub use self::rmcp::{WatchEnd, Watcher};
pub use breaker::{BreakerRules, BreakerState};
pub use command::{Commands, NoCommand, ProgramCommand};
pub use connect::native_tls;
pub use connection::Connection;
pub use egress::{Deny, Egress, EgressError, Resolve, Resolving, SystemDns, URL_BYTES_MAX};
pub use embedder::{EmbedError, Embedder, EmbedderOptions, Fault, Patience, Question};
pub use era::Era;
pub use error::{FailureKind, UpstreamError};
pub use jsonrpc::{Answer, Round};
pub use list::{Doubt, Entry, Listed, Listing, PAGES_MAX};
pub use list_kind::{
    DEFINITION_BYTES_MAX, LIST_BYTES_MAX, ListKind, NAME_BYTES_MAX, OFFERS_BYTES_MAX, PROMPTS_MAX,
    RESOURCES_MAX, TEMPLATES_MAX, TOOLS_MAX, URI_BYTES_MAX,
};
pub use list_turns::Slowness;
pub use offers::{Announced, DeclaredOffer, DeclaredOffers};
pub use param_headers::{
    ParamHeader, check_param_headers, encode as header_value, param_header_rules, param_headers,
};
pub use pool::{CONNECTIONS_MAX, Pool, PoolVitals};
pub use sent::Sent;
pub use shares::{FREE_BYTES_MAX, MemoryHold, MemoryLimits, MemoryPurpose, MemoryShort, MemoryVitals};
pub use stdio::{
    Confinement, Journal, LINE_BYTES_MAX, LogLine, LogSource, StdioRules, become_confined, can_confine,
    run_warden,
};
pub use target::{Credential, Limits, Program, Request, Subject, Target, is_reserved_header};
