//! Client side: MCP to upstream servers, over streamable HTTP and over the pipes of programs that the gateway runs
//! (`stdio`). Both protocol eras are spoken; payloads pass as raw bytes. Forms of web pages are tools, too (`web`).
//!
//! A [`Pool`] holds one [`Connection`] per (tenant, server). A connection detects which [`Era`] its server speaks,
//! opens a session where one is needed, and sends calls over kept-alive HTTP/1.1 connections. Arguments, results and
//! definitions are never decoded. [`Egress`] checks every address after name resolution. Every queue, body and wait
//! has a bound. A call is sent again only if it certainly was not processed.

mod admission;
mod connection;
mod error;
mod http;
mod kinds;
mod pool;
mod protocol;
mod stdio;
mod target;
mod web;

#[cfg(test)]
mod tests;

pub use self::admission::breaker::{BreakerRules, BreakerState};
pub use self::admission::egress::{Deny, Egress, EgressError, Resolve, Resolving, SystemDns, URL_BYTES_MAX};
pub use self::admission::shares::{
    FREE_BYTES_MAX, MemoryHold, MemoryLimits, MemoryPurpose, MemoryShort, MemoryVitals, lower_priority,
};
pub use self::connection::Connection;
pub use self::connection::list::{Doubt, Listed, PAGES_MAX};
pub use self::connection::turns::Slowness;
pub use self::error::{FailureKind, UpstreamError, WANTS_CREDENTIALS};
pub use self::http::connect::native_tls;
pub use self::http::document::DocumentError;
pub use self::http::embedder::{EmbedError, Embedder, EmbedderOptions, Fault, Patience, Question};
pub use self::http::login::{AccessToken, LoginFailure, ServerLogin, TokenSource};
pub use self::http::rmcp::{ResourceWatcher, WATCHED_MAX, WatchEnd, Watcher};
pub use self::http::token::{ClientAuth, TokenAnswer, TokenError, TokenRequest};
pub use self::http::webhook::{WebhookError, WebhookPost};
pub use self::pool::{CONNECTIONS_MAX, Pool, PoolVitals, TokenClient};
pub use self::protocol::events::ExchangeFor;
pub use self::protocol::events::{
    CallCookies, CallEvent, CallerMark, Hears, LedgerAsk, LedgerReply, PageCall, QuestionReply,
    ServerQuestion,
};
pub use self::protocol::jsonrpc::{Answer, Round};
pub use self::protocol::list_kind::{
    DEFINITION_BYTES_MAX, LIST_BYTES_MAX, ListKind, NAME_BYTES_MAX, OFFERS_BYTES_MAX, PROMPTS_MAX,
    RESOURCES_MAX, TEMPLATES_MAX, TOOLS_MAX, URI_BYTES_MAX,
};
pub use self::protocol::offers::{Announced, DeclaredOffer, DeclaredOffers};
pub use self::protocol::page::{Entry, Listing};
pub use self::protocol::param_headers::{
    ParamHeader, check_param_headers, encode as header_value, param_header_rules, param_headers,
};
pub use self::protocol::sent::Sent;
pub use self::stdio::{
    Confinement, Journal, LINE_BYTES_MAX, LogLine, LogSource, StdioRules, become_confined, can_confine,
    run_warden,
};
pub use self::target::command::{Commands, NoCommand, ProgramCommand};
pub use self::target::{
    Credential, HttpServer, Limits, LoginHolder, PageServer, Program, Request, Subject, Target, TargetLogin,
    Upstream, is_reserved_header,
};
pub use self::web::PageInspector;
pub use crate::domain::era::Era;
