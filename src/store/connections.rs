//! Tokens of the gateway at servers, sealed. One replica at a time asks for a new one: it holds a lease, and no transaction, meanwhile.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::revisions;
use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ReplicaId, ServerId, TenantId};
use crate::domain::server_login::LoginState;

/// Seconds without a failure after which earlier failures do not count.
const FORGIVEN_AFTER_S: f64 = 600.0;

/// Login whose token is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoginOf {
    /// Tenant of the server.
    pub tenant: TenantId,
    /// Id of the server.
    pub server: ServerId,
    /// Generation of the login's configuration.
    pub client: Uuid,
}

/// Token as it is stored.
#[derive(Clone, Debug)]
pub struct SealedToken {
    /// Number of the token: one more with each.
    pub generation: i64,
    /// URL of the server without its query, for which the token is.
    pub place: String,
    /// Id of the data key that seals the token.
    pub data_key_id: Uuid,
    /// Envelope of the token.
    pub sealed: Vec<u8>,
    /// Seconds until the token ends; `None` if the provider does not say.
    pub expires_s: Option<f64>,
    /// Seconds until the next token is to be asked for; `None` if the provider does not say.
    pub renew_s: Option<f64>,
    /// Wrapped data keys of the tenant.
    pub keys: Vec<DataKey>,
}

/// Right of this replica to ask the token endpoint.
#[derive(Clone, Debug)]
pub struct LoginClaim {
    /// Login whose token is asked for.
    pub login: LoginOf,
    /// Id of the connection.
    pub connection: Uuid,
    /// Number of the token that is replaced.
    pub generation: i64,
    /// Failures so far.
    pub failures: u32,
    /// URL of the server without its query.
    pub place: String,
    /// URL of the token endpoint.
    pub token_endpoint: String,
    /// Value of `resource`; `None` if none is sent.
    pub resource: Option<String>,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Client id of the gateway.
    pub client_id: String,
    /// Way of authentication, a word of [`ClientAuthWay`](crate::domain::server_login::ClientAuthWay).
    pub client_auth: String,
    /// Id of the data key that seals the client secret.
    pub data_key_id: Uuid,
    /// Envelope of the client secret.
    pub client_sealed: Vec<u8>,
    /// Wrapped data keys of the tenant.
    pub keys: Vec<DataKey>,
    by: ReplicaId,
}

/// Answer to a replica that wants a token.
#[derive(Clone, Debug)]
pub enum LoginTurn {
    /// There is one.
    Held(SealedToken),
    /// Right of the asking replica to ask the token endpoint.
    Granted(Box<LoginClaim>),
    /// Another replica asks for one.
    UnderWay,
    /// The last request failed a short time ago.
    Failed {
        /// Seconds until the next.
        retry_s: f64,
        /// State of the login.
        state: Option<LoginState>,
        /// Failure, for administrators.
        error: String,
    },
    /// The login was changed or removed.
    Gone,
}

/// Connection as it may be shown.
#[derive(Clone, Debug, FromRow)]
pub struct ConnectionRow {
    /// Id of the connection.
    pub connection_id: Uuid,
    /// Principal whose login it is; `None` for the tenant's.
    pub principal_id: Option<Uuid>,
    /// State, a word of [`LoginState`].
    pub state: String,
    /// Number of tokens so far.
    pub generation: i64,
    /// End of the token; `None` without one, or if the provider does not say.
    pub expires_at: Option<DateTime<Utc>>,
    /// Time before which the token endpoint is not asked again; `None` after a success.
    pub retry_at: Option<DateTime<Utc>>,
    /// Failure of the last request; `None` after a success.
    pub last_error: Option<String>,
}

#[derive(FromRow)]
struct Configured {
    place: String,
    token_endpoint: String,
    resource: Option<String>,
    scopes: Vec<String>,
    client_id: String,
    client_auth: String,
    data_key_id: Uuid,
    client_sealed: Vec<u8>,
}

#[derive(FromRow)]
struct Found {
    connection_id: Uuid,
    generation: i64,
    state: String,
    data_key_id: Option<Uuid>,
    sealed: Option<Vec<u8>>,
    expires_s: Option<f64>,
    renew_s: Option<f64>,
    is_leased: bool,
    retry_s: Option<f64>,
    failures: i32,
    last_error: Option<String>,
}

impl Found {
    /// Returns whether there is a token that is newer than `seen` and has not ended.
    fn has_token(&self, seen: Option<i64>) -> bool {
        self.sealed.is_some()
            && seen.is_none_or(|seen| self.generation > seen)
            && self.expires_s.is_none_or(|seconds| seconds > 0.0)
    }

    fn is_due(&self) -> bool {
        self.renew_s.is_some_and(|seconds| seconds <= 0.0)
    }
}

impl Store {
    /// Returns the token of a login if it is newer than `seen`, or claims the request for a new one, for as long as the lease.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn take_login_turn(
        &self,
        login: LoginOf,
        seen: Option<i64>,
        by: ReplicaId,
        lease: Duration,
    ) -> Result<LoginTurn, StoreError> {
        let LoginOf { tenant, server, client } = login;
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let Some(configured) = configured(&mut tx, login).await? else { return Ok(LoginTurn::Gone) };
        sqlx::query(
            "insert into connections (tenant_id, connection_id, server_id, client_generation) values ($1, $2, $3, $4)
             on conflict (tenant_id, server_id, coalesce(principal_id, '00000000-0000-0000-0000-000000000000'))
             do update set client_generation = excluded.client_generation, state = 'none', sealed = null,
                 data_key_id = null, lease_by = null, retry_at = null, failures = 0, last_error = null
             where connections.client_generation <> excluded.client_generation",
        )
        .bind(tenant.0)
        .bind(Uuid::now_v7())
        .bind(server.0)
        .bind(client)
        .execute(&mut *tx)
        .await?;
        let found: Found = sqlx::query_as(
            "select connection_id, generation, state, data_key_id, sealed,
                 extract(epoch from expires_at - clock_timestamp())::float8 as expires_s,
                 extract(epoch from renew_at - clock_timestamp())::float8 as renew_s,
                 coalesce(lease_by is not null and lease_until > clock_timestamp(), false) as is_leased,
                 extract(epoch from retry_at - clock_timestamp())::float8 as retry_s, failures, last_error
             from connections where tenant_id = $1 and server_id = $2 and principal_id is null for update",
        )
        .bind(tenant.0)
        .bind(server.0)
        .fetch_one(&mut *tx)
        .await?;
        let retry_s = found.retry_s.filter(|seconds| *seconds > 0.0);
        let may_ask = !found.is_leased && retry_s.is_none();
        let keys = secrets::keys(&mut tx, tenant).await?;
        if found.has_token(seen) && !(found.is_due() && may_ask) {
            tx.commit().await?;
            let (Some(sealed), Some(data_key_id)) = (found.sealed, found.data_key_id) else {
                return Ok(LoginTurn::Gone);
            };
            let (expires_s, renew_s) = (found.expires_s, found.renew_s);
            let (generation, place) = (found.generation, configured.place);
            let token = SealedToken { generation, place, data_key_id, sealed, expires_s, renew_s, keys };
            return Ok(LoginTurn::Held(token));
        }
        if found.is_leased {
            tx.commit().await?;
            return Ok(LoginTurn::UnderWay);
        }
        if let Some(retry_s) = retry_s {
            tx.commit().await?;
            let (state, error) = (LoginState::parse(&found.state), found.last_error.unwrap_or_default());
            return Ok(LoginTurn::Failed { retry_s, state, error });
        }
        sqlx::query(
            "update connections set lease_by = $3, lease_until = clock_timestamp() + make_interval(secs => $4)
             where tenant_id = $1 and connection_id = $2",
        )
        .bind(tenant.0)
        .bind(found.connection_id)
        .bind(by.0)
        .bind(lease.as_secs_f64())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(LoginTurn::Granted(Box::new(LoginClaim {
            login,
            connection: found.connection_id,
            generation: found.generation,
            failures: found.failures.unsigned_abs(),
            place: configured.place,
            token_endpoint: configured.token_endpoint,
            resource: configured.resource,
            scopes: configured.scopes,
            client_id: configured.client_id,
            client_auth: configured.client_auth,
            data_key_id: configured.data_key_id,
            client_sealed: configured.client_sealed,
            keys,
            by,
        })))
    }

    /// Stores the token that a claimed request brought, and returns its number; `None` if the login was changed, or another
    /// replica took over meanwhile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn keep_token(
        &self,
        claim: &LoginClaim,
        (data_key_id, sealed): (Uuid, &[u8]),
        (expires_s, renew_s): (Option<f64>, Option<f64>),
    ) -> Result<Option<i64>, StoreError> {
        let LoginOf { tenant, server, client } = claim.login;
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        revisions::hold(&mut tx, tenant).await?;
        let generation: Option<i64> = sqlx::query_scalar(
            "update connections set generation = generation + 1, state = 'connected', data_key_id = $6, sealed = $7,
                 expires_at = clock_timestamp() + make_interval(secs => $8),
                 renew_at = clock_timestamp() + make_interval(secs => $9),
                 lease_by = null, retry_at = null, last_error = null,
                 failures = case when failed_at > now() - make_interval(secs => $10) then failures else 0 end
             where tenant_id = $1 and connection_id = $2 and client_generation = $3 and generation = $4 and lease_by = $5
               and exists (select from server_oauth o where o.tenant_id = $1 and o.server_id = $11
                   and o.client_generation = $3)
             returning generation",
        )
        .bind(tenant.0)
        .bind(claim.connection)
        .bind(client)
        .bind(claim.generation)
        .bind(claim.by.0)
        .bind(data_key_id)
        .bind(sealed)
        .bind(expires_s)
        .bind(renew_s)
        .bind(FORGIVEN_AFTER_S)
        .bind(server.0)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(generation)
    }

    /// Notes that a claimed request brought no token. The token of before stays until it ends.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn login_failed(
        &self,
        claim: &LoginClaim,
        state: LoginState,
        retry: Duration,
        error: &str,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(claim.login.tenant)).await?;
        sqlx::query(
            "update connections set lease_by = null, failures = failures + 1, failed_at = now(),
                 state = case when $5 = 'waiting' and sealed is not null and (expires_at is null or expires_at > now())
                     then 'connected' else $5 end,
                 retry_at = clock_timestamp() + make_interval(secs => $6), last_error = $7
             where tenant_id = $1 and connection_id = $2 and generation = $3 and lease_by = $4",
        )
        .bind(claim.login.tenant.0)
        .bind(claim.connection)
        .bind(claim.generation)
        .bind(claim.by.0)
        .bind(state.as_str())
        .bind(retry.as_secs_f64())
        .bind(error)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Notes that a server refuses a token that had just been issued, and forgets the token. `retry` gives the pause after so
    /// many failures.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn token_refused(
        &self,
        login: LoginOf,
        generation: i64,
        error: &str,
        retry: impl Fn(u32) -> Duration + Send,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(login.tenant)).await?;
        let row: Option<(Uuid, i32)> = sqlx::query_as(
            "select connection_id, failures from connections
             where tenant_id = $1 and server_id = $2 and principal_id is null and client_generation = $3
               and generation = $4 and sealed is not null for update",
        )
        .bind(login.tenant.0)
        .bind(login.server.0)
        .bind(login.client)
        .bind(generation)
        .fetch_optional(&mut *tx)
        .await?;
        let Some((connection, failures)) = row else { return Ok(()) };
        sqlx::query(
            "update connections set state = 'login_required', sealed = null, data_key_id = null, failures = failures + 1,
                 failed_at = now(), retry_at = clock_timestamp() + make_interval(secs => $3), last_error = $4
             where tenant_id = $1 and connection_id = $2",
        )
        .bind(login.tenant.0)
        .bind(connection)
        .bind(retry(failures.unsigned_abs()).as_secs_f64())
        .bind(error)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Ends the pause after failures of a server's logins: somebody asked for a try.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_login_pause(&self, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        sqlx::query(
            "update connections set retry_at = null
             where tenant_id = $1 and server_id = $2 and retry_at is not null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Returns the connections of a server.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_connections(
        &self,
        tenant: TenantId,
        server: ServerId,
    ) -> Result<Vec<ConnectionRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(
            "select connection_id, principal_id, state, generation, expires_at, retry_at, last_error
             from connections where tenant_id = $1 and server_id = $2 order by connection_id",
        )
        .bind(tenant.0)
        .bind(server.0)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }
}

/// Returns the configuration of a login, if it is still of this generation and for the place where the server is.
async fn configured(tx: &mut Unit, login: LoginOf) -> Result<Option<Configured>, StoreError> {
    let found = sqlx::query_as(
        "select o.place, o.token_endpoint, o.resource, o.scopes, o.client_id, o.client_auth, o.data_key_id, o.client_sealed
         from server_oauth o join servers s on s.tenant_id = o.tenant_id and s.server_id = o.server_id
         where o.tenant_id = $1 and o.server_id = $2 and o.client_generation = $3 and s.removed_at is null
           and o.place = split_part(s.url, '?', 1)",
    )
    .bind(login.tenant.0)
    .bind(login.server.0)
    .bind(login.client)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(found)
}
