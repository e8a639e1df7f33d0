//! Listing a server: connect, find its era, read its tools, store what is new.

use super::Gateway;
use super::catalog;
use super::credentials::Opener;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::pin::Pin;
use crate::domain::redact;
use crate::store::{Applied, Discovered, Kind, NewListing, Right, SecretRows, Server, StoreError};
use crate::upstream::{Era, Kind as UpstreamKind, Listing, Target, UpstreamError};

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

/// The era of a server and its tools, or why there are none.
type Answered = Result<(&'static str, Listing), String>;

impl Gateway {
    /// Lists one server and stores what it found; a failure is noted at the server. `right` is what held when it was
    /// read: nothing is written once it is lost.
    pub(super) async fn list_server(
        &self,
        tenant: TenantId,
        server: &Server,
        right: Right,
    ) -> Result<Applied, ListingError> {
        let listed = self.list_and_note(tenant, server, right).await;
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
        right: Right,
    ) -> Result<Applied, ListingError> {
        match self.ask_for_tools(tenant, server).await? {
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
        let found = self.ask_for_tools(tenant, server).await?.map_err(ListingError::Here)?;
        self.store_listing(tenant, server, &found, right).await
    }

    /// What a server offers, or why it does not say.
    async fn ask_for_tools(&self, tenant: TenantId, server: &Server) -> Result<Answered, ListingError> {
        let target = self.listing_target(tenant, server).await?;
        match self.fetch(&target).await {
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
        (era, listing): &(&'static str, Listing),
        right: Right,
    ) -> Result<Applied, ListingError> {
        for problem in &listing.problems {
            tracing::warn!(%tenant, server = server.name, problem, "part of a listing was left out");
        }
        let found = discovered(listing, self.options.tools_max);
        let new = NewListing { version: server.version, era, found: &found, right };
        let quotas = &self.options.quotas;
        let applied = self.store.apply_listing(tenant, server.id(), &new, quotas).await?;
        if applied.is_connected && server.connection != "connected" {
            let tools = listing.tools.len();
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

    async fn fetch(&self, target: &Target) -> Result<(&'static str, Listing), UpstreamError> {
        let connection = self.upstreams.connection(target);
        let listing = connection.list_tools().await?;
        let era = match connection.era() {
            Some(Era::Modern) => "modern",
            _ => "handshake",
        };
        Ok((era, listing))
    }
}

/// What can be stored of a listing: definitions that are one reading of JSON, up to the bound.
fn discovered(listing: &Listing, tools_max: usize) -> Vec<Discovered> {
    let store = |tool: &crate::upstream::Tool| {
        let definition = std::str::from_utf8(&tool.definition).ok()?;
        match Pin::of(definition) {
            // Postgres texts cannot hold U+0000; JSON cannot either, but for its escape, which is text
            Ok(pin) if !definition.contains('\0') && !tool.name.contains('\0') => Some(Discovered {
                name: tool.name.clone(),
                definition: definition.to_owned(),
                pin: pin.as_str().to_owned(),
            }),
            Ok(_) => None,
            Err(fault) => {
                tracing::warn!(tool = tool.name, %fault, "a tool's definition was left out");
                None
            }
        }
    };
    listing.tools.iter().filter_map(store).take(tools_max).collect()
}
