//! Lists what an upstream offers, each definition as the bytes that were sent.

mod page;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use self::page::{Reading, too_large};
use super::ask::{Ask, refused};
use super::connection::Connection;
use super::error::UpstreamError;
use super::jsonrpc::{Answer, METHOD_NOT_FOUND};
use super::list_kind::ListKind;
use super::list_turns::Slowness;
use super::sent::Sent;

/// Most pages of one list.
pub const PAGES_MAX: usize = 1000;
/// How old a word about what there is may be when a list of it is refused, where nobody doubts it: so that who declares what it has not is not
/// asked about that at every listing.
const REFUSED_WORD_AGE_MAX: Duration = Duration::from_secs(60);

/// Something that a server offers, as the server defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of a tool or a prompt; the URI of a resource; the URI template of a template.
    pub name: String,
    /// The definition, byte for byte. Shares memory with its whole page: copy what is kept for long.
    pub definition: Bytes,
}

/// All that a server offers of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, in the server's order.
    pub entries: Vec<Entry>,
    /// Entries that were left out, each with the reason.
    pub problems: Vec<String>,
}

/// Of which kinds it takes a word of late that a server has none: something of them is stored, or somebody asks. What was
/// declared earlier may be another server's, which nobody has asked since.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// Of these.
    pub kinds: Vec<ListKind>,
    /// When what is still to be believed may have been asked for at the earliest.
    pub since: Instant,
}

impl Doubt {
    fn of(&self, kind: ListKind) -> Option<Instant> {
        self.kinds.contains(&kind).then_some(self.since)
    }
}

/// A list that was read, or why it could not be.
pub type Listed = (ListKind, Result<Listing, UpstreamError>);

impl Connection {
    /// Lists what the upstream offers of one kind, all pages, past the queue of calls. What it does not declare is
    /// not asked for, and empty; tools are always asked for.
    ///
    /// # Errors
    /// Any [`FailureKind`](super::FailureKind). A list that is not complete is an error, never a shorter list.
    pub async fn list(&self, kind: ListKind) -> Result<Listing, UpstreamError> {
        self.list_within(kind, self.limits.listing_timeout, None).await
    }

    /// Lists what the upstream offers besides tools, of these kinds. Together they may take as long as one listing, of
    /// which each has its part. One that could not be read says nothing about the others.
    pub async fn list_others(&self, kinds: &[ListKind], doubt: &Doubt) -> Vec<Listed> {
        let until = Instant::now() + self.limits.listing_timeout;
        let mut listed = Vec::with_capacity(kinds.len());
        for (left, kind) in (1..=kinds.len()).rev().zip(kinds) {
            let part = until.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            listed.push((*kind, self.list_within(*kind, part, doubt.of(*kind)).await));
        }
        listed
    }

    /// Whether the upstream, which has just listed its tools, is known to have nothing else.
    pub fn has_tools_alone(&self, doubt: &Doubt) -> bool {
        let Ok(link) = &self.link else { return false };
        let known = |kind| match doubt.of(kind) {
            Some(since) => link.known_offers_since(since),
            None => link.known_offers(),
        };
        ListKind::OTHERS.into_iter().all(|kind| known(kind).is_some_and(|offers| !offers.has(kind)))
    }

    /// The turn to read the tools and to store them. Whoever has one stores what it read before another reads, so that
    /// nobody puts back what was taken away meanwhile. Turns last as long as a listing and the database may take.
    pub async fn turn_of_tools(&self) -> MutexGuard<'_, ()> {
        self.turns.tools.lock().await
    }

    /// The same for all else.
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

    /// Whether the upstream says that it has lists of this kind. Where there is doubt, it takes a word of late that it
    /// has none.
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

    /// Whether a server that does not know a list has none of the kind: templates, since what it declares are resources,
    /// and all else if it says, as of `since` or later, that it has none of them; of tools, that it has only other things.
    async fn has_none(&self, kind: ListKind, code: i64, since: Instant) -> Result<bool, UpstreamError> {
        if code != METHOD_NOT_FOUND {
            return Ok(false);
        }
        let link = self.link()?;
        match kind {
            ListKind::Templates => Ok(true),
            ListKind::Tools if link.offers().await?.is_without_tools() => Ok(true),
            // by its word of earlier it has them; who does not say it anew has refused the list, and nothing else
            ListKind::Tools => {
                Ok(link.offers_since(since).await.is_ok_and(|offers| offers.is_without_tools()))
            }
            ListKind::Prompts | ListKind::Resources => {
                Ok(link.offers_since(since).await.is_ok_and(|offers| !offers.has(kind)))
            }
        }
    }
}
