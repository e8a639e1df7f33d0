//! Logins of people at servers that were begun, until the browser is back and the tokens are stored or claimed.

use sqlx::FromRow;
use uuid::Uuid;

use super::connections::SealedText;
use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

/// Seconds for which tokens wait for the program that claims them.
const CLAIM_S: f64 = 120.0;

/// Login to be begun by a program, or on a page.
#[derive(Clone, Debug)]
pub struct NewFlow {
    /// Id of the login.
    pub id: Uuid,
    /// Tenant of the server.
    pub tenant: TenantId,
    /// Id of the server.
    pub server: ServerId,
    /// Principal whose login it is.
    pub principal: Uuid,
    /// Generation of the login's configuration.
    pub client: Uuid,
    /// Seconds for which it can be completed.
    pub keep_s: f64,
}

/// Browser of a login on its way to the authorization server.
#[derive(Clone, Debug)]
pub struct FlowDeparture {
    /// SHA-256 of `state`.
    pub state: [u8; 32],
    /// SHA-256 of the browser's cookie; `None` for a login that a program began.
    pub browser: Option<[u8; 32]>,
    /// URL of the program that the browser is sent to in the end; `None` for a login on a page.
    pub loopback: Option<String>,
    /// True if the server is to be listed with this login.
    pub for_listing: bool,
    /// Envelope of the PKCE verifier.
    pub verifier: SealedText,
}

/// Login that was begun, and what its authorization server is asked with.
#[derive(Clone, Debug, FromRow)]
pub struct FlowRow {
    /// Id of the login.
    pub flow_id: Uuid,
    /// Id of the server.
    pub server_id: Uuid,
    /// Name of the server.
    pub server_name: String,
    /// Principal whose login it is.
    pub principal_id: Uuid,
    /// Generation of the login's configuration.
    pub client_generation: Uuid,
    /// True if the server is to be listed with this login.
    pub for_listing: bool,
    /// SHA-256 of `state`; `None` before the browser is sent away, and after it came back.
    pub state_hash: Option<Vec<u8>>,
    /// SHA-256 of the browser's cookie; `None` for a login that a program began.
    pub browser_hash: Option<Vec<u8>>,
    /// URL of the program that the browser is sent to in the end.
    pub loopback: Option<String>,
    /// Id of the data key that seals the verifier, or the tokens.
    pub data_key_id: Option<Uuid>,
    /// Envelope of the verifier, or of the tokens.
    pub sealed: Option<Vec<u8>>,
    /// URL of the server without its query.
    pub place: String,
    /// Issuer of the authorization server; `None` if only its endpoints are known.
    pub issuer: Option<String>,
    /// True if the server named the issuer when the login was configured.
    pub is_named: bool,
    /// URL that browsers are sent to.
    pub authorization_endpoint: Option<String>,
    /// URL of the token endpoint.
    pub token_endpoint: String,
    /// True if the authorization server names itself in its answers.
    pub require_iss: bool,
    /// Value of `resource`; `None` if none is sent.
    pub resource: Option<String>,
    /// Scopes of the configuration, and those that the server asked for.
    pub scopes: Vec<String>,
    /// Client id of the gateway.
    pub client_id: String,
    /// Way of authentication, a word of [`ClientAuthWay`](crate::domain::server_login::ClientAuthWay).
    pub client_auth: String,
    /// Id of the data key that seals the client secret.
    pub client_key_id: Option<Uuid>,
    /// Envelope of the client secret.
    pub client_sealed: Option<Vec<u8>>,
}

macro_rules! flow_query {
    ($condition:literal) => {
        concat!(
            "select f.flow_id, f.server_id, s.name as server_name, f.principal_id, f.client_generation, f.for_listing,
                 f.state_hash, f.browser_hash, f.loopback, f.data_key_id, f.sealed, o.place, o.issuer, o.is_named,
                 o.authorization_endpoint, o.token_endpoint, o.require_iss, o.resource,
                 array(select distinct unnest(o.scopes || coalesce(c.wanted_scopes, '{}')) order by 1) as scopes,
                 o.client_id, o.client_auth, o.data_key_id as client_key_id, o.client_sealed
             from connect_flows f
             join server_oauth o on o.tenant_id = f.tenant_id and o.server_id = f.server_id
                 and o.client_generation = f.client_generation
             join servers s on s.tenant_id = f.tenant_id and s.server_id = f.server_id and s.removed_at is null
                 and o.place = split_part(s.url, '?', 1)
             join tenants t on t.tenant_id = f.tenant_id and t.suspended_at is null and t.deleted_at is null
             left join connections c on c.tenant_id = f.tenant_id and c.server_id = f.server_id
                 and c.principal_id = f.principal_id and c.client_generation = f.client_generation
             where f.tenant_id = $1 and f.expires_at > now() and ",
            $condition
        )
    };
}

impl Store {
    /// Returns the login on a page of a principal at a server, or begins one; `None` while a program's is under way. A login whose
    /// browser may be at the authorization server is not replaced, nor is its time prolonged.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn open_flow(&self, new: &NewFlow) -> Result<Option<Uuid>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(new.tenant)).await?;
        let begun: Option<Uuid> = sqlx::query_scalar(
            "insert into connect_flows (tenant_id, flow_id, server_id, principal_id, client_generation, expires_at)
             values ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))
             on conflict (tenant_id, server_id, principal_id) do update set flow_id = excluded.flow_id,
                 client_generation = excluded.client_generation, for_listing = false, state_hash = null,
                 browser_hash = null, loopback = null, claim_hash = null, data_key_id = null, sealed = null,
                 created_at = now(), expires_at = excluded.expires_at
             where connect_flows.client_generation <> excluded.client_generation
                or connect_flows.expires_at < now() + case
                    when connect_flows.state_hash is null and connect_flows.loopback is null
                    then make_interval(secs => $6 / 2) else interval '0' end
             returning flow_id",
        )
        .bind(new.tenant.0)
        .bind(new.id)
        .bind(new.server.0)
        .bind(new.principal)
        .bind(new.client)
        .bind(new.keep_s)
        .fetch_optional(&mut *tx)
        .await?;
        let flow = match begun {
            Some(flow) => Some(flow),
            None => {
                sqlx::query_scalar(
                    "select flow_id from connect_flows
                     where tenant_id = $1 and server_id = $2 and principal_id = $3 and loopback is null",
                )
                .bind(new.tenant.0)
                .bind(new.server.0)
                .bind(new.principal)
                .fetch_optional(&mut *tx)
                .await?
            }
        };
        tx.commit().await?;
        Ok(flow)
    }

    /// Begins a login for a program, in the place of any other of the principal at the server.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn begin_flow(&self, new: &NewFlow, departure: &FlowDeparture) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(new.tenant)).await?;
        sqlx::query(
            "insert into connect_flows (tenant_id, flow_id, server_id, principal_id, client_generation, for_listing, state_hash,
                 loopback, data_key_id, sealed, expires_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now() + make_interval(secs => $11))
             on conflict (tenant_id, server_id, principal_id) do update set flow_id = excluded.flow_id,
                 client_generation = excluded.client_generation, for_listing = excluded.for_listing,
                 state_hash = excluded.state_hash, browser_hash = null, loopback = excluded.loopback, claim_hash = null,
                 data_key_id = excluded.data_key_id, sealed = excluded.sealed, created_at = now(),
                 expires_at = excluded.expires_at",
        )
        .bind(new.tenant.0)
        .bind(new.id)
        .bind(new.server.0)
        .bind(new.principal)
        .bind(new.client)
        .bind(departure.for_listing)
        .bind(departure.state.as_slice())
        .bind(&departure.loopback)
        .bind(departure.verifier.data_key_id)
        .bind(&departure.verifier.sealed)
        .bind(new.keep_s)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Notes that the browser of a login on a page leaves. Returns whether the login is still there.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn depart(
        &self,
        tenant: TenantId,
        flow: Uuid,
        departure: &FlowDeparture,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let updated = sqlx::query(
            "update connect_flows set state_hash = $3, browser_hash = $4, for_listing = $5, data_key_id = $6, sealed = $7
             where tenant_id = $1 and flow_id = $2 and loopback is null and expires_at > now()",
        )
        .bind(tenant.0)
        .bind(flow)
        .bind(departure.state.as_slice())
        .bind(departure.browser.as_ref().map(<[u8; 32]>::as_slice))
        .bind(departure.for_listing)
        .bind(departure.verifier.data_key_id)
        .bind(&departure.verifier.sealed)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(updated.rows_affected() > 0)
    }

    /// Returns a login that was begun, with the wrapped data keys of its tenant; `None` if there is none, its time is over, or the
    /// server's login was changed.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn flow(
        &self,
        tenant: TenantId,
        flow: Uuid,
    ) -> Result<Option<(FlowRow, Vec<DataKey>)>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found: Option<FlowRow> = sqlx::query_as(flow_query!("f.flow_id = $2"))
            .bind(tenant.0)
            .bind(flow)
            .fetch_optional(&mut *tx)
            .await?;
        let keys = secrets::keys(&mut tx, tenant).await?;
        tx.commit().await?;
        Ok(found.map(|found| (found, keys)))
    }

    /// Takes the browser of a login back. Returns whether it was under way: only one request gets `true`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn arrive(&self, tenant: TenantId, flow: Uuid, state: &[u8; 32]) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let taken = sqlx::query(
            "update connect_flows set state_hash = null, sealed = null, data_key_id = null
             where tenant_id = $1 and flow_id = $2 and state_hash = $3 and expires_at > now()",
        )
        .bind(tenant.0)
        .bind(flow)
        .bind(state.as_slice())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(taken.rows_affected() > 0)
    }

    /// Keeps the tokens of a login until its program claims them. Returns whether the login is still there.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn park(
        &self,
        tenant: TenantId,
        flow: Uuid,
        claim: &[u8; 32],
        tokens: &SealedText,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let parked = sqlx::query(
            "update connect_flows set claim_hash = $3, data_key_id = $4, sealed = $5,
                 expires_at = now() + make_interval(secs => $6)
             where tenant_id = $1 and flow_id = $2 and state_hash is null and claim_hash is null",
        )
        .bind(tenant.0)
        .bind(flow)
        .bind(claim.as_slice())
        .bind(tokens.data_key_id)
        .bind(&tokens.sealed)
        .bind(CLAIM_S)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(parked.rows_affected() > 0)
    }

    /// Returns the login of a principal whose tokens wait to be claimed with this code, with the wrapped data keys of its tenant.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn claimed_flow(
        &self,
        tenant: TenantId,
        principal: Uuid,
        claim: &[u8; 32],
    ) -> Result<Option<(FlowRow, Vec<DataKey>)>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found: Option<FlowRow> = sqlx::query_as(flow_query!("f.principal_id = $2 and f.claim_hash = $3"))
            .bind(tenant.0)
            .bind(principal)
            .bind(claim.as_slice())
            .fetch_optional(&mut *tx)
            .await?;
        let keys = secrets::keys(&mut tx, tenant).await?;
        tx.commit().await?;
        Ok(found.map(|found| (found, keys)))
    }

    /// Deletes a batch of logins whose time is over. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_expired_flows(&self) -> Result<bool, StoreError> {
        let expired = sqlx::query(
            "delete from connect_flows where (tenant_id, flow_id) in (
                 select tenant_id, flow_id from connect_flows where expires_at < now() order by expires_at limit $1)",
        );
        self.delete_expired(expired).await
    }
}
