//! Configuration of the gateway's logins at servers. Secrets are sealed; nothing here can decrypt them.

use uuid::Uuid;

use super::connections::SealedText;
use super::locks::lock_server;
use super::revisions::{self, RevisionKind};
use super::server_oauth::remove;
use super::servers::{Server, server_columns};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::server_login::{ClientAuthWay, ExchangeGrant, LoginKind, Registration};

/// Configuration of a login to be stored.
#[derive(Clone, Debug)]
pub struct NewServerOauth {
    /// Version that the server must still have.
    pub version: i64,
    /// URL of the server without its query, for which the login is.
    pub place: String,
    /// Way of logging in.
    pub kind: LoginKind,
    /// Issuer of the token endpoint; `None` if only the endpoint is known.
    pub issuer: Option<String>,
    /// URL that browsers of people are sent to; `None` for the gateway's own login.
    pub authorization_endpoint: Option<String>,
    /// URL where tokens are revoked; `None` if there is none.
    pub revocation_endpoint: Option<String>,
    /// True if the authorization server names itself in its answers (RFC 9207).
    pub require_iss: bool,
    /// True if the server itself names the issuer.
    pub is_named: bool,
    /// Way in which the gateway got its client id.
    pub registration: Registration,
    /// URL of the token endpoint.
    pub token_endpoint: String,
    /// Value of `resource` in token requests; `None` for none.
    pub resource: Option<String>,
    /// Value of `audience` in token requests; `None` for none.
    pub audience: Option<String>,
    /// Request for exchanges; `None` where nothing is exchanged.
    pub exchange_grant: Option<ExchangeGrant>,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Client id of the gateway.
    pub client_id: String,
    /// Way of authentication.
    pub client_auth: ClientAuthWay,
    /// Client secret; `None` for a public client.
    pub client_secret: Option<SealedText>,
}

impl Store {
    /// Stores how the gateway logs in at a server, in the place of what was configured before, and forgets its tokens.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server is removed or has another version, [`StoreError::NotFound`] if the tenant is
    /// deleted. Other errors come from the database.
    pub async fn put_server_oauth(
        &self,
        tenant: TenantId,
        server: ServerId,
        new: &NewServerOauth,
    ) -> Result<Server, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        remove(&mut tx, tenant, server).await?;
        sqlx::query(
            "insert into server_oauth (tenant_id, server_id, place, kind, issuer, token_endpoint, resource, scopes,
                 client_id, client_auth, client_generation, data_key_id, client_sealed, authorization_endpoint,
                 revocation_endpoint, require_iss, registration, is_named, audience, exchange_grant)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(&new.place)
        .bind(new.kind.as_str())
        .bind(&new.issuer)
        .bind(&new.token_endpoint)
        .bind(&new.resource)
        .bind(&new.scopes)
        .bind(&new.client_id)
        .bind(new.client_auth.as_str())
        .bind(Uuid::now_v7())
        .bind(new.client_secret.as_ref().map(|secret| secret.data_key_id))
        .bind(new.client_secret.as_ref().map(|secret| secret.sealed.as_slice()))
        .bind(&new.authorization_endpoint)
        .bind(&new.revocation_endpoint)
        .bind(new.require_iss)
        .bind(new.registration.as_str())
        .bind(new.is_named)
        .bind(&new.audience)
        .bind(new.exchange_grant.map(ExchangeGrant::as_str))
        .execute(&mut *tx)
        .await?;
        changed(tx, (tenant, server), new.version, rev).await
    }

    /// Removes the login of the gateway at a server, with its tokens.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server is removed or has another version, [`StoreError::NotFound`] if the tenant is
    /// deleted. Other errors come from the database.
    pub async fn remove_server_oauth(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
    ) -> Result<Server, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        remove(&mut tx, tenant, server).await?;
        changed(tx, (tenant, server), version, rev).await
    }
}

/// Counts a change of a server's login as a change of the server, and commits it.
async fn changed(
    mut tx: Unit,
    (tenant, server): (TenantId, ServerId),
    version: i64,
    rev: i64,
) -> Result<Server, StoreError> {
    let updated: Option<Server> = sqlx::query_as(concat!(
        "update servers set version = version + 1, rev = $4
         where tenant_id = $1 and server_id = $2 and version = $3 and removed_at is null returning ",
        server_columns!()
    ))
    .bind(tenant.0)
    .bind(server.0)
    .bind(version)
    .bind(rev)
    .fetch_optional(&mut *tx)
    .await?;
    let updated = updated.ok_or(StoreError::Conflict("the server changed since that version"))?;
    revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
    Ok(updated)
}
