//! Messages of an upstream to the caller of a request before its answer.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::domain::provenance::{LedgerPage, LedgerStep};
use crate::domain::relay::LogLevel;
use crate::domain::rounds::{Capabilities, QuestionKind};
use crate::domain::web_page::cookies::{CookieChanges, CookieJar};
use crate::domain::web_page::facts::PageFacts;

/// Message of an upstream to the caller of a request that is under way.
#[derive(Debug)]
pub enum CallEvent {
    /// Raw `params` of a `notifications/progress`.
    Progress(Bytes),
    /// Raw `params` of a `notifications/message`.
    Log(Bytes),
    /// Raw `params` of a `notifications/elicitation/complete`, about a page that the caller was asked to open.
    PageDone(Bytes),
    /// A question, which the upstream waits to have answered.
    Question(ServerQuestion),
    /// A question that the caller could be asked, but that `relay` of the server keeps back: for the record alone. The upstream
    /// gets [`QuestionReply::unsupported`].
    KeptBack {
        /// Kind of the question.
        kind: QuestionKind,
        /// Raw `params`, as of [`ServerQuestion`].
        params: Bytes,
    },
}

/// Request to commit the ledger of a call. The form is not sent unless `reply` gets its answer.
#[derive(Debug)]
pub struct LedgerAsk {
    /// Page with the form, as it was fetched for the call.
    pub page: LedgerPage,
    /// Steps of the call, with its submission as the last one.
    pub steps: Vec<LedgerStep>,
    /// Recipient of the answer. Dropping it says that nothing may be sent.
    pub reply: oneshot::Sender<LedgerReply>,
}

/// Answer to the request to commit a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerReply {
    /// The ledger is committed: the form may be sent.
    Committed,
    /// The draft that the call would send was changed or sent by another one: nothing may be sent.
    DraftGone,
}

/// Approved form that a call fills in, and the writer of its ledger.
#[derive(Clone, Debug)]
pub struct PageCall {
    /// Facts of the approved definition.
    pub facts: Arc<PageFacts>,
    /// Values for its fields, a JSON object.
    pub values: Bytes,
    /// Writer of the ledger.
    pub ledger: mpsc::Sender<LedgerAsk>,
    /// Cookies that the caller keeps at the server; `None` if they end with the call.
    pub cookies: Option<Arc<CallCookies>>,
}

/// Cookies that a caller keeps at a server, as a call finds and leaves them.
#[derive(Debug)]
pub struct CallCookies {
    before: CookieJar,
    changes: Mutex<CookieChanges>,
}

impl CallCookies {
    /// Creates the cookies of a call that begins with these.
    pub fn new(before: CookieJar) -> CallCookies {
        CallCookies { changes: Mutex::default(), before }
    }

    /// Returns the cookies with which the call begins.
    pub fn before(&self) -> &CookieJar {
        &self.before
    }

    /// Returns what the call has changed so far.
    pub fn changes(&self) -> CookieChanges {
        self.changes.lock().clone()
    }

    /// Notes all changes that there are now.
    pub(in crate::upstream) fn note(&self, changes: CookieChanges) {
        *self.changes.lock() = changes;
    }
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
/// JSON-RPC error code for a question that nobody is to be asked.
const UNSUPPORTED: i64 = -32601;

impl QuestionReply {
    /// Returns the answer to a question that could not be put to the client.
    pub fn unasked(message: &str) -> QuestionReply {
        QuestionReply::Refused { code: UNASKED, message: message.to_owned() }
    }

    /// Returns the answer to a question that nobody is to be asked.
    pub fn unsupported() -> QuestionReply {
        QuestionReply::Refused { code: UNSUPPORTED, message: "Method not found".to_owned() }
    }
}

/// Caller of a request: what an upstream says to one of them never reaches another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerMark {
    /// API key of the caller; `None` if there is none.
    pub key: Option<Uuid>,
    /// Handshake session of the caller; `None` without one. All callers of a key without a session count as one.
    pub session: Option<Uuid>,
}

/// Token of a person for which a request is sent, where tokens at the server are given in exchange for those of people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExchangeFor {
    /// Any that the person came with: the request is nobody's call.
    #[default]
    Newest,
    /// None: the caller came without one.
    Nobody,
    /// The token of this mark.
    Token(Uuid),
}

/// Queue of a caller for what an upstream says before its answer, with what the caller wants to hear.
#[derive(Clone, Debug)]
pub struct Hears {
    /// Queue for the messages. All but questions are dropped while it is full.
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
