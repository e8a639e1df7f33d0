//! Lists what an upstream offers, each definition as the bytes that were sent.

mod kind;
mod page;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

pub use self::kind::{
    DEFINITION_BYTES_MAX, LIST_BYTES_MAX, ListKind, NAME_BYTES_MAX, OFFERS_BYTES_MAX, PROMPTS_MAX,
    RESOURCES_MAX, TEMPLATES_MAX, TOOLS_MAX, URI_BYTES_MAX,
};
use self::page::{Reading, too_large};
use super::connection::{Ask, Connection, refused};
use super::error::UpstreamError;
use super::jsonrpc::{self, Answer};

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

/// All lists of a server. One that could not be read says nothing about the others.
#[derive(Debug)]
pub struct Listings {
    /// Its tools.
    pub tools: Listing,
    /// Its prompts.
    pub prompts: Result<Listing, UpstreamError>,
    /// Its resources.
    pub resources: Result<Listing, UpstreamError>,
    /// Its templates of resources.
    pub templates: Result<Listing, UpstreamError>,
}

impl Connection {
    /// Lists what the upstream offers of one kind, all pages, past the queue of calls. What it does not declare is
    /// not asked for, and empty; tools are always asked for.
    ///
    /// # Errors
    /// Any [`Kind`](super::Kind). A list that is not complete is an error, never a shorter list.
    pub async fn list(&self, kind: ListKind) -> Result<Listing, UpstreamError> {
        self.list_within(kind, self.limits.listing_timeout).await
    }

    /// Lists everything that the upstream offers. The tools may take as long as a listing may, and all that is not
    /// tools together as long again, of which each list has its part.
    ///
    /// # Errors
    /// Any [`Kind`](super::Kind), if the tools could not be listed.
    pub async fn list_all(&self) -> Result<Listings, UpstreamError> {
        let tools = self.list(ListKind::Tools).await?;
        let until = Instant::now() + self.limits.listing_timeout;
        let part = |of: u32| until.saturating_duration_since(Instant::now()) / of;
        Ok(Listings {
            tools,
            prompts: self.list_within(ListKind::Prompts, part(3)).await,
            resources: self.list_within(ListKind::Resources, part(2)).await,
            templates: self.list_within(ListKind::Templates, part(1)).await,
        })
    }

    async fn list_within(&self, kind: ListKind, limit: Duration) -> Result<Listing, UpstreamError> {
        let listed = self.aside(limit, |dispatched| self.read_list(kind, dispatched)).await;
        // a server may be slow at its other lists and quick at calls
        if kind == ListKind::Tools {
            self.health.listed(&listed);
        }
        listed
    }

    async fn read_list(&self, kind: ListKind, dispatched: Arc<AtomicBool>) -> Result<Listing, UpstreamError> {
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
            let page = match self.request(ask, Arc::clone(&dispatched)).await? {
                Answer::Result(page) => page,
                Answer::Error(error) if cursor.is_none() && self.has_no_tools(kind, &error).await? => {
                    return Ok(Listing::default());
                }
                Answer::Error(error) => return Err(refused(form.method, &error)),
            };
            cursor = list.page(&page, self.era())?;
            if cursor.is_none() {
                return Ok(list.listing);
            }
        }
        Err(too_large("too many pages"))
    }

    /// Whether a server that refuses to list its tools has only other things, by its own word.
    async fn has_no_tools(&self, kind: ListKind, error: &[u8]) -> Result<bool, UpstreamError> {
        if kind != ListKind::Tools || jsonrpc::error_code(error) != Some(METHOD_NOT_FOUND) {
            return Ok(false);
        }
        Ok(self.link()?.offers().await?.is_without_tools())
    }
}
