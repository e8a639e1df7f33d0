//! Administration of people who log in, by a tenant's admin.

use uuid::Uuid;

use super::book::IssuerBook;
use crate::domain::id::{IdentityId, TenantId};
use crate::domain::identity::{identity_id, is_subject};
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::{Caller, Tenants};
use crate::store::{Identity, RevisionKind};

impl Tenants {
    /// Returns a page of the tenant's people in id order, after the id `after`, each with the name of the issuer.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn list_identities(
        &self,
        caller: &Caller,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<(Identity, String)>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let rows = self.store.list_identities(tenant, after, limit).await;
        let rows = rows.map_err(|error| GatewayError::from_store(error, "identity"))?;
        Ok(rows.into_iter().map(|row| self.with_issuer(tenant, row)).collect())
    }

    /// Returns the names of the issuers whose people may be the tenant's, in order.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, or [`GatewayError::Invalid`] without a tenant.
    pub fn issuer_names(&self, caller: &Caller) -> Result<Vec<String>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let mut names: Vec<String> = self.issuers_of(caller.tenant()?.id).into_values().collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Blocks a person, or ends a block, within a second on every replica. A block also refuses all tokens that were issued before.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn block_identity(
        &self,
        caller: &Caller,
        identity: IdentityId,
        is_blocked: bool,
    ) -> Result<(Identity, String), GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        // who called a moment ago is known here before the block
        if let Err(error) = self.note_people().await {
            tracing::warn!(%error, "people who were seen could not all be written before a block");
        }
        let row = self.store.block_identity(tenant, identity, is_blocked).await;
        let row = row.map_err(|error| GatewayError::from_store(error, "identity"))?;
        self.refresh(tenant, RevisionKind::Access).await;
        Ok(self.with_issuer(tenant, row))
    }

    /// Blocks a person of an issuer by the subject, also one whom the tenant has not seen yet.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`] for an issuer that has no people of the tenant,
    /// [`GatewayError::Invalid`] for a subject that no token has, or without a tenant, [`GatewayError::Limit`] for too many people,
    /// or [`GatewayError::Unavailable`].
    pub async fn block_subject(
        &self,
        caller: &Caller,
        (issuer, subject): (&str, &str),
    ) -> Result<(Identity, String), GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let known = |book: &IssuerBook| {
            book.all().find(|known| known.name == issuer && known.serves(tenant)).map(|known| known.id)
        };
        // an issuer of other tenants' people is none here
        let issuer = known(&self.logins.book()).ok_or(GatewayError::NotFound("issuer"))?;
        if !is_subject(subject) {
            let message = "subject must be the claim that identifies a person: 1 to 255 bytes without control characters";
            return Err(GatewayError::invalid("subject", message));
        }
        let person = (identity_id(tenant, issuer, subject), issuer, subject);
        let row = self.store.block_subject(tenant, person).await;
        let row = row.map_err(|error| GatewayError::from_store(error, "identity"))?;
        self.refresh(tenant, RevisionKind::Access).await;
        Ok(self.with_issuer(tenant, row))
    }

    fn with_issuer(&self, tenant: TenantId, row: Identity) -> (Identity, String) {
        let id = row.issuer_id.to_string();
        let name = self.issuers_of(tenant).remove(&id).unwrap_or(id);
        (row, name)
    }
}
