//! Lists what an upstream offers, each definition as the bytes that were sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::Instant;

use crate::upstream::connection::Connection;
use crate::upstream::connection::turns::Slowness;
use crate::upstream::error::UpstreamError;
use crate::upstream::protocol::ask::{Ask, refused};
use crate::upstream::protocol::jsonrpc::{Answer, METHOD_NOT_FOUND};
use crate::upstream::protocol::list_kind::ListKind;
use crate::upstream::protocol::page::{Listing, Reading, too_large};
use crate::upstream::protocol::sent::Sent;

/// Most pages of one list.
pub const PAGES_MAX: usize = 1000;
/// Age up to which a known declaration decides about a refused list, where no [`Doubt`] requires a newer one.
/// Otherwise a server that declares lists it does not have would be asked for its declaration at every listing.
const REFUSED_WORD_AGE_MAX: Duration = Duration::from_secs(60);

/// Kinds of which only a recent declaration may say that the server has none: entries of them are stored, or somebody
/// asked. An older declaration may be of another server at the same address.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// Kinds in doubt.
    pub kinds: Vec<ListKind>,
    /// Earliest time as of which a declaration counts.
    pub since: Instant,
}

impl Doubt {
    fn of(&self, kind: ListKind) -> Option<Instant> {
        self.kinds.contains(&kind).then_some(self.since)
    }
}

/// Kind of a list, and the list or the error that kept it from being read.
pub type Listed = (ListKind, Result<Listing, UpstreamError>);

impl Connection {
    /// Lists what the upstream offers of one kind, all pages, past the queue of calls. A kind that it does not
    /// declare is empty without a request; tools are always asked for.
    ///
    ///
    /// # Errors
    /// Any [`FailureKind`](crate::upstream::FailureKind). A list that is not complete is an error, never a shorter list.
    pub async fn list(&self, kind: ListKind) -> Result<Listing, UpstreamError> {
        self.list_within(kind, self.limits.listing_timeout, None).await
    }

    /// Lists these kinds, none of them tools. Together they may take as long as one listing, and each gets an equal
    /// part of the time left. A failure of one says nothing about the others.
    pub async fn list_others(&self, kinds: &[ListKind], doubt: &Doubt) -> Vec<Listed> {
        let until = Instant::now() + self.limits.listing_timeout;
        let mut listed = Vec::with_capacity(kinds.len());
        for (left, kind) in (1..=kinds.len()).rev().zip(kinds) {
            let part = until.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            listed.push((*kind, self.list_within(*kind, part, doubt.of(*kind)).await));
        }
        listed
    }

    /// Returns whether the upstream, which has just listed its tools, is known to have nothing else.
    pub fn has_tools_alone(&self, doubt: &Doubt) -> bool {
        let Ok(link) = &self.link else { return false };
        let known = |kind| match doubt.of(kind) {
            Some(since) => link.known_offers_since(since),
            None => link.known_offers(),
        };
        ListKind::OTHERS.into_iter().all(|kind| known(kind).is_some_and(|offers| !offers.has(kind)))
    }

    /// Waits for the lock under which the tools of this server are read and stored, so that an older listing never
    /// overwrites a newer one. It is held for as long as a listing and the database take.
    pub async fn turn_of_tools(&self) -> MutexGuard<'_, ()> {
        self.turns.tools.lock().await
    }

    /// Waits for the lock under which all lists but tools are read and stored. It holds their backoff.
    pub async fn turn_of_others(&self) -> MutexGuard<'_, Slowness> {
        self.turns.others.lock().await
    }

    async fn list_within(
        &self,
        kind: ListKind,
        limit: Duration,
        doubted: Option<Instant>,
    ) -> Result<Listing, UpstreamError> {
        let lane = if kind == ListKind::Tools { &self.asides.first } else { &self.asides.others };
        let listed = self.aside(lane, limit, |sent| self.read_list(kind, doubted, sent)).await;
        // a server may be slow at its other lists and quick at calls
        if kind == ListKind::Tools {
            self.health.listed(&listed);
        }
        listed
    }

    async fn read_list(
        &self,
        kind: ListKind,
        doubted: Option<Instant>,
        sent: Arc<Sent>,
    ) -> Result<Listing, UpstreamError> {
        if kind != ListKind::Tools && !self.declares(kind, doubted).await? {
            return Ok(Listing::default());
        }
        let (form, began) = (kind.form(), Instant::now());
        let lately = began.checked_sub(REFUSED_WORD_AGE_MAX).unwrap_or(began);
        let mut list = Reading::new(kind);
        let mut cursor: Option<Vec<u8>> = None;
        for _ in 0..PAGES_MAX {
            let members = cursor.as_ref().map(|cursor| [("cursor", cursor.as_slice())]);
            let members = members.as_ref().map_or(&[][..], |members| &members[..]);
            let ask = Ask::plain(form.method, members, form.bytes_max.saturating_sub(list.bytes));
            let page = match self.request(ask, &sent).await? {
                Answer::Result(page) => page,
                Answer::Error { code, .. }
                    if cursor.is_none() && self.has_none(kind, code, doubted.unwrap_or(lately)).await? =>
                {
                    return Ok(Listing::default());
                }
                Answer::Error { code, .. } => return Err(refused(form.method, code)),
            };
            cursor = list.page(&page, self.era())?;
            if cursor.is_none() {
                return Ok(list.listing);
            }
        }
        Err(too_large("too many pages"))
    }

    /// Returns whether the upstream declares lists of this kind. With `doubted`, only a declaration as of that time
    /// or later may say that it has none.
    async fn declares(&self, kind: ListKind, doubted: Option<Instant>) -> Result<bool, UpstreamError> {
        let link = self.link()?;
        if link.offers().await?.has(kind) {
            return Ok(true);
        }
        match doubted {
            Some(since) => Ok(link.offers_since(since).await?.has(kind)),
            None => Ok(false),
        }
    }

    /// Returns whether a server that refused a list with this error code has no entries of the kind. False unless the
    /// code is "method not found". Templates: always, since they have no declaration of their own. Prompts and
    /// resources: if the server declares none, as of `since` or later. Tools: if it declares only other things.
    async fn has_none(&self, kind: ListKind, code: i64, since: Instant) -> Result<bool, UpstreamError> {
        if code != METHOD_NOT_FOUND {
            return Ok(false);
        }
        let link = self.link()?;
        match kind {
            ListKind::Templates => Ok(true),
            ListKind::Tools if link.offers().await?.is_without_tools() => Ok(true),
            // by the known declaration it may have tools; without a newer one that denies it, the refusal is an error
            ListKind::Tools => {
                Ok(link.offers_since(since).await.is_ok_and(|offers| offers.is_without_tools()))
            }
            ListKind::Prompts | ListKind::Resources => {
                Ok(link.offers_since(since).await.is_ok_and(|offers| !offers.has(kind)))
            }
        }
    }
}
