//! Decisions about prompts, resources and templates: approvals and blocks.

use super::Servers;
use super::administer::ServerView;
use super::pins::read_pin;
use crate::domain::offer::OfferKind;
use crate::domain::tenant::Action;
use crate::gateway::OfferView;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{OfferRef, RevisionKind, StoreError};

/// Name of a server's offer in a request.
#[derive(Clone, Copy, Debug)]
pub struct OfferName<'a> {
    /// Name of the server.
    pub server: &'a str,
    /// Kind of the offer.
    pub kind: OfferKind,
    /// Name of a prompt, URI of a resource, or text of a template.
    pub name: &'a str,
}

impl<'a> OfferName<'a> {
    fn of(self, server: &ServerView) -> OfferRef<'a> {
        OfferRef { server: server.id(), kind: self.kind, name: self.name }
    }

    fn noun(self) -> &'static str {
        self.kind.as_str()
    }
}

impl Servers {
    /// Returns one offer of a server, in any state.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn get_offer(&self, caller: &Caller, offer: OfferName<'_>) -> Result<OfferView, GatewayError> {
        let server = self.get_server(caller, offer.server).await?;
        let found = self.store.get_offer(caller.tenant()?.id, offer.of(&server)).await;
        found.map_err(|e| GatewayError::from_store(e, offer.noun()))
    }

    /// Approves the definition with this pin, and lifts a block.
    ///
    /// # Errors
    /// [`GatewayError::Conflict`] if the server offers another definition by now, [`GatewayError::Forbidden`] for the role
    /// or by separation of duties, [`GatewayError::Invalid`] for a malformed pin or without a tenant,
    /// [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn approve_offer(
        &self,
        caller: &Caller,
        offer: OfferName<'_>,
        pin: &str,
    ) -> Result<OfferView, GatewayError> {
        let server = self.trusted_by(caller, offer.server).await?;
        let pin = read_pin(pin)?;
        let tenant = caller.tenant()?.id;
        let done = self.store.approve_offer(tenant, offer.of(&server), pin.as_str(), caller.key).await;
        self.offer_decided(caller, offer, done).await
    }

    /// Blocks an offer until a person lifts the block.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn block_offer(
        &self,
        caller: &Caller,
        offer: OfferName<'_>,
    ) -> Result<OfferView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let server = self.get_server(caller, offer.server).await?;
        let done = self.store.block_offer(caller.tenant()?.id, offer.of(&server), caller.key).await;
        self.offer_decided(caller, offer, done).await
    }

    /// Lifts a block, without approving anything.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role or by separation of duties, [`GatewayError::NotFound`],
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn unblock_offer(
        &self,
        caller: &Caller,
        offer: OfferName<'_>,
    ) -> Result<OfferView, GatewayError> {
        let server = self.trusted_by(caller, offer.server).await?;
        let done = self.store.unblock_offer(caller.tenant()?.id, offer.of(&server)).await;
        self.offer_decided(caller, offer, done).await
    }

    /// Applies a decision to this replica's snapshot, and returns the offer as it is now.
    async fn offer_decided(
        &self,
        caller: &Caller,
        offer: OfferName<'_>,
        done: Result<(), StoreError>,
    ) -> Result<OfferView, GatewayError> {
        done.map_err(|e| GatewayError::from_store(e, offer.noun()))?;
        self.tenants.refresh(caller.tenant()?.id, RevisionKind::Catalogue).await;
        self.get_offer(caller, offer).await
    }
}
