//! The way to an upstream: HTTP, or the pipes of a program of our own.

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

/// What a usable address leads to.
pub(super) enum Link {
    /// A URL.
    Http(Box<HttpLink>),
    /// A program that this replica runs.
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

    /// The same for a question of the gateway's own.
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

    /// What carries messages.
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::Http(_) => Transport::Tcp,
            Self::Stdio(_) => Transport::Pipe,
        }
    }

    /// The question that costs an upstream least in its era.
    pub(super) async fn ping(&self) -> Result<Ask<'static>, UpstreamError> {
        let era = match self {
            Self::Http(link) => link.sessions.get().await?.era,
            Self::Stdio(keeper) => keeper.session().await?.era,
        };
        let method = if era == Era::Modern { "server/discover" } else { "ping" };
        Ok(Ask::plain(method, &[], HELLO_BYTES_MAX))
    }

    /// Whether the upstream answers: anything but an error of its server will do.
    pub(super) async fn is_alive(&self) -> Result<bool, UpstreamError> {
        let reply = self.exchange(&self.ping().await?, &Sent::default()).await?;
        Ok(reply.answer.is_some()
            || (reply.status.is_client_error() && reply.status != StatusCode::TOO_MANY_REQUESTS))
    }

    /// The era, once it is known.
    pub(super) fn era(&self) -> Option<Era> {
        match self {
            Self::Http(link) => link.sessions.era(),
            Self::Stdio(keeper) => keeper.era(),
        }
    }

    /// What the upstream declared last, where it was asked.
    pub(super) fn last_offers(&self) -> Option<DeclaredOffers> {
        match self {
            Self::Http(link) => link.sessions.current()?.declared.last(),
            Self::Stdio(keeper) => keeper.offers(),
        }
    }

    /// What the upstream declares, where nobody has to be asked for it.
    pub(super) fn known_offers(&self) -> Option<DeclaredOffers> {
        match self {
            Self::Http(link) => link.sessions.current()?.offers(),
            Self::Stdio(keeper) => keeper.offers(),
        }
    }

    /// What the upstream declares, and did no earlier than `then`, where nobody has to be asked for it. It has just
    /// answered something that was asked later than that.
    pub(super) fn known_offers_since(&self, then: Instant) -> Option<DeclaredOffers> {
        match self {
            Self::Http(link) => link.sessions.current()?.offers_since(then),
            Self::Stdio(keeper) => keeper.offers(),
        }
    }

    /// What the upstream declares, and did no earlier than `then`. A program declares it for as long as it runs.
    pub(super) async fn offers_since(&self, then: Instant) -> Result<DeclaredOffers, UpstreamError> {
        match self {
            // apart: it is large, and seldom asked
            Self::Http(link) => Box::pin(link.offers_since(then)).await,
            Self::Stdio(keeper) => Ok(keeper.session().await?.offers),
        }
    }

    /// What the upstream declares; asked where nobody did, or not for a while.
    pub(super) async fn offers(&self) -> Result<DeclaredOffers, UpstreamError> {
        match self {
            Self::Http(link) => link.offers().await,
            Self::Stdio(keeper) => Ok(keeper.session().await?.offers),
        }
    }
}
