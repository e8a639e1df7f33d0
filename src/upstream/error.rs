//! What can go wrong between this process and an upstream server.

use std::borrow::Cow;
use std::fmt;

/// Why a request to an upstream did not end with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection: name not found, refused, TLS failed, connect time over.
    Unreachable,
    /// The address is one the deployment does not connect to.
    EgressRefused,
    /// Its credentials cannot be opened.
    Locked,
    /// The queue of this upstream is full, or a turn did not come in time.
    Overloaded,
    /// It failed several times in a row and is left alone; it is tried again in about so many seconds.
    Resting {
        /// Until then, rounded up.
        retry_s: u32,
    },
    /// It is a program, and does not run now; the detail says why, and is for callers too.
    NotRunning {
        /// It may be started again in so many seconds.
        retry_s: Option<u32>,
    },
    /// It is a program, and this replica has no place to run it now; the detail is for callers too.
    NoPlace,
    /// The call carries answers to its questions, which cannot be said in the era that it speaks now.
    NoRounds,
    /// The call itself cannot be put on the wire.
    Unsendable,
    /// The deadline passed.
    Timeout,
    /// The connection ended before the answer did.
    Lost,
    /// The upstream answered with something that is not an answer.
    Invalid,
    /// The answer is larger than the configured bound.
    TooLarge,
    /// There was no memory for the answer: other large ones of the tenant were not handed on in time.
    Crowded,
}

impl FailureKind {
    /// A sentence for a client: names no address and repeats nothing that the upstream sent.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Unreachable => "the upstream server cannot be reached",
            Self::EgressRefused => "the upstream server's address is refused by the egress rules",
            Self::Locked => "the credentials stored for the upstream server cannot be opened",
            Self::NoRounds => "the upstream server does not take answers to its questions any more",
            Self::Overloaded => "the queue of the upstream server is full",
            Self::Resting { .. } => {
                "the upstream server failed several times in a row and is left alone for now"
            }
            Self::NotRunning { .. } => "the upstream server's program is not running",
            Self::NoPlace => "the upstream server's program is not running",
            Self::Unsendable => "the call cannot be sent to the upstream server",
            Self::Timeout => "the upstream server did not answer in time",
            Self::Lost => "the connection to the upstream server was lost",
            Self::Invalid => "the upstream server sent an invalid answer",
            Self::TooLarge => "the upstream server sent an answer that is too large",
            Self::Crowded => "too many large answers are under way at the same time",
        }
    }

    /// Whether the detail stays with the operator: it may name hosts or describe the inner network.
    fn is_private(self) -> bool {
        matches!(self, Self::Unreachable | Self::EgressRefused | Self::Locked)
    }
}

/// A request that did not end with an answer. `Display` is fit for a client.
#[derive(Clone, Debug, thiserror::Error)]
pub struct UpstreamError {
    /// What happened.
    pub kind: FailureKind,
    /// Whether the upstream may have seen the request; false only if it certainly has not.
    pub dispatched: bool,
    /// For the operator. Never holds a credential or bytes of a body; may name the upstream's host.
    pub detail: Cow<'static, str>,
    /// Another request met it, and this one only waited for the same.
    pub is_shared: bool,
}

impl UpstreamError {
    /// Everything that is known, for the operator.
    pub fn whole(&self) -> String {
        match self.kind.is_private() && !self.detail.is_empty() {
            true => format!("{self}: {}", self.detail),
            false => self.to_string(),
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.sentence())?;
        if self.kind.is_private() || self.detail.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.detail)
    }
}

impl UpstreamError {
    /// An error of a request that was certainly not sent.
    pub(super) fn unsent(kind: FailureKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, dispatched: false, detail: detail.into(), is_shared: false }
    }

    /// An error of a request that the upstream may have seen.
    pub(super) fn sent(kind: FailureKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, dispatched: true, detail: detail.into(), is_shared: false }
    }

    /// The deadline passed.
    pub(super) fn timeout(dispatched: bool) -> Self {
        Self { dispatched, ..Self::unsent(FailureKind::Timeout, "") }
    }

    /// An answer that breaks the protocol.
    pub(super) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::sent(FailureKind::Invalid, detail)
    }

    /// The same error, for a later request that this one kept from being sent.
    pub(super) fn before_dispatch(self) -> Self {
        Self { dispatched: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_keeps_hosts_private_and_reasons_public() {
        let refused = UpstreamError::unsent(FailureKind::EgressRefused, "db.internal: private range");
        assert!(!refused.to_string().contains("db.internal"));
        let unreachable = UpstreamError::unsent(FailureKind::Unreachable, "10.0.0.1 refused");
        assert!(!unreachable.to_string().contains("10.0"));
        let status = UpstreamError::invalid("HTTP status 503");
        assert_eq!(status.to_string(), "the upstream server sent an invalid answer: HTTP status 503");
    }
}
