//! Lists what an upstream offers, each definition as the bytes that were sent.

mod kind;
mod page;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

pub use self::kind::{
    DEFINITION_BYTES_MAX, LIST_BYTES_MAX, ListKind, NAME_BYTES_MAX, OFFERS_BYTES_MAX, PROMPTS_MAX,
    RESOURCES_MAX, TEMPLATES_MAX, TOOLS_MAX, URI_BYTES_MAX,
};
use self::page::{Reading, too_large};
pub use self::turns::Slowness;
pub(super) use self::turns::Turns;
use super::connection::{Ask, Connection, refused};
use super::error::UpstreamError;
use super::jsonrpc::Answer;
use super::sent::Sent;

/// Most pages of one list.
pub const PAGES_MAX: usize = 1000;
/// The code of a method that a server does not have.
const METHOD_NOT_FOUND: i64 = -32601;

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

/// A list that was read, or why it could not be.
pub type Listed = (ListKind, Result<Listing, UpstreamError>);

impl Connection {
    /// Lists what the upstream offers of one kind, all pages, past the queue of calls. What it does not declare is
    /// not asked for, and empty; tools are always asked for.
    ///
    /// # Errors
    /// Any [`Kind`](super::Kind). A list that is not complete is an error, never a shorter list.
    pub async fn list(&self, kind: ListKind) -> Result<Listing, UpstreamError> {
        self.list_within(kind, self.limits.listing_timeout).await
    }

    /// Lists what the upstream offers besides tools, of these kinds. Together they may take as long as one listing, of
    /// which each has its part. One that could not be read says nothing about the others.
    pub async fn list_others(&self, kinds: &[ListKind]) -> Vec<Listed> {
        let until = Instant::now() + self.limits.listing_timeout;
        let mut listed = Vec::with_capacity(kinds.len());
        for (left, kind) in (1..=kinds.len()).rev().zip(kinds) {
            let part = until.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            listed.push((*kind, self.list_within(*kind, part).await));
        }
        listed
    }

    /// Whether the upstream is known to have nothing but tools.
    pub fn has_tools_alone(&self) -> bool {
        let known = self.link.as_ref().ok().and_then(|link| link.known_offers());
        known.is_some_and(|offers| ListKind::OTHERS.into_iter().all(|kind| !offers.has(kind)))
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

    async fn list_within(&self, kind: ListKind, limit: Duration) -> Result<Listing, UpstreamError> {
        let lane = if kind == ListKind::Tools { &self.asides.first } else { &self.asides.others };
        let listed = self.aside(lane, limit, |sent| self.read_list(kind, sent)).await;
        // a server may be slow at its other lists and quick at calls
        if kind == ListKind::Tools {
            self.health.listed(&listed);
        }
        listed
    }

    async fn read_list(&self, kind: ListKind, sent: Arc<Sent>) -> Result<Listing, UpstreamError> {
        if kind != ListKind::Tools && !self.link()?.offers().await?.has(kind) {
            return Ok(Listing::default());
        }
        let form = kind.form();
        let mut list = Reading::new(kind);
        let mut cursor: Option<Vec<u8>> = None;
        for _ in 0..PAGES_MAX {
            let members = cursor.as_ref().map(|cursor| [("cursor", cursor.as_slice())]);
            let members = members.as_ref().map_or(&[][..], |members| &members[..]);
            let ask = Ask::plain(form.method, members, form.bytes_max.saturating_sub(list.bytes));
            let page = match self.request(ask, &sent).await? {
                Answer::Result(page) => page,
                Answer::Error { code, .. } if cursor.is_none() && self.has_none(kind, code).await? => {
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

    /// Whether a server that does not know a list has none of the kind: templates, since what it declares are resources,
    /// and tools, if it has only other things by its own word.
    async fn has_none(&self, kind: ListKind, code: i64) -> Result<bool, UpstreamError> {
        if code != METHOD_NOT_FOUND {
            return Ok(false);
        }
        match kind {
            ListKind::Templates => Ok(true),
            ListKind::Tools => Ok(self.link()?.offers().await?.is_without_tools()),
            ListKind::Prompts | ListKind::Resources => Ok(false),
        }
    }
}
