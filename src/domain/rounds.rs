//! Requests that take several rounds: what a client can be asked, what a server asks, and the state that goes with it
//! (MCP 2026-07-28, multi-round-trip requests).

mod input;
mod state;

pub use self::input::{Asked, Capabilities, Misfit, TooLarge};
pub use self::state::{Bound, State};

/// Largest `clientCapabilities`, as far as they are passed on, in bytes.
pub const CAPABILITIES_BYTES_MAX: usize = 4 * 1024;
/// Most input requests of one answer.
pub const INPUT_REQUESTS_MAX: usize = 64;
/// Longest state of a server, as it writes it, in bytes.
pub const STATE_BYTES_MAX: usize = 64 * 1024;
