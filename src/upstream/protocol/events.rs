//! Messages of an upstream to the caller of a request before its answer.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::domain::relay::LogLevel;
use crate::domain::rounds::{Capabilities, QuestionKind};

/// Message of an upstream to the caller of a request that is under way.
#[derive(Debug)]
pub enum CallEvent {
    /// Raw `params` of a `notifications/progress`.
    Progress(Bytes),
    /// Raw `params` of a `notifications/message`.
    Log(Bytes),
    /// A question, which the upstream waits to have answered.
    Question(ServerQuestion),
}

/// Question of a handshake upstream in the middle of a request. The upstream has given it up once `reply` is closed.
#[derive(Debug)]
pub struct ServerQuestion {
    /// Kind of the question.
    pub kind: QuestionKind,
    /// Raw `params`, an object; `{}` if the upstream sent none.
    pub params: Bytes,
    /// Recipient of the client's answer. Dropping it refuses the question.
    pub reply: oneshot::Sender<QuestionReply>,
}

/// Answer of a client to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionReply {
    /// Raw `result` of the client, an object.
    Result(Bytes),
    /// A JSON-RPC error.
    Refused {
        /// Code of the error.
        code: i64,
        /// Text of the error.
        message: String,
    },
}

/// JSON-RPC error code for a question that could not be put.
const UNASKED: i64 = -32603;

impl QuestionReply {
    /// Returns the answer to a question that could not be put to the client.
    pub fn unasked(message: &str) -> QuestionReply {
        QuestionReply::Refused { code: UNASKED, message: message.to_owned() }
    }
}

/// Queue of a caller for what an upstream says before its answer, with what the caller wants to hear.
#[derive(Clone, Debug)]
pub struct Hears {
    /// Queue for the messages. Progress and log messages are dropped while it is full.
    pub events: mpsc::Sender<CallEvent>,
    /// True if progress is wanted.
    pub progress: bool,
    /// Lowest level of the wanted log messages; `None` for none.
    pub log: Option<LogLevel>,
    /// Questions that the caller can answer; `None` for none.
    pub questions: Option<Capabilities>,
}

#[cfg(test)]
impl Hears {
    /// Returns the queue of a caller that wants progress and nothing else.
    pub fn progress(events: mpsc::Sender<CallEvent>) -> Hears {
        Hears { events, progress: true, log: None, questions: None }
    }
}
