//! Listing a server: connect, find its era, read what it offers, store what is new.

use super::Gateway;
use super::catalog;
use super::credentials::Opener;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::pin::Pin;
use crate::domain::redact;
use crate::store::{Applied, Discovered, Kind, NewListing, NewOffers, Right, SecretRows, Server, StoreError};
use crate::upstream::{
    Announced, Entry, Era, Kind as UpstreamKind, ListKind, Listing, Listings, Target, UpstreamError,
};

/// Longest text about a failed listing that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// Why a listing did not change anything.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListingError {
    /// The upstream; noted at the server.
    #[error("{0}")]
    Upstream(String),
    /// This replica: it says nothing about the server, and nothing is noted there.
    #[error("{0}")]
    Here(String),
    /// The database, or the server changed meanwhile.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How much of a server is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All that it offers.
    All,
    /// Its tools: of the rest the stored one stays.
    Tools,
}

/// What a server was found to offer.
struct Found {
    era: &'static str,
    tools: Listing,
    /// Unless only the tools were asked for.
    others: Option<Listings>,
}

/// What a server offers, or why nobody knows.
type Answered = Result<Found, String>;

impl Gateway {
    /// Lists one server and stores what it found; a failure is noted at the server. `right` is what held when it was
    /// read: nothing is written once it is lost.
    pub(super) async fn list_server(
        &self,
        tenant: TenantId,
        server: &Server,
        right: Right,
    ) -> Result<Applied, ListingError> {
        self.list_of_server(tenant, server, What::All, right).await
    }

    /// The same, of so much of it.
    pub(super) async fn list_of_server(
        &self,
        tenant: TenantId,
        server: &Server,
        what: What,
        right: Right,
    ) -> Result<Applied, ListingError> {
        let listed = self.list_and_note(tenant, server, what, right).await;
        if let Err(ListingError::Store(StoreError::Conflict(_) | StoreError::NotFound)) = &listed {
            self.end_unless_on(tenant, server.id()).await;
        }
        listed
    }

    /// Drops the connection of a server that was switched off or removed, or whose tenant is served no more, while
    /// somebody began to ask it: nobody else knows of that connection.
    pub(super) async fn end_unless_on(&self, tenant: TenantId, server: ServerId) {
        match self.store.served_server(tenant, server).await {
            Ok(row) if row.enabled => {}
            Ok(_) | Err(StoreError::NotFound) => self.upstreams.forget(tenant.0, server.0),
            Err(error) => {
                tracing::warn!(%tenant, %server, %error, "nobody says whether a server is switched on");
            }
        }
    }

    async fn list_and_note(
        &self,
        tenant: TenantId,
        server: &Server,
        what: What,
        right: Right,
    ) -> Result<Applied, ListingError> {
        match self.ask_for(tenant, server, what).await? {
            Ok(found) => self.store_listing(tenant, server, &found, right).await,
            // its programs and connections end with this replica; the others go on
            Err(text) if self.is_draining() => Err(ListingError::Here(text)),
            Err(text) => {
                let text = redact::preview(&text, ERROR_BYTES_MAX).text;
                let noted =
                    self.store.listing_failed(tenant, server.id(), server.version, &text, &right).await?;
                if server.last_error.as_ref() != Some(&text) {
                    self.log_server(tenant, server.id(), &format!("could not be listed: {text}"));
                }
                if let Some(rev) = noted {
                    self.applied(tenant, Kind::Catalogue, rev).await;
                }
                Err(ListingError::Upstream(text))
            }
        }
    }

    /// Lists a server whose program runs here, and stores what it found. A failure says nothing about the programs
    /// of other replicas: it is noted nowhere.
    pub(super) async fn list_own_program(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<Applied, ListingError> {
        let right = Right::Program(server.rev);
        let found = self.ask_for(tenant, server, What::All).await?.map_err(ListingError::Here)?;
        self.store_listing(tenant, server, &found, right).await
    }

    /// What a server offers, or why it does not say.
    async fn ask_for(&self, tenant: TenantId, server: &Server, what: What) -> Result<Answered, ListingError> {
        let target = self.listing_target(tenant, server).await?;
        match self.fetch(&target, what).await {
            Ok(found) => Ok(Ok(found)),
            Err(error) if error.kind == UpstreamKind::NoPlace => Err(ListingError::Here(error.to_string())),
            Err(error) if error.kind == UpstreamKind::Timeout => {
                let seconds = self.options.upstream.listing_timeout.as_secs();
                Ok(Err(format!("no complete answer within {seconds} s")))
            }
            Err(error) => Ok(Err(error.whole())),
        }
    }

    async fn store_listing(
        &self,
        tenant: TenantId,
        server: &Server,
        found: &Found,
        right: Right,
    ) -> Result<Applied, ListingError> {
        let Found { era, tools: listing, others } = found;
        warn_of_problems(tenant, server, listing);
        let found = discovered(listing, self.options.tools_max);
        let offers = others.as_ref().map(|others| FoundOffers::of_all(tenant, server, others));
        let offers = offers.unwrap_or_default();
        let new = NewListing { version: server.version, era, found: &found, offers: offers.as_new(), right };
        let quotas = &self.options.quotas;
        let applied = self.store.apply_listing(tenant, server.id(), &new, quotas).await?;
        if applied.is_connected && server.connection != "connected" {
            let tools = listing.entries.len();
            self.log_server(tenant, server.id(), &format!("connected, {era} era, {tools} tools"));
        }
        if let Some(remark) = applied.remark.as_ref().filter(|now| server.last_error.as_ref() != Some(now)) {
            self.log_server(tenant, server.id(), remark);
        }
        self.tell_drifts(tenant, server, &applied.drifted);
        if let Some(rev) = applied.rev {
            self.applied(tenant, Kind::Catalogue, rev).await;
        }
        Ok(applied)
    }

    /// Whoever lists a server may not have its tenant's snapshot: its credentials are read for this.
    pub(super) async fn listing_target(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<Target, StoreError> {
        let secrets = match server.header_names.as_slice() {
            [] => SecretRows::default(),
            _ => self.store.server_secrets(tenant, server.id()).await?,
        };
        let opened = Opener::new(&self.options.keyring, tenant, &secrets).open(server);
        Ok(catalog::target(tenant, server, opened, &self.options.upstream, &self.options.commands))
    }

    /// Lists what a server announced a change of, which is not its tools, and stores it; gives how much of it is other
    /// than before.
    pub(super) async fn list_offers(
        &self,
        tenant: TenantId,
        server: &Server,
        what: Announced,
        right: Right,
    ) -> Result<usize, ListingError> {
        let target = self.listing_target(tenant, server).await?;
        let connection = self.upstreams.connection(&target);
        let here = |error: UpstreamError| ListingError::Here(error.whole());
        let mut offers = FoundOffers::default();
        if what == Announced::Prompts {
            offers.prompts =
                Some(offers_of(tenant, server, &connection.list(ListKind::Prompts).await.map_err(here)?));
        } else {
            let resources = connection.list(ListKind::Resources).await.map_err(here)?;
            offers.resources = Some(offers_of(tenant, server, &resources));
            let templates = connection.list(ListKind::Templates).await.map_err(here)?;
            offers.templates = Some(offers_of(tenant, server, &templates));
        }
        let (new, quotas) = (offers.as_new(), &self.options.quotas);
        let stored =
            self.store.apply_offers(tenant, server.id(), server.version, (&new, right), quotas).await?;
        if let (_, Some(rev)) = stored {
            self.applied(tenant, Kind::Catalogue, rev).await;
        }
        Ok(stored.0)
    }

    async fn fetch(&self, target: &Target, what: What) -> Result<Found, UpstreamError> {
        let connection = self.upstreams.connection(target);
        let (tools, others) = match what {
            What::Tools => (connection.list(ListKind::Tools).await?, None),
            What::All => {
                let mut all = connection.list_all().await?;
                (std::mem::take(&mut all.tools), Some(all))
            }
        };
        let era = match connection.era() {
            Some(Era::Modern) => "modern",
            _ => "handshake",
        };
        Ok(Found { era, tools, others })
    }
}

/// What can be stored of a server's other lists.
#[derive(Default)]
struct FoundOffers {
    prompts: Option<Vec<Discovered>>,
    resources: Option<Vec<Discovered>>,
    templates: Option<Vec<Discovered>>,
    fault: Option<String>,
}

impl FoundOffers {
    fn of_all(tenant: TenantId, server: &Server, listings: &Listings) -> FoundOffers {
        let mut faults = Vec::new();
        let mut found = |nouns: &str, listed: &Result<Listing, UpstreamError>| match listed {
            Ok(listing) => Some(offers_of(tenant, server, listing)),
            Err(error) => {
                faults.push(format!("its {nouns} could not be listed: {}", error.whole()));
                None
            }
        };
        let prompts = found("prompts", &listings.prompts);
        let resources = found("resources", &listings.resources);
        let templates = found("templates of resources", &listings.templates);
        let fault = (!faults.is_empty()).then(|| redact::preview(&faults.join("; "), ERROR_BYTES_MAX).text);
        FoundOffers { prompts, resources, templates, fault }
    }

    fn as_new(&self) -> NewOffers<'_> {
        NewOffers {
            prompts: self.prompts.as_deref(),
            resources: self.resources.as_deref(),
            templates: self.templates.as_deref(),
            fault: self.fault.as_deref(),
        }
    }
}

fn offers_of(tenant: TenantId, server: &Server, listing: &Listing) -> Vec<Discovered> {
    warn_of_problems(tenant, server, listing);
    discovered(listing, usize::MAX)
}

fn warn_of_problems(tenant: TenantId, server: &Server, listing: &Listing) {
    for problem in &listing.problems {
        tracing::warn!(%tenant, server = server.name, problem, "part of a listing was left out");
    }
}

/// What can be stored of a listing: definitions that are one reading of JSON, up to the bound.
fn discovered(listing: &Listing, entries_max: usize) -> Vec<Discovered> {
    let store = |entry: &Entry| {
        let definition = std::str::from_utf8(&entry.definition).ok()?;
        match Pin::of(definition) {
            // Postgres texts cannot hold U+0000; JSON cannot either, but for its escape, which is text
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
