//! Failures between this process and an upstream server.

use std::borrow::Cow;
use std::fmt;

use crate::domain::server_login::LoginNeed;

/// Beginning of the failure of a server that refuses requests for want of credentials, as a sentence for callers.
pub const WANTS_CREDENTIALS: &str = "it wants credentials or a login";

/// Reason why a request to an upstream ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection: name not found, refused, TLS failed, connect time over.
    Unreachable,
    /// The egress rules refuse the server's address.
    EgressRefused,
    /// The server's stored credentials cannot be opened.
    Locked,
    /// The token endpoint of the server gives no token now.
    LoginUnavailable {
        /// Seconds until it is asked again, rounded up.
        retry_s: u32,
    },
    /// The token endpoint, or the server, refuses the gateway's credentials.
    LoginRefused {
        /// Number of the token that the server itself refused; `None` if there was none.
        generation: Option<i64>,
    },
    /// The token endpoint of the server gives no token in exchange for that of the caller.
    ExchangeRefused,
    /// A person has to log in at the server first. The detail has the scopes that it asks for, if any.
    LoginNeeded(LoginNeed),
    /// The queue of the upstream is full, or the wait in it took too long.
    Overloaded,
    /// The circuit breaker of the upstream is open after several failures in a row.
    Resting {
        /// Seconds until the next try, rounded up.
        retry_s: u32,
    },
    /// The upstream's program does not run now. The detail says why, and is for callers too.
    NotRunning {
        /// Seconds until the program may be started again; `None` if no time is known.
        retry_s: Option<u32>,
    },
    /// This replica has no slot for the upstream's program now. The detail is for callers too.
    NoPlace,
    /// The request carries answers to the upstream's questions, which its current era cannot express.
    NoRounds,
    /// The form of the page is not the one that was approved. The detail says what differs, and is for callers too.
    Changed,
    /// The ledger of the call could not be written.
    Unrecorded,
    /// The draft that the call would send was changed or sent by another one.
    DraftGone,
    /// The request cannot be put on the wire.
    Unsendable,
    /// The deadline passed.
    Timeout,
    /// The connection ended before the answer did.
    Lost,
    /// The upstream answered with something that is not an answer.
    Invalid,
    /// The answer is larger than the configured bound.
    TooLarge,
    /// No memory for the answer became free in time: other large answers hold the shares that it would take.
    Crowded,
}

impl FailureKind {
    /// Returns a sentence for a client. It names no address and repeats nothing that the upstream sent.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Unreachable => "the upstream server cannot be reached",
            Self::EgressRefused => "the upstream server's address is refused by the egress rules",
            Self::Locked => "the credentials stored for the upstream server cannot be opened",
            Self::LoginUnavailable { .. } => "the login service of the upstream server gives no token",
            Self::LoginRefused { .. } => "the upstream server refuses the gateway's own credentials",
            Self::ExchangeRefused => {
                "the identity provider gives this account no token for the upstream server"
            }
            Self::LoginNeeded(_) => "the upstream server needs a person's login",
            Self::NoRounds => "the upstream server does not take answers to its questions any more",
            Self::Overloaded => "the queue of the upstream server is full",
            Self::Resting { .. } => {
                "the upstream server failed several times in a row and is left alone for now"
            }
            Self::NotRunning { .. } => "the upstream server's program is not running",
            Self::NoPlace => "the upstream server's program is not running",
            Self::Changed => "the form of the page is not the one that was approved",
            Self::Unrecorded => "the ledger of the call could not be written",
            Self::DraftGone => "the draft was changed or sent by another call",
            Self::Unsendable => "the call cannot be sent to the upstream server",
            Self::Timeout => "the upstream server did not answer in time",
            Self::Lost => "the connection to the upstream server was lost",
            Self::Invalid => "the upstream server sent an invalid answer",
            Self::TooLarge => "the upstream server sent an answer that is too large",
            Self::Crowded => "too many large answers are under way at the same time",
        }
    }

    /// Returns whether the detail stays with the operator: it may name hosts or describe the inner network.
    fn is_private(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::EgressRefused
                | Self::Locked
                | Self::LoginUnavailable { .. }
                | Self::LoginRefused { .. }
                | Self::ExchangeRefused
                | Self::LoginNeeded(_)
        )
    }

    /// Returns whether the gateway could not log in at the server.
    pub fn is_of_login(self) -> bool {
        matches!(
            self,
            Self::LoginUnavailable { .. }
                | Self::LoginRefused { .. }
                | Self::ExchangeRefused
                | Self::LoginNeeded(_)
        )
    }
}

/// Error of a request that ended without an answer. `Display` is fit for a client.
#[derive(Clone, Debug, thiserror::Error)]
pub struct UpstreamError {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Whether the upstream may have seen the request; false only if it certainly has not.
    pub dispatched: bool,
    /// Detail for the operator; may be empty. Never holds a credential or bytes of a body; may name the upstream's
    /// host.
    pub detail: Cow<'static, str>,
    /// Whether another request met this failure, and this one only waited for the same outcome.
    pub is_shared: bool,
    /// Text for whoever looks after the server alone, besides the detail: what to do, or what its program wrote last. Holds
    /// no secrets; `None` for none.
    pub aside: Option<Box<str>>,
}

impl UpstreamError {
    /// Returns the whole text for the operator, private detail and the aside included.
    pub fn whole(&self) -> String {
        let mut text = self.to_string();
        if self.kind.is_private() && !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        if let Some(aside) = &self.aside {
            text.push_str(&format!("; {aside}"));
        }
        text
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
    /// Creates the error of a request that was certainly not sent.
    pub(super) fn unsent(kind: FailureKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, dispatched: false, detail: detail.into(), is_shared: false, aside: None }
    }

    /// Creates the error of a request that the upstream may have seen.
    pub(super) fn sent(kind: FailureKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, dispatched: true, detail: detail.into(), is_shared: false, aside: None }
    }

    /// Creates the error of a request whose deadline passed.
    pub(super) fn timeout(dispatched: bool) -> Self {
        Self { dispatched, ..Self::unsent(FailureKind::Timeout, "") }
    }

    /// Creates the error of an answer that breaks the protocol.
    pub(super) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::sent(FailureKind::Invalid, detail)
    }

    /// Adds a text for whoever looks after the server.
    pub(super) fn with_aside(self, text: impl Into<Box<str>>) -> Self {
        Self { aside: Some(text.into()), ..self }
    }

    /// Returns the error for a request that was not sent because of it.
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
