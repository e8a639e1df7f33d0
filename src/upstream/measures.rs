//! How long upstreams take, and how long sessions with them last.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::error::{Kind, UpstreamError};
use super::jsonrpc::{Answer, error_code};
use super::post::Reply;
use crate::domain::measure::{Between, Operation, Series, TOOL_ERROR, Transport, code_name};

/// Requests to all upstreams, and sessions with them.
#[derive(Debug)]
pub struct Measures {
    /// What was asked.
    pub operations: Series<Operation>,
    /// Sessions that have ended, and the kind of error that they ended in.
    pub sessions: Series<(Between, Option<&'static str>)>,
}

impl Default for Measures {
    fn default() -> Measures {
        Measures { operations: Series::of_operations(), sessions: Series::of_operations() }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The kind of error, if it is one. To who asks, every error of JSON-RPC is one.
    pub error: Option<&'static str>,
    /// The JSON-RPC code.
    pub code: Option<&'static str>,
}

impl Ending {
    /// With a result, of which a tool may say that it is an error.
    pub fn result(is_error: bool) -> Ending {
        Ending { error: is_error.then_some(TOOL_ERROR), code: None }
    }

    /// With a JSON-RPC error, raw.
    pub fn error(raw: &[u8]) -> Ending {
        let code = code_name(error_code(raw).unwrap_or_default());
        Ending { error: Some(code), code: Some(code) }
    }

    /// Without an answer.
    pub fn failed(error: &'static str) -> Ending {
        Ending { error: Some(error), code: None }
    }

    /// The same, or, where that looks well and what was answered is of no use, with this.
    pub(super) fn or_failed(self, error: &UpstreamError) -> Ending {
        Ending { error: self.error.or(Some(error.kind.name())), ..self }
    }

    /// That of a request of the gateway's own.
    pub(super) fn of(ended: &Result<Answer, UpstreamError>) -> Ending {
        match ended {
            Ok(Answer::Result(_)) => Ending::result(false),
            Ok(Answer::Error(raw)) => Ending::error(raw),
            Err(error) => Ending::failed(error.kind.name()),
        }
    }

    /// The same of an answer over HTTP, which may be an error there.
    pub(super) fn of_reply(ended: &Result<Reply, UpstreamError>) -> Ending {
        match ended {
            Ok(Reply { answer: Some(Answer::Error(raw)), .. }) => Ending::error(raw),
            Ok(Reply { answer: Some(Answer::Result(_)), .. }) => Ending::result(false),
            Ok(Reply { answer: None, .. }) => Ending::failed(Kind::Invalid.name()),
            Err(error) => Ending::failed(error.kind.name()),
        }
    }
}

impl Measures {
    /// A request has ended.
    pub fn asked(&self, method: &'static str, between: Between, took: Duration, ending: Ending) {
        let Ending { error, code } = ending;
        self.operations.observe(Operation { method, tool: None, error, code, between }, took);
    }
}

impl Kind {
    /// The type of the error, for those who count.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Unreachable => "unreachable",
            Kind::EgressRefused => "egress_refused",
            Kind::Locked => "locked",
            Kind::Overloaded => "overloaded",
            Kind::Resting { .. } => "resting",
            Kind::NotRunning { .. } | Kind::NoPlace => "not_running",
            Kind::NoRounds | Kind::Unsendable => "unsendable",
            Kind::Timeout => "timeout",
            Kind::Lost => "lost",
            Kind::Invalid => "invalid",
            Kind::TooLarge => "too_large",
            Kind::Crowded => "crowded",
        }
    }
}

/// A session that lasts until this is dropped.
pub(super) struct Life {
    measures: Arc<Measures>,
    began: Instant,
    between: Between,
    error: OnceLock<&'static str>,
}

impl Life {
    pub(super) fn begin(measures: &Arc<Measures>, between: Between) -> Life {
        Life { measures: Arc::clone(measures), began: Instant::now(), between, error: OnceLock::new() }
    }

    /// The other side does not know it any more, or is gone.
    pub(super) fn broke(&self, error: &'static str) {
        self.error.get_or_init(|| error);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.measures.sessions.observe((self.between, self.error.get().copied()), self.began.elapsed());
    }
}

/// How long a request took, from its turn on; nothing while that has not come.
#[derive(Clone, Debug, Default)]
pub struct Took(Arc<Times>);

#[derive(Debug, Default)]
struct Times {
    turn: OnceLock<(Instant, Between)>,
    took: OnceLock<(Duration, Between)>,
}

impl Took {
    /// It is its turn.
    pub(super) fn begins(&self, between: Between) {
        self.0.turn.get_or_init(|| (Instant::now(), between));
    }

    /// There is an answer, or it is known that there is none.
    pub(super) fn set(&self, took: Duration, between: Between) {
        self.0.took.get_or_init(|| (took, between));
    }

    /// So long, and between whom; of one that was given up meanwhile, until now.
    pub fn get(&self) -> Option<(Duration, Between)> {
        let given_up = || self.0.turn.get().map(|(began, between)| (began.elapsed(), *between));
        self.0.took.get().copied().or_else(given_up)
    }
}

/// A request of the gateway's own. Dropped before its end, it was not answered in time.
pub(super) struct OwnRequest<'a> {
    measures: &'a Measures,
    method: &'static str,
    began: Instant,
    /// What is known of the other side, and how it ended.
    found: Option<(Between, Ending)>,
    transport: Transport,
}

impl<'a> OwnRequest<'a> {
    pub(super) fn begin(measures: &'a Measures, method: &'static str, transport: Transport) -> Self {
        Self { measures, method, began: Instant::now(), found: None, transport }
    }

    pub(super) fn ended(mut self, version: Option<&'static str>, ending: Ending) {
        self.found = Some((Between { transport: self.transport, version }, ending));
    }
}

impl Drop for OwnRequest<'_> {
    fn drop(&mut self) {
        let unanswered = || {
            let between = Between { transport: self.transport, version: None };
            (between, Ending::failed(Kind::Timeout.name()))
        };
        let (between, ending) = self.found.unwrap_or_else(unanswered);
        self.measures.asked(self.method, between, self.began.elapsed(), ending);
    }
}
