//! Listing of a server: connects, detects the protocol era, reads tools and offers, and stores the changes.

mod offers;

use std::sync::Arc;

use tokio::time::Instant;

use super::Servers;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::domain::pin::Pin;
use crate::domain::redact;
use crate::domain::server::ConnectionState;
use crate::domain::server_kind::ServerKind;
use crate::gateway::catalog::target;
use crate::gateway::credentials::Opener;
use crate::gateway::server_logins::discover;
use crate::store::{
    Applied, Before, Discovered, FailureNoted, NewListing, NewOffers, RevisionKind, Right, SecretRows,
    Server, StoreError, Tally,
};
use crate::upstream::{
    Connection, Doubt, Entry, Era, FailureKind as UpstreamKind, ListKind, Listing, Target, UpstreamError,
    WANTS_CREDENTIALS,
};

/// Longest text about a failed listing that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// Reason why a listing was not stored, or only in part.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum ListingError {
    /// The upstream failed; noted at the server.
    #[error("{0}")]
    Upstream(String),
    /// This replica failed; that says nothing about the server, so nothing is noted there.
    #[error("{0}")]
    Here(String),
    /// The database failed, or the server changed meanwhile.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Scope of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum What {
    /// Tools, prompts, resources and templates.
    All,
    /// Tools only: the other stored definitions stay.
    Tools,
}

/// Result of reading a server's tools.
struct Found {
    era: Era,
    tools: Listing,
    /// True if the server is known to have no other kinds.
    is_all: bool,
}

/// Reason why a server gave no answer.
struct Unanswered {
    text: String,
    /// True if the server wants a login, and none is configured.
    wants_login: bool,
}

impl From<String> for Unanswered {
    fn from(text: String) -> Unanswered {
        Unanswered { text, wants_login: false }
    }
}

/// Answer of a server, or the reason why it gave none.
type Answered = Result<Found, Unanswered>;

/// Result of one attempt to list the tools.
struct Once {
    /// True if nothing was stored, because another replica has stored a listing or a failure meanwhile.
    is_overtaken: bool,
    /// Stored changes, and whether no other lists need to be read.
    ended: Result<(Applied, bool), ListingError>,
}

impl Once {
    fn failed_and_overtaken() -> Once {
        let why = StoreError::Conflict("somebody else has listed the server meanwhile");
        Once { is_overtaken: true, ended: Err(ListingError::Store(why)) }
    }
}

impl Servers {
    /// Lists a server and stores the result; a failure is noted at the server. Nothing is written once `right` is lost.
    pub(in crate::gateway) async fn list_server(
        &self,
        tenant: TenantId,
        server: &Server,
        right: Right,
    ) -> Result<Applied, ListingError> {
        self.list_of_server(tenant, server, What::All, right).await
    }

    /// Lists a server within a scope, as [`Servers::list_server`] does for all of it.
    pub(in crate::gateway) async fn list_of_server(
        &self,
        tenant: TenantId,
        server: &Server,
        what: What,
        right: Right,
    ) -> Result<Applied, ListingError> {
        let listed = self.list_in_steps(tenant, server, what, right).await;
        if let Err(ListingError::Store(StoreError::Conflict(_) | StoreError::NotFound)) = &listed {
            self.end_unless_on(tenant, server.id()).await;
        }
        listed
    }

    /// Drops the connection to a server that was switched off or removed, or whose tenant is suspended or deleted. Without
    /// this, a listing that began before would leave its connection open.
    pub(super) async fn end_unless_on(&self, tenant: TenantId, server: ServerId) {
        match self.store.served_server(tenant, server).await {
            Ok(row) if row.enabled => {}
            Ok(_) | Err(StoreError::NotFound) => self.upstreams.forget(tenant.0, server.0),
            Err(error) => {
                tracing::warn!(%tenant, %server, %error, "nobody says whether a server is switched on");
            }
        }
    }

    /// Lists the tools and stores them before any other list is read: a server may be slow at the others.
    async fn list_in_steps(
        &self,
        tenant: TenantId,
        server: &Server,
        what: What,
        right: Right,
    ) -> Result<Applied, ListingError> {
        let (mut applied, is_done) = self.list_and_note(tenant, server, right).await?;
        if what == What::Tools || is_done || !applied.is_connected {
            return Ok(applied);
        }
        applied.offers += self.list_others(tenant, server, right.after(applied.rev)).await?;
        Ok(applied)
    }

    /// Lists the tools, and returns whether no other lists need to be read. If another replica has stored a listing
    /// meanwhile, lists once more: that one may have been read before this one began. The same holds for a failure.
    async fn list_and_note(
        &self,
        tenant: TenantId,
        server: &Server,
        right: Right,
    ) -> Result<(Applied, bool), ListingError> {
        let connection = self.connection_for_listing(tenant, server).await?;
        let _turn = connection.turn_of_tools().await;
        let once = self.list_and_note_once(tenant, server, &connection, right).await?;
        if once.is_overtaken {
            return self.list_and_note_once(tenant, server, &connection, right).await?.ended;
        }
        once.ended
    }

    async fn list_and_note_once(
        &self,
        tenant: TenantId,
        server: &Server,
        connection: &Connection,
        right: Right,
    ) -> Result<Once, ListingError> {
        let before = self.store.tally(tenant, server.id(), server.version).await?;
        let asked = self.ask_for((tenant, server), connection, &doubt(&before, right)).await;
        self.keep_page_report(tenant, server, connection).await;
        match asked? {
            Ok(found) => {
                let applied = self.store_listing(tenant, server, (&found, before.tally), right).await?;
                let is_overtaken = applied.is_overtaken;
                // the other replica may have listed the tools alone
                let is_done = found.is_all && !is_overtaken && applied.overtaken.is_empty();
                Ok(Once { is_overtaken, ended: Ok((applied, is_done)) })
            }
            // a program's failure here says nothing about other replicas' programs; and during a drain only this replica's
            // programs and connections end
            Err(Unanswered { text, .. }) if matches!(right, Right::Program(_)) || self.life.is_draining() => {
                Err(ListingError::Here(text))
            }
            Err(Unanswered { text, wants_login }) => {
                let text = redact::preview(&text, ERROR_BYTES_MAX).text;
                let as_of = (server.version, &before.tally);
                let noted = self
                    .store
                    .listing_failed(tenant, server.id(), as_of, (&text, wants_login), &right)
                    .await?;
                let FailureNoted::Noted(rev) = noted else { return Ok(Once::failed_and_overtaken()) };
                if server.last_error.as_ref() != Some(&text) {
                    self.log_server(tenant, server.id(), &format!("could not be listed: {text}"));
                }
                if let Some(rev) = rev {
                    self.tenants.applied(tenant, RevisionKind::Catalogue, rev).await;
                }
                Err(ListingError::Upstream(text))
            }
        }
    }

    /// Lists a server whose program runs here, and stores the result. A failure is noted nowhere: it says nothing about
    /// other replicas' programs.
    pub(in crate::gateway) async fn list_own_program(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<Applied, ListingError> {
        self.list_in_steps(tenant, server, What::All, Right::Program(server.rev)).await
    }

    /// Reads a server's lists. The inner error is the server's failure, the outer one this replica's.
    async fn ask_for(
        &self,
        (tenant, server): (TenantId, &Server),
        connection: &Connection,
        doubt: &Doubt,
    ) -> Result<Answered, ListingError> {
        match fetch(connection, doubt).await {
            Ok(found) => Ok(Ok(found)),
            Err(error) if matches!(error.kind, UpstreamKind::LoginRefused { .. }) => {
                self.note_refused_token(tenant, server, &error).await;
                Ok(Err(error.whole().into()))
            }
            Err(error) if error.kind == UpstreamKind::NoPlace => Err(ListingError::Here(error.to_string())),
            Err(error) if error.kind == UpstreamKind::Timeout => {
                let seconds = self.options.upstream.listing_timeout.as_secs();
                Ok(Err(format!("no complete answer within {seconds} s").into()))
            }
            Err(error) => match self.wanted_login(tenant, server, &error).await {
                Some(text) => Ok(Err(Unanswered { text, wants_login: true })),
                None => Ok(Err(error.whole().into())),
            },
        }
    }

    /// Returns what to do about a server that has just refused a listing for want of a login; `None` if that is not the reason.
    async fn wanted_login(&self, tenant: TenantId, server: &Server, error: &UpstreamError) -> Option<String> {
        let url = server.url.as_deref().filter(|_| server.kind == ServerKind::Http)?;
        let is_refused = error.kind == UpstreamKind::Invalid && error.detail.starts_with(WANTS_CREDENTIALS);
        if !is_refused || server.oauth.is_some() || !server.header_names.is_empty() {
            return None;
        }
        let issuer = discover::wanted_issuer(&self.upstreams, tenant, url).await?;
        let name = &server.name;
        Some(format!(
            "it wants a login (OAuth) with {issuer}: let each person log in (mcpproxy upstream update {name} --oauth authorization_code), or the gateway \
             itself (--oauth-client-id ID --oauth-client-secret - --oauth-issuer {issuer})"
        ))
    }

    async fn store_listing(
        &self,
        tenant: TenantId,
        server: &Server,
        (found, tally): (&Found, Tally),
        right: Right,
    ) -> Result<Applied, ListingError> {
        let Found { era, tools: listing, is_all } = found;
        warn_of_problems(tenant, server, listing);
        let found = discovered(listing, self.options.tools_max);
        let offers = if *is_all { NewOffers::NONE } else { NewOffers::default() };
        let new = NewListing { version: server.version, tally, era: *era, found: &found, offers, right };
        let quotas = &self.options.quotas;
        let applied = self.store.apply_listing(tenant, server.id(), &new, quotas).await?;
        if applied.is_overtaken {
            return Ok(applied);
        }
        if applied.is_connected && server.connection != ConnectionState::Connected {
            let (revisions, tools) = (era.revisions(), listing.entries.len());
            self.log_server(tenant, server.id(), &format!("connected, MCP {revisions}, {tools} tools"));
        }
        if let Some(remark) = applied.remark.as_ref().filter(|now| server.last_error.as_ref() != Some(now)) {
            self.log_server(tenant, server.id(), remark);
        }
        self.tell_drifts(tenant, server, &applied.drifted);
        if let Some(rev) = applied.rev {
            self.tenants.applied(tenant, RevisionKind::Catalogue, rev).await;
        }
        Ok(applied)
    }

    /// Returns the target for listing a server. Its credentials are read here, because the listing replica may not have the
    /// tenant's snapshot.
    pub(in crate::gateway) async fn listing_target(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<Target, StoreError> {
        let secrets = match server.header_names.as_slice() {
            [] => SecretRows::default(),
            _ => self.store.server_secrets(tenant, server.id()).await?,
        };
        let opened = Opener::new(&self.options.keyring, tenant, &secrets).open(server);
        Ok(target(tenant, server, opened, &self.options.upstream, &self.options.commands))
    }

    async fn connection_for_listing(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<Arc<Connection>, StoreError> {
        Ok(self.upstreams.connection(&self.listing_target(tenant, server).await?))
    }
}

/// Returns the kinds for which the server must state now that it has none: those with stored definitions, which would be
/// removed. If a person asked for the listing, all kinds.
fn doubt(before: &Before, right: Right) -> Doubt {
    let since = Instant::now();
    let kinds = ListKind::OTHERS.into_iter();
    match right {
        Right::Asked => Doubt { kinds: kinds.collect(), since },
        _ => Doubt { kinds: kinds.filter(|kind| is_stored(before, *kind)).collect(), since },
    }
}

/// Returns whether definitions are stored of this kind, or of one declared by the same capability.
fn is_stored(before: &Before, kind: ListKind) -> bool {
    let is_declared_with = |other: &ListKind| match kind {
        ListKind::Resources | ListKind::Templates => {
            matches!(other, ListKind::Resources | ListKind::Templates)
        }
        _ => *other == kind,
    };
    ListKind::OTHERS
        .iter()
        .filter(|other| is_declared_with(other))
        .any(|kind| before.stored.contains(&stored(*kind)))
}

/// Returns the kind of stored offer for a list.
fn stored(kind: ListKind) -> OfferKind {
    match kind {
        // never called for tools
        ListKind::Prompts | ListKind::Tools => OfferKind::Prompt,
        ListKind::Resources => OfferKind::Resource,
        ListKind::Templates => OfferKind::Template,
    }
}

async fn fetch(connection: &Connection, doubt: &Doubt) -> Result<Found, UpstreamError> {
    let tools = connection.list(ListKind::Tools).await?;
    let era = connection.era().unwrap_or(Era::Handshake);
    Ok(Found { era, tools, is_all: connection.has_tools_alone(doubt) })
}

fn warn_of_problems(tenant: TenantId, server: &Server, listing: &Listing) {
    for problem in &listing.problems {
        tracing::warn!(%tenant, server = server.name, problem, "part of a listing was left out");
    }
}

/// Returns the storable definitions of a listing, up to `entries_max`: those that are unambiguous JSON without U+0000.
fn discovered(listing: &Listing, entries_max: usize) -> Vec<Discovered> {
    let store = |entry: &Entry| {
        let definition = std::str::from_utf8(&entry.definition).ok()?;
        match Pin::of(definition) {
            // Postgres texts cannot hold U+0000; the JSON escape for it is ordinary text
            Ok(pin) if !definition.contains('\0') && !entry.name.contains('\0') => Some(Discovered {
                name: entry.name.clone(),
                definition: definition.to_owned(),
                pin: pin.as_str().to_owned(),
            }),
            Ok(_) => None,
            Err(fault) => {
                // names may be URIs, which may hold passwords
                tracing::warn!(%fault, "a definition was left out");
                None
            }
        }
    };
    listing.entries.iter().filter_map(store).take(entries_max).collect()
}
/// Returns whether the last error of a server is that it wants other credentials.
pub fn wants_credentials(error: &str) -> bool {
    error.contains(WANTS_CREDENTIALS)
}
