//! mcpproxy: a multi-tenant MCP gateway. One URL and one key; every call is checked and recorded.
//!
//! The map of the house, floor by floor. A file uses its own room and the floors below, never above;
//! `tests/tidy.rs` keeps that.
//!
//! - [`app`] (4) builds everything and owns configuration, telemetry and the life of the process.
//! - [`faces`] (3) speak to clients: `mcp` and `rest`, on a shared porch.
//! - [`gateway`] (2) holds the use cases; it alone knows both store and upstream.
//! - [`store`] (1) is Postgres; [`upstream`] (1) is the client side of MCP.
//! - [`domain`] (0) is pure: values and decisions.

pub mod app;
pub mod domain;
pub mod faces;
pub mod gateway;
pub mod store;
pub mod upstream;
