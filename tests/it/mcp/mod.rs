//! `/mcp` on the wire.

mod calls;
mod cancellation;
mod checks;
mod doors;
mod failures;
mod fidelity;
mod schemas;
mod scope;
mod search;
mod unknown_arguments;
mod wire_handshake;
mod wire_modern;
