//! Requests of several rounds: capabilities of the client, input requests of the server, and the state between rounds (MCP
//! 2026-07-28, multi-round-trip requests).

mod attributed;
mod held;
mod input;
mod state;

pub use self::attributed::{attributed, attributed_log, attributed_result};
pub use self::held::{held_question, is_answer};
pub use self::input::{
    Asked, CONSENT_KEY, Capabilities, HELD_KEY, LOGIN_KEY, Misfit, QUESTION_BYTES_MAX, TooLarge,
    has_other_spelling,
};
pub use self::state::{Bound, HeldQuestion, RoundConsent, State};
pub use super::relay::QuestionKind;

/// Largest part of `clientCapabilities` that is passed on, in bytes.
pub const CAPABILITIES_BYTES_MAX: usize = 4 * 1024;
/// Most input requests of one answer.
pub const INPUT_REQUESTS_MAX: usize = 64;
/// Longest `requestState` of a server, as a JSON string, in bytes.
pub const STATE_BYTES_MAX: usize = 64 * 1024;
