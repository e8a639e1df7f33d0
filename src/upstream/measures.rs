//! How long upstreams take, and how long sessions with them last.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::error::{Kind, UpstreamError};
use super::jsonrpc::{Answer, error_code};
use crate::domain::ended::Ended;
use crate::domain::measure::{Between, Measures, Transport};

/// How a request of the gateway's own ended.
pub(super) fn ended(asked: &Result<Answer, UpstreamError>) -> Ended {
    match asked {
        Ok(Answer::Result(_)) => Ended::Well,
        Ok(Answer::Error(raw)) => Ended::asked(error_code(raw).unwrap_or_default()),
        Err(error) => Ended::Failed(error.kind.name()),
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

/// A request of the gateway's own. Dropped before its end, it was not answered in time.
pub(super) struct OwnRequest<'a> {
    measures: &'a Measures,
    method: &'static str,
    began: Instant,
    /// What is known of the other side, and how it ended.
    found: Option<(Between, Ended)>,
    transport: Transport,
}

impl<'a> OwnRequest<'a> {
    pub(super) fn begin(measures: &'a Measures, method: &'static str, transport: Transport) -> Self {
        Self { measures, method, began: Instant::now(), found: None, transport }
    }

    pub(super) fn ended(mut self, version: Option<&'static str>, ended: Ended) {
        self.found = Some((Between { transport: self.transport, version }, ended));
    }
}

impl Drop for OwnRequest<'_> {
    fn drop(&mut self) {
        let unanswered = || {
            let between = Between { transport: self.transport, version: None };
            (between, Ended::Failed(Kind::Timeout.name()))
        };
        let (between, ended) = self.found.unwrap_or_else(unanswered);
        self.measures.ended((self.method, None), between, self.began.elapsed(), ended);
    }
}
