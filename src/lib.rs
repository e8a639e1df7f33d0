//! mcpproxy
pub mod domain;
pub mod gateway;
pub mod store;
pub mod upstream;
