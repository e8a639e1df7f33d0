//! Servers that are reached over HTTP, the embeddings service, and receivers of webhooks: connections, sessions, streams.

pub(super) mod challenge;
pub(super) mod connect;
pub(super) mod discover;
pub(super) mod document;
pub(super) mod embedder;
pub(super) mod link;
pub(super) mod login;
pub(super) mod meter;
pub(super) mod post;
mod refused;
pub(super) mod rmcp;
pub(super) mod session;
pub(super) mod sse;
pub(super) mod token;
pub(super) mod webhook;
pub(super) mod wire;
pub(super) mod wires;
