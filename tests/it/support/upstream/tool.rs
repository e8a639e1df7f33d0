//! Tools and what calling them does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::talk::Talk;

/// What a call is answered with.
#[derive(Clone, Debug)]
pub enum Say {
    /// This raw result.
    Result(String),
    /// A text that holds the arguments as they came.
    Echo,
    /// A text that holds the request's headers.
    Headers,
    /// This raw JSON-RPC error.
    RpcError(String),
    /// This HTTP status and body.
    Http(u16, String),
    /// A redirect to this address.
    Redirect(String),
    /// The end of the connection.
    Close,
    /// A result with a text of this many bytes.
    Large(usize),
    /// So many progress notifications, then a result, all at once as one stream.
    Progress(usize),
    /// One progress notification, and a result when the gate opens.
    ProgressThen(watch::Receiver<bool>),
    /// So many progress notifications of about so many bytes, then this raw result, line breaks and all; without
    /// one, nothing more, ever.
    Chatter(usize, usize, Option<String>),
    /// By the raw `requestState` that comes back, "" for none.
    Rounds(Vec<(String, Say)>),
    /// A question to the client, with this method and raw `params`, and a text with the reply as it came; only in the
    /// handshake era.
    Asks(&'static str, &'static str),
    /// Several questions to the client, and a text with the replies; only in the handshake era.
    Talks(Talk),
    /// A form with these raw `params`, taken back when the gate opens, and nothing more, ever; only in the handshake era.
    Retracts(&'static str, watch::Receiver<bool>),
    /// A page to open, by the raw `params` of the question. After the reply each of these raw `params` says that a page is
    /// done, and a text holds the reply.
    Opens(&'static str, Vec<&'static str>),
    /// Log messages, each as raw `params`, and an empty result.
    Logs(Vec<&'static str>),
    /// Nothing, ever.
    Hang,
    /// Waits, then answers.
    Delay(Duration, Box<Say>),
    /// Waits until the gate is open, then answers.
    Gate(watch::Receiver<bool>, Box<Say>),
}

/// A tool with its definition as raw JSON.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub definition: Arc<str>,
    pub say: Say,
}

impl Tool {
    /// A tool without annotations that echoes.
    pub fn new(name: &str) -> Tool {
        Tool::annotated(name, "")
    }

    /// A tool with these raw annotations, if any, that echoes.
    pub fn annotated(name: &str, annotations: &str) -> Tool {
        let annotations = match annotations {
            "" => String::new(),
            some => format!(r#","annotations":{some}"#),
        };
        let definition = format!(
            r#"{{"name":"{name}","description":"The tool {name} of the test server","inputSchema":{{"type":"object"}}{annotations}}}"#
        );
        Tool::raw(name, &definition)
    }

    /// A tool with this raw definition that echoes.
    pub fn raw(name: &str, definition: &str) -> Tool {
        Tool { name: name.to_owned(), definition: definition.into(), say: Say::Echo }
    }

    /// Reads only.
    pub fn reads(name: &str) -> Tool {
        Tool::annotated(name, r#"{"readOnlyHint":true}"#)
    }

    /// Changes something, destroys nothing.
    pub fn writes(name: &str) -> Tool {
        Tool::annotated(name, r#"{"readOnlyHint":false,"destructiveHint":false}"#)
    }

    /// Destroys.
    pub fn destroys(name: &str) -> Tool {
        Tool::annotated(name, r#"{"destructiveHint":true}"#)
    }

    /// The same, answering like this.
    pub fn says(self, say: Say) -> Tool {
        Tool { say, ..self }
    }

    /// The same, answering with this raw result.
    pub fn returns(self, result: &str) -> Tool {
        self.says(Say::Result(result.to_owned()))
    }
}

/// One tool of every row of the tier table.
pub fn zoo() -> Vec<Tool> {
    vec![
        Tool::reads("reader"),
        Tool::writes("writer"),
        Tool::destroys("wiper"),
        Tool::annotated("half", r#"{"readOnlyHint":false}"#),
        Tool::annotated("mild", r#"{"destructiveHint":false}"#),
        Tool::new("plain"),
    ]
}
