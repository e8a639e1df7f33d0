//! Requests of several rounds: capabilities of the client, input requests of the server, and the state between rounds (MCP
//! 2026-07-28, multi-round-trip requests).

mod input;
mod state;

use super::text_enum::text_enum;

pub use self::input::{Asked, CONSENT_KEY, Capabilities, Misfit, TooLarge};
pub use self::state::{Bound, RoundConsent, State};

text_enum! {
    /// Kind of a question of a server to a client, by its method.
    pub enum QuestionKind {
        /// A form, or a page to open, for a person.
        Elicitation = "elicitation/create",
        /// A completion by the client's model.
        Sampling = "sampling/createMessage",
        /// The folders that the client works on.
        Roots = "roots/list",
    }
}

/// Largest part of `clientCapabilities` that is passed on, in bytes.
pub const CAPABILITIES_BYTES_MAX: usize = 4 * 1024;
/// Most input requests of one answer.
pub const INPUT_REQUESTS_MAX: usize = 64;
/// Longest `requestState` of a server, as a JSON string, in bytes.
pub const STATE_BYTES_MAX: usize = 64 * 1024;
