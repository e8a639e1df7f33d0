//! Lines to clients, on which they are told and asked something before the answer to their call.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::domain::relay::LogLevel;

/// Line to the client of a call, on which it is told and asked something before the answer.
#[derive(Clone, Debug)]
pub struct ClientLine {
    /// Queue for the messages. What need not arrive is dropped while it is full.
    pub events: mpsc::Sender<ToClient>,
    /// True if the client wants progress.
    pub progress: bool,
    /// Lowest level of the wanted log messages; `None` for none.
    pub log: Option<LogLevel>,
}

/// Message to a client before the answer to its call.
#[derive(Debug)]
pub enum ToClient {
    /// Raw `params` of a progress notification.
    Progress(Bytes),
    /// Raw `params` of a log message.
    Log(Bytes),
    /// Raw `params` of the notification that a page is done.
    PageDone(Bytes),
    /// Question, to which the client replies.
    Ask(ClientQuestion),
    /// The question with this raw id needs no reply any more.
    Withdraw(String),
    /// The call waits for somebody.
    Waiting,
}

/// Question to a client.
#[derive(Debug)]
pub struct ClientQuestion {
    /// Raw id that the reply must have.
    pub id: String,
    /// Method of the request.
    pub method: String,
    /// Raw `params`, an object.
    pub params: Bytes,
}
