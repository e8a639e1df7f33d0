//! Measures of the requests to upstreams and of the sessions with them.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::domain::end::End;
use crate::domain::measure::{Between, Measures, Transport};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::jsonrpc::Answer;
use crate::upstream::protocol::sent::Sent;

/// Returns how a request of the gateway's own ended, as measures count it.
pub(in crate::upstream) fn end(asked: &Result<Answer, UpstreamError>) -> End {
    match asked {
        Ok(Answer::Result(_)) => End::Well,
        Ok(Answer::Error { code, .. }) => End::asked(*code),
        Err(error) => End::Failed(error.kind.name()),
    }
}

impl FailureKind {
    /// Returns the type of the error, as measures name it.
    pub(in crate::upstream) fn name(self) -> &'static str {
        match self {
            FailureKind::Unreachable => "unreachable",
            FailureKind::EgressRefused => "egress_refused",
            FailureKind::Locked => "locked",
            FailureKind::LoginUnavailable { .. } => "login_unavailable",
            FailureKind::LoginRefused { .. } => "login_refused",
            FailureKind::ExchangeRefused => "exchange_refused",
            FailureKind::LoginNeeded(_) => "login_needed",
            FailureKind::Overloaded => "overloaded",
            FailureKind::Resting { .. } => "resting",
            FailureKind::NotRunning { .. } | FailureKind::NoPlace => "not_running",
            FailureKind::NoRounds
            | FailureKind::Unsendable
            | FailureKind::Changed
            | FailureKind::Unrecorded
            | FailureKind::DraftGone => "unsendable",
            FailureKind::Timeout => "timeout",
            FailureKind::Lost => "lost",
            FailureKind::Invalid => "invalid",
            FailureKind::TooLarge => "too_large",
            FailureKind::Crowded => "crowded",
        }
    }
}

/// Open session; dropping it records how long the session lasted.
pub(in crate::upstream) struct Life {
    measures: Arc<Measures>,
    began: Instant,
    between: Between,
    error: OnceLock<&'static str>,
}

impl Life {
    pub(in crate::upstream) fn begin(measures: &Arc<Measures>, between: Between) -> Life {
        Life { measures: Arc::clone(measures), began: Instant::now(), between, error: OnceLock::new() }
    }

    /// Records the error that ended the session: the other side does not know it any more, or is gone. The first one
    /// stays.
    pub(in crate::upstream) fn broke(&self, error: &'static str) {
        self.error.get_or_init(|| error);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.measures.sessions.observe((self.between, self.error.get().copied()), self.began.elapsed());
    }
}

/// Request of the gateway's own; dropping it records its duration. Without an end it counts as timed out.
pub(in crate::upstream) struct OwnRequest<'a> {
    measures: &'a Measures,
    method: &'static str,
    transport: Transport,
    /// Progress of the request, with the protocol revision in which it was sent.
    sent: &'a Sent,
    began: Instant,
    end: Option<End>,
}

impl<'a> OwnRequest<'a> {
    pub(in crate::upstream) fn begin(
        measures: &'a Measures,
        method: &'static str,
        transport: Transport,
        sent: &'a Sent,
    ) -> Self {
        Self { measures, method, transport, sent, began: Instant::now(), end: None }
    }

    pub(in crate::upstream) fn ended(mut self, end: End) {
        self.end = Some(end);
    }
}

impl Drop for OwnRequest<'_> {
    fn drop(&mut self) {
        let end = self.end.unwrap_or(End::Failed(FailureKind::Timeout.name()));
        let version = self.sent.sent_as().map(|(_, version)| version);
        let between = Between { transport: self.transport, version };
        self.measures.ended((self.method, None), between, self.began.elapsed(), end.labels());
    }
}
