//! Outcomes of requests to servers, as the endpoints receive them.

use std::ops::Range;

use bytes::Bytes;
use uuid::Uuid;

use crate::domain::operation::{OperationType, Variant};
use crate::domain::refusal::Refusal;
use crate::domain::tool::ResultHead;

/// Outcome of a call.
#[derive(Debug)]
pub enum CallOutcome {
    /// The upstream's result, raw.
    Result {
        /// The result object, byte for byte.
        raw: Bytes,
        /// Fields of the result that the gateway read.
        head: ResultHead,
        /// A warning for the result's `_meta`.
        warning: Option<String>,
        /// Description of the parts cut off the result, for its `_meta`: a raw JSON object. `None` if nothing was cut.
        truncated: Option<String>,
    },
    /// The upstream's question to the caller, who may repeat the request with the answer.
    InputRequired {
        /// The result object, byte for byte.
        raw: Bytes,
        /// Position of the upstream's own state in `raw`, and its replacement; `None` if the question has no state.
        state: Option<Replaced>,
        /// Consequence of no answer, for callers that are asked while the call is held; `None` until it is known.
        unanswered: Option<Box<Unanswered>>,
    },
    /// The state that the caller returned was not issued for this request, or has expired. Nothing was run.
    InvalidState,
    /// The upstream's JSON-RPC error object, raw.
    UpstreamError {
        /// The error object.
        raw: Bytes,
        /// Error code of the object.
        code: i64,
    },
    /// The call was not run, or gave no usable answer; the class of the code tells which.
    Refused(Refused),
}

/// Consequence of a question that nobody answers.
#[derive(Debug)]
pub struct Unanswered {
    /// Permission request that the question is about; `None` for the question of a server.
    pub consent: Option<Uuid>,
    /// Refusal of the call then.
    pub refused: Refused,
}

/// A refusal, with the facts about the call for its `structuredContent`.
#[derive(Debug)]
pub struct Refused {
    /// Code, text, recommendation.
    pub refusal: Refusal,
    /// Canonical name of the tool; a prompt's name or a URI for other requests. `None` if none was given.
    pub tool: Option<String>,
    /// Variant of the call; `None` by [`super::Door::Direct`] while the tool is not known.
    pub variant: Option<Variant>,
    /// Operation type that the caller declared; `None` if it declared none.
    pub declared: Option<OperationType>,
    /// True if the refusal may be in `structuredContent`; false where clients may check that against an output schema.
    pub is_structured: bool,
}

/// Byte range of a server's own state in a raw result, and the raw JSON that replaces it.
pub type Replaced = (Range<usize>, String);
