//! Queries that REST and the console read alike: parameters, cursors, and the filters of lists.

pub(in crate::faces) mod activity;
pub(in crate::faces) mod consent;
pub(in crate::faces) mod cursor;
pub(in crate::faces) mod export;
pub(in crate::faces) mod offer;
pub(in crate::faces) mod params;
pub(in crate::faces) mod record;
pub(in crate::faces) mod server;

use std::borrow::Cow;

use crate::domain::brief;
use crate::gateway::GatewayError;

/// Returns the error for an unknown name, with the known ones.
pub(in crate::faces) fn unknown(what: &str, name: &str, known: &[&str]) -> GatewayError {
    let known = if known.is_empty() {
        "there is none here".to_owned()
    } else {
        format!("known: {}", known.join(", "))
    };
    GatewayError::invalid(name, format!("unknown {what} '{name}'; {known}"))
}

/// Returns a text short enough to be repeated in an error.
pub(in crate::faces) fn clip(text: &str) -> Cow<'_, str> {
    /// Longest text repeated, in characters.
    const SHOWN_CHARS_MAX: usize = 64;
    brief::short(text, SHOWN_CHARS_MAX)
}
