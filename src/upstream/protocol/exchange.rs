//! Exchange of a request for a reply, whatever carries it. Each kind of upstream implements [`UpstreamExchange`] once.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use crate::domain::era::Era;
use crate::domain::measure::{Measures, Transport};
use crate::upstream::admission::health::HealthVerdict;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::ask::Ask;
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::hello::HELLO_BYTES_MAX;
use crate::upstream::protocol::jsonrpc::Answer;
use crate::upstream::protocol::measures::{OwnRequest, end};
use crate::upstream::protocol::offers::DeclaredOffers;
use crate::upstream::protocol::sent::Sent;

/// Work of an exchange. Dropping it gives the work up.
pub(in crate::upstream) type UpstreamWork<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reply of an upstream to a request.
pub(in crate::upstream) enum Exchanged {
    /// The answer.
    Answer(Answer),
    /// Something else, by which the upstream did not process the request.
    NoAnswer(NoAnswer),
}

/// Reply that is no answer.
pub(in crate::upstream) struct NoAnswer {
    /// The reply, for people: for example its status.
    pub(in crate::upstream) says: String,
    /// True if the upstream works all the same.
    pub(in crate::upstream) is_alive: bool,
    /// True if the reply is about the request alone: a caller that repeats bad requests must not cut off others.
    pub(in crate::upstream) is_about_the_request: bool,
}

impl Exchanged {
    /// Returns the answer. A reply without one is an error that names the reply.
    pub(in crate::upstream) fn settle(self) -> Result<Answer, UpstreamError> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::NoAnswer(reply) => Err(UpstreamError::invalid(reply.says)),
        }
    }
}

/// Login that calls wait for before they count as sent.
pub(in crate::upstream) trait LoginGate: Send + Sync {
    /// Returns whether a token is at hand.
    fn is_open(&self, of: ExchangeFor) -> bool;

    /// Waits for a token.
    fn opened(&self, of: ExchangeFor) -> UpstreamWork<'_, Result<(), UpstreamError>>;
}

/// Way to one upstream with a usable address.
pub(in crate::upstream) trait UpstreamExchange: Any + Send + Sync {
    /// Sends a request in the upstream's era and reads the reply.
    fn exchange<'a>(
        &'a self,
        ask: &'a Ask<'_>,
        sent: &'a Sent,
    ) -> UpstreamWork<'a, Result<Exchanged, UpstreamError>>;

    /// Returns the measures of the requests to upstreams.
    fn measures(&self) -> &Measures;

    /// Returns the transport that carries messages.
    fn transport(&self) -> Transport;

    /// Returns the era of the upstream; `None` until it is known.
    fn era(&self) -> Option<Era>;

    /// Returns the era of the upstream; opens its session if need be.
    fn found_era(&self) -> UpstreamWork<'_, Result<Era, UpstreamError>>;

    /// Returns what the upstream declared last, however long ago; `None` if that is unknown.
    fn last_offers(&self) -> Option<DeclaredOffers>;

    /// Returns what the upstream declares, if that is known and not stale. Sends no request.
    fn known_offers(&self) -> Option<DeclaredOffers>;

    /// Returns what the upstream declares, as of `then` or later, if that is known. Sends no request. The upstream
    /// must just have answered a request that was sent later than `then`.
    fn known_offers_since(&self, then: Instant) -> Option<DeclaredOffers>;

    /// Returns what the upstream declares, as of `then` or later; asks if need be.
    fn offers_since(&self, then: Instant) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>>;

    /// Returns what the upstream declares; asks if that is unknown or stale.
    fn offers(&self) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>>;

    /// Returns the login whose token goes with each request; `None` for none.
    fn login(&self) -> Option<&dyn LoginGate> {
        None
    }

    /// Returns whether the upstream runs on this replica.
    fn is_run_here(&self) -> bool {
        false
    }

    /// Returns whether the upstream was ended here for lack of calls, or is being ended for it.
    fn is_asleep(&self) -> bool {
        false
    }

    /// Returns what the last listing found on web pages, a JSON text; `None` before it, and for other upstreams.
    fn page_report(&self) -> Option<Arc<str>> {
        None
    }

    /// Ends a backoff of the upstream's own.
    fn end_rest(&self) {}

    /// Ends the upstream; the next request starts it again. `None` if it runs elsewhere.
    fn restart(&self) -> Option<UpstreamWork<'_, ()>> {
        None
    }
}

impl dyn UpstreamExchange {
    /// Sends a request of the gateway's own, and records its duration.
    pub(in crate::upstream) async fn ask(&self, ask: &Ask<'_>, sent: &Sent) -> Result<Answer, UpstreamError> {
        let asked = OwnRequest::begin(self.measures(), ask.method, self.transport(), sent);
        let answer = self.exchange(ask, sent).await.and_then(Exchanged::settle);
        asked.ended(end(&answer));
        answer
    }

    /// Returns the request that costs an upstream least in its era.
    pub(in crate::upstream) async fn ping(&self) -> Result<Ask<'static>, UpstreamError> {
        let method = if self.found_era().await? == Era::Modern { "server/discover" } else { "ping" };
        Ok(Ask::plain(method, &[], HELLO_BYTES_MAX))
    }

    /// Returns whether the upstream answers, be it with some refusals.
    pub(in crate::upstream) async fn is_alive(&self) -> Result<bool, UpstreamError> {
        Ok(match self.exchange(&self.ping().await?, &Sent::default()).await? {
            Exchanged::Answer(_) => true,
            Exchanged::NoAnswer(reply) => reply.is_alive,
        })
    }
}

/// Returns what the end of an exchange means for the health of its upstream.
pub(in crate::upstream) fn verdict(ended: &Result<Exchanged, UpstreamError>) -> HealthVerdict {
    match ended {
        Ok(Exchanged::Answer(_)) => HealthVerdict::Answered,
        Ok(Exchanged::NoAnswer(reply)) if reply.is_about_the_request => HealthVerdict::Nothing,
        Ok(Exchanged::NoAnswer(_)) => HealthVerdict::Failed,
        // the request that met the failure has recorded it
        Err(error) if error.is_shared => HealthVerdict::Nothing,
        Err(error) => match error.kind {
            FailureKind::Unreachable
            | FailureKind::EgressRefused
            | FailureKind::Timeout
            | FailureKind::Lost
            | FailureKind::Invalid => HealthVerdict::Failed,
            FailureKind::TooLarge
            | FailureKind::Crowded
            | FailureKind::Overloaded
            | FailureKind::Resting { .. }
            // programs have their own backoff, and their end is recorded there
            | FailureKind::NotRunning { .. }
            | FailureKind::NoPlace
            | FailureKind::NoRounds
            | FailureKind::Unsendable
            | FailureKind::Changed
            | FailureKind::Unrecorded
            | FailureKind::DraftGone
            | FailureKind::Locked
            // logins have their own backoff
            | FailureKind::LoginUnavailable { .. }
            | FailureKind::LoginRefused { .. }
            | FailureKind::ExchangeRefused
            | FailureKind::LoginNeeded(_) => HealthVerdict::Nothing,
        },
    }
}
