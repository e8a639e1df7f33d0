//! `/mcp` on the wire.

mod calls;
mod checks;
mod doors;
mod failures;
mod fidelity;
mod scope;
mod search;
mod wire_handshake;
mod wire_modern;
