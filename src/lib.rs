//! mcpproxy: a multi-tenant MCP gateway. One URL and one key; every call is checked and recorded.
//!
//! The modules form floors. A module uses its own tree and the floors below, never one above; `tests/tidy.rs` checks
//! that.
//!
//! - [`app`] (4) builds everything and owns configuration, telemetry and the life of the process.
//! - [`faces`] (3) speak to clients: `mcp`, `rest`, `acp` and `console`, which share `http`, `auth` and `wire`.
//! - [`gateway`] (2) holds the use cases; only this floor knows both store and upstream.
//! - [`store`] (1) is Postgres; [`upstream`] (1) is the client side of MCP.
//! - [`domain`] (0) is pure: values and decisions.

pub mod app;
pub mod domain;
pub mod faces;
pub mod gateway;
pub mod store;
pub mod upstream;
