//! Link to an upstream: HTTP, or the pipes of a program that this replica runs.

use http::StatusCode;
use tokio::time::Instant;

use super::ask::{Ask, settle};
use super::discover::HELLO_BYTES_MAX;
use super::era::Era;
use super::error::UpstreamError;
use super::http_link::HttpLink;
use super::jsonrpc::Answer;
use super::measures::{OwnRequest, end};
use super::offers::DeclaredOffers;
use super::post::Reply;
use super::sent::Sent;
use super::stdio::Keeper;
use crate::domain::measure::{Measures, Transport};

/// Link to an upstream with a usable address.
pub(super) enum Link {
    /// HTTP to a URL.
    Http(Box<HttpLink>),
    /// Pipes to a program that this replica runs.
    Stdio(Keeper),
}

impl Link {
    /// Sends a request in the upstream's era and reads its answer.
    pub(super) async fn exchange(&self, ask: &Ask<'_>, sent: &Sent) -> Result<Reply, UpstreamError> {
        match self {
            Self::Http(link) => link.exchange(ask, sent).await,
            Self::Stdio(keeper) => {
                let answer = keeper.exchange(ask, sent).await?;
                Ok(Reply { status: StatusCode::OK, session_id: None, answer: Some(answer) })
            }
        }
    }

    /// Sends a request of the gateway's own, and records its duration.
    pub(super) async fn ask(&self, ask: &Ask<'_>, sent: &Sent) -> Result<Answer, UpstreamError> {
        let asked = OwnRequest::begin(self.measures(), ask.method, self.transport(), sent);
        let answer = self.exchange(ask, sent).await.and_then(settle);
        asked.ended(end(&answer));
        answer
    }

    fn measures(&self) -> &Measures {
        match self {
            Self::Http(link) => &link.sessions.measures,
            Self::Stdio(keeper) => keeper.measures(),
        }
    }

    /// Returns the transport that carries messages.
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::Http(_) => Transport::Tcp,
            Self::Stdio(_) => Transport::Pipe,
        }
    }

    /// Returns the request that costs an upstream least in its era.
    pub(super) async fn ping(&self) -> Result<Ask<'static>, UpstreamError> {
        let era = match self {
            Self::Http(link) => link.sessions.get().await?.era,
            Self::Stdio(keeper) => keeper.session().await?.era,
        };
        let method = if era == Era::Modern { "server/discover" } else { "ping" };
        Ok(Ask::plain(method, &[], HELLO_BYTES_MAX))
    }

    /// Returns whether the upstream answers. An HTTP client error other than 429 also counts as an answer.
    pub(super) async fn is_alive(&self) -> Result<bool, UpstreamError> {
        let reply = self.exchange(&self.ping().await?, &Sent::default()).await?;
        Ok(reply.answer.is_some()
            || (reply.status.is_client_error() && reply.status != StatusCode::TOO_MANY_REQUESTS))
    }

    /// Returns the era of the upstream; `None` until it is known.
    pub(super) fn era(&self) -> Option<Era> {
        match self {
            Self::Http(link) => link.sessions.era(),
            Self::Stdio(keeper) => keeper.era(),
        }
    }

    /// Returns what the upstream declared last, however long ago; `None` if that is unknown.
    pub(super) fn last_offers(&self) -> Option<DeclaredOffers> {
        match self {
            Self::Http(link) => link.sessions.current()?.declared.last(),
            Self::Stdio(keeper) => keeper.offers(),
        }
    }

    /// Returns what the upstream declares, if that is known and not stale. Sends no request.
    pub(super) fn known_offers(&self) -> Option<DeclaredOffers> {
        match self {
            Self::Http(link) => link.sessions.current()?.offers(),
            Self::Stdio(keeper) => keeper.offers(),
        }
    }

    /// Returns what the upstream declares, as of `then` or later, if that is known. Sends no request. The upstream
    /// must just have answered a request that was sent later than `then`.
    pub(super) fn known_offers_since(&self, then: Instant) -> Option<DeclaredOffers> {
        match self {
            Self::Http(link) => link.sessions.current()?.offers_since(then),
            Self::Stdio(keeper) => keeper.offers(),
        }
    }

    /// Returns what the upstream declares, as of `then` or later; asks if need be. A program's declaration holds for
    /// as long as it runs.
    pub(super) async fn offers_since(&self, then: Instant) -> Result<DeclaredOffers, UpstreamError> {
        match self {
            // boxed: the future is large and rarely needed
            Self::Http(link) => Box::pin(link.offers_since(then)).await,
            Self::Stdio(keeper) => Ok(keeper.session().await?.offers),
        }
    }

    /// Returns what the upstream declares; asks if that is unknown or stale.
    pub(super) async fn offers(&self) -> Result<DeclaredOffers, UpstreamError> {
        match self {
            Self::Http(link) => link.offers().await,
            Self::Stdio(keeper) => Ok(keeper.session().await?.offers),
        }
    }
}
