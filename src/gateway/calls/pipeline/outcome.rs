//! How requests to servers end, as callers are told.

use std::ops::Range;

use bytes::Bytes;

use super::door::Door;
use crate::domain::operation::{OperationType, Variant};
use crate::domain::refusal::Refusal;
use crate::domain::tool::ResultHead;

/// How a call ended.
#[derive(Debug)]
pub enum CallOutcome {
    /// The upstream's result, raw.
    Result {
        /// The result object, byte for byte.
        raw: Bytes,
        /// What the calls itself read of it.
        head: ResultHead,
        /// A warning for the result's `_meta`.
        warning: Option<String>,
        /// What was cut off it, for its `_meta`: an object, raw.
        truncated: Option<String>,
    },
    /// The upstream's question to the caller, who may ask again with the answer.
    InputRequired {
        /// The result object, byte for byte.
        raw: Bytes,
        /// The part of it that is the upstream's own state, and what the caller gets instead.
        state: Option<Replaced>,
    },
    /// The state that the caller brought back was not given for this request, or not lately. Nothing was run.
    InvalidState,
    /// The upstream's JSON-RPC error object, raw.
    UpstreamError {
        /// The error object.
        raw: Bytes,
        /// Its code.
        code: i64,
    },
    /// Not run, or run without a usable answer: the code's class tells.
    Refused(Refused),
}

/// A refusal with what its `structuredContent` says about the call.
#[derive(Debug)]
pub struct Refused {
    /// Code, text, recommendation.
    pub refusal: Refusal,
    /// The canonical name, as far as one was given.
    pub tool: Option<String>,
    /// The variant that was used; `None` by [`Door::Direct`] while the tool is not known.
    pub variant: Option<Variant>,
    /// What the caller declared.
    pub declared: Option<OperationType>,
    /// Whether it may stand in `structuredContent`: not where clients may hold that against an output schema.
    pub is_structured: bool,
}

impl Refused {
    /// A refusal of a call of which nothing is known yet.
    pub(super) fn before_checks(door: Door, refusal: Refusal) -> Refused {
        let is_structured = door != Door::Direct;
        Refused { refusal, tool: None, variant: door.variant(), declared: None, is_structured }
    }
}

/// Where a server's own state stands, and what the caller gets in its place, raw.
pub type Replaced = (Range<usize>, String);
