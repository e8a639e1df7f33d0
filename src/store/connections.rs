//! Tokens at servers, sealed: those of the gateway itself, and those of people. One replica at a time asks for a new one: it holds a
//! lease, and no transaction, meanwhile.

use std::time::Duration;

use sqlx::{AssertSqlSafe, FromRow};
use uuid::Uuid;

use super::revisions;
use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::server_login::{LoginKind, LoginState};

/// Seconds without a failure after which earlier failures do not count.
const FORGIVEN_AFTER_S: f64 = 600.0;
/// Most tokens in a minute that are asked for because the server refused one. Beyond it, a refusal is taken to be about the request.
const REFUSED_PER_MINUTE: i32 = 6;

/// Login whose token is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoginOf {
    /// Tenant of the server.
    pub tenant: TenantId,
    /// Id of the server.
    pub server: ServerId,
    /// Principal whose login it is; `None` for the tenant's.
    pub principal: Option<Uuid>,
    /// Generation of the login's configuration.
    pub client: Uuid,
}

/// Sealed text, and the data key that seals it.
#[derive(Clone, Debug)]
pub struct SealedText {
    /// Id of the data key.
    pub data_key_id: Uuid,
    /// Envelope of the text.
    pub sealed: Vec<u8>,
}

impl SealedText {
    pub(super) fn of(data_key_id: Option<Uuid>, sealed: Option<Vec<u8>>) -> Option<SealedText> {
        Some(SealedText { data_key_id: data_key_id?, sealed: sealed? })
    }
}

/// Token as it is stored.
#[derive(Clone, Debug)]
pub struct SealedToken {
    /// Number of the token: one more with each.
    pub generation: i64,
    /// URL of the server without its query, for which the token is.
    pub place: String,
    /// Envelope of the token.
    pub token: SealedText,
    /// Seconds until the token ends; `None` if the provider does not say.
    pub expires_s: Option<f64>,
    /// Seconds until the next token is to be asked for; `None` if the provider does not say, or nothing renews it.
    pub renew_s: Option<f64>,
    /// Wrapped data keys of the tenant.
    pub keys: Vec<DataKey>,
}

/// Configuration of a login, as requests to its token endpoint need it.
#[derive(Clone, Debug)]
pub struct LoginConfig {
    /// URL of the server without its query.
    pub place: String,
    /// Issuer of the token endpoint; `None` if only the endpoint is known.
    pub issuer: Option<String>,
    /// URL of the token endpoint.
    pub token_endpoint: String,
    /// Value of `resource`; `None` if none is sent.
    pub resource: Option<String>,
    /// Value of `audience`; `None` if none is sent.
    pub audience: Option<String>,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Client id of the gateway.
    pub client_id: String,
    /// Way of authentication, a word of [`ClientAuthWay`](crate::domain::server_login::ClientAuthWay).
    pub client_auth: String,
    /// Client secret; `None` for a public client.
    pub client_secret: Option<SealedText>,
    /// Request for exchanges, a word of [`ExchangeGrant`](crate::domain::server_login::ExchangeGrant); `None` where nothing is exchanged.
    pub exchange_grant: Option<String>,
    /// Wrapped data keys of the tenant.
    pub keys: Vec<DataKey>,
}

/// Right of one request to ask the token endpoint.
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
    /// Way of logging in.
    pub kind: LoginKind,
    /// Configuration of the login.
    pub config: LoginConfig,
    /// Token that renews a person's login; `None` for the gateway's own.
    pub refresh: Option<SealedText>,
    id: Uuid,
}

/// Tokens to be stored.
#[derive(Clone, Debug, Default)]
pub struct NewTokens {
    /// Access token; `None` if the answer had none that can be used.
    pub access: Option<SealedText>,
    /// Token that renews it; `None` to keep the one of before.
    pub refresh: Option<SealedText>,
    /// Seconds until the access token ends; `None` if the provider does not say.
    pub expires_s: Option<f64>,
    /// Seconds until the next one is to be asked for.
    pub renew_s: Option<f64>,
}

/// Answer to a replica that wants a token.
#[derive(Clone, Debug)]
pub enum LoginTurn {
    /// There is one.
    Held(SealedToken),
    /// Right of the asking request to ask the token endpoint.
    Granted(Box<LoginClaim>),
    /// Another request asks for one.
    UnderWay,
    /// The server refuses a token after many others of this minute.
    RefusedAgain,
    /// The person has to log in; true if there was a login before.
    Needed(bool),
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

#[derive(FromRow)]
struct Configured {
    kind: String,
    place: String,
    issuer: Option<String>,
    token_endpoint: String,
    resource: Option<String>,
    audience: Option<String>,
    scopes: Vec<String>,
    client_id: String,
    client_auth: String,
    exchange_grant: Option<String>,
    data_key_id: Option<Uuid>,
    client_sealed: Option<Vec<u8>>,
}

impl Configured {
    fn into_config(self, keys: Vec<DataKey>) -> LoginConfig {
        LoginConfig {
            place: self.place,
            issuer: self.issuer,
            token_endpoint: self.token_endpoint,
            resource: self.resource,
            audience: self.audience,
            scopes: self.scopes,
            client_id: self.client_id,
            client_auth: self.client_auth,
            client_secret: SealedText::of(self.data_key_id, self.client_sealed),
            exchange_grant: self.exchange_grant,
            keys,
        }
    }
}

#[derive(FromRow)]
struct Found {
    connection_id: Uuid,
    generation: i64,
    state: String,
    data_key_id: Option<Uuid>,
    sealed: Option<Vec<u8>>,
    refresh_key_id: Option<Uuid>,
    refresh_sealed: Option<Vec<u8>>,
    expires_s: Option<f64>,
    renew_s: Option<f64>,
    refused_count: i32,
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

    /// Returns whether the server refused the token at hand, although it has not ended.
    fn is_refused(&self, seen: Option<i64>) -> bool {
        seen == Some(self.generation) && self.has_token(None)
    }

    fn is_due(&self) -> bool {
        self.renew_s.is_some_and(|seconds| seconds <= 0.0)
    }

    fn pause(&self) -> Option<f64> {
        self.retry_s.filter(|seconds| *seconds > 0.0)
    }

    /// Returns whether the token endpoint can give another token without a person.
    fn is_renewable(&self, kind: LoginKind) -> bool {
        match kind {
            LoginKind::ClientCredentials | LoginKind::TokenExchange => true,
            LoginKind::AuthorizationCode => self.refresh_sealed.is_some(),
        }
    }

    /// Returns the turn of whoever finds the row like this; `None` if it may ask the token endpoint.
    fn turn(
        &self,
        kind: LoginKind,
        place: &str,
        seen: Option<i64>,
        keys: impl FnOnce() -> Vec<DataKey>,
    ) -> Option<LoginTurn> {
        let is_renewable = self.is_renewable(kind);
        let may_ask = !self.is_leased && self.pause().is_none() && is_renewable;
        if self.has_token(seen) && !(self.is_due() && may_ask) {
            let token = SealedText::of(self.data_key_id, self.sealed.clone());
            return Some(token.map_or(LoginTurn::Gone, |token| {
                let renew_s = self.renew_s.filter(|_| is_renewable);
                let (generation, expires_s) = (self.generation, self.expires_s);
                let place = place.to_owned();
                LoginTurn::Held(SealedToken { generation, place, token, expires_s, renew_s, keys: keys() })
            }));
        }
        let is_refused_again = self.is_refused(seen) && self.refused_count >= REFUSED_PER_MINUTE;
        if is_refused_again && !self.is_leased {
            return Some(LoginTurn::RefusedAgain);
        }
        if self.is_leased {
            return Some(LoginTurn::UnderWay);
        }
        if !is_renewable {
            return Some(LoginTurn::Needed(true));
        }
        let retry_s = self.pause()?;
        let error = self.last_error.clone().unwrap_or_default();
        Some(LoginTurn::Failed { retry_s, state: LoginState::parse(&self.state), error })
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
        lease: Duration,
    ) -> Result<LoginTurn, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(login.tenant)).await?;
        let Some(configured) = configured(&mut tx, login).await? else { return Ok(LoginTurn::Gone) };
        let Some(kind) = LoginKind::parse(&configured.kind) else {
            let error = "this release does not know the kind of its login".to_owned();
            let state = Some(LoginState::LoginRequired);
            return Ok(LoginTurn::Failed { retry_s: 60.0, state, error });
        };
        let keys = secrets::keys(&mut tx, login.tenant).await?;
        // without a lock: many wait for one request
        let found = find(&mut tx, login, "").await?;
        let turn = found.and_then(|found| found.turn(kind, &configured.place, seen, || keys.clone()));
        if let Some(turn) = turn {
            tx.commit().await?;
            return Ok(turn);
        }
        if login.principal.is_none() {
            add(&mut tx, login).await?;
        }
        let Some(found) = find(&mut tx, login, " for update").await? else {
            tx.commit().await?;
            return Ok(LoginTurn::Needed(false));
        };
        if let Some(turn) = found.turn(kind, &configured.place, seen, || keys.clone()) {
            tx.commit().await?;
            return Ok(turn);
        }
        let id = Uuid::new_v4();
        sqlx::query(
            "update connections set lease_by = $3, lease_until = clock_timestamp() + make_interval(secs => $4),
                 refused_since = case when $5 and $6 = 0 then clock_timestamp() else refused_since end,
                 refused_count = case when $5 then $6 + 1 else refused_count end
             where tenant_id = $1 and connection_id = $2",
        )
        .bind(login.tenant.0)
        .bind(found.connection_id)
        .bind(id)
        .bind(lease.as_secs_f64())
        .bind(found.is_refused(seen))
        .bind(found.refused_count)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(LoginTurn::Granted(Box::new(LoginClaim {
            login,
            connection: found.connection_id,
            generation: found.generation,
            failures: found.failures.unsigned_abs(),
            kind,
            config: configured.into_config(keys),
            refresh: SealedText::of(found.refresh_key_id, found.refresh_sealed),
            id,
        })))
    }

    /// Returns the configuration of a login; `None` if it was changed or removed.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn login_config(&self, login: LoginOf) -> Result<Option<LoginConfig>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(login.tenant)).await?;
        let Some(configured) = configured(&mut tx, login).await? else { return Ok(None) };
        let keys = secrets::keys(&mut tx, login.tenant).await?;
        tx.commit().await?;
        Ok(Some(configured.into_config(keys)))
    }

    /// Stores the tokens that a claimed request brought, also after its lease, and returns their number; `None` if the login was
    /// changed, or another request brought some meanwhile. Without an access token the login waits for `pause`, after the failure `error`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn keep_tokens(
        &self,
        claim: &LoginClaim,
        new: &NewTokens,
        (pause, error): (Duration, Option<&str>),
    ) -> Result<Option<i64>, StoreError> {
        let LoginOf { tenant, server, client, .. } = claim.login;
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        revisions::hold(&mut tx, tenant).await?;
        let (access, refresh) = (new.access.as_ref(), new.refresh.as_ref());
        let generation: Option<i64> = sqlx::query_scalar(
            "update connections set generation = generation + 1, data_key_id = $5, sealed = $6,
                 state = case when $6::bytea is null then 'waiting' else 'connected' end,
                 refresh_key_id = coalesce($7, refresh_key_id), refresh_sealed = coalesce($8, refresh_sealed),
                 expires_at = clock_timestamp() + make_interval(secs => $9),
                 renew_at = clock_timestamp() + make_interval(secs => $10), lease_by = null,
                 retry_at = case when $6::bytea is null then clock_timestamp() + make_interval(secs => $13) end,
                 last_error = $14,
                 failures = case when $6::bytea is null then failures + 1
                     when failed_at > now() - make_interval(secs => $11) then failures else 0 end,
                 failed_at = case when $6::bytea is null then now() else failed_at end
             where tenant_id = $1 and connection_id = $2 and client_generation = $3 and generation = $4
               and exists (select from server_oauth o where o.tenant_id = $1 and o.server_id = $12
                   and o.client_generation = $3)
             returning generation",
        )
        .bind(tenant.0)
        .bind(claim.connection)
        .bind(client)
        .bind(claim.generation)
        .bind(access.map(|access| access.data_key_id))
        .bind(access.map(|access| access.sealed.as_slice()))
        .bind(refresh.map(|refresh| refresh.data_key_id))
        .bind(refresh.map(|refresh| refresh.sealed.as_slice()))
        .bind(new.expires_s)
        .bind(new.renew_s)
        .bind(FORGIVEN_AFTER_S)
        .bind(server.0)
        .bind(pause.as_secs_f64())
        .bind(error)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(generation)
    }

    /// Notes that a claimed request brought no token. The token of before stays until it ends. With `is_over`, nothing renews the login
    /// any more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn login_failed(
        &self,
        claim: &LoginClaim,
        (state, is_over): (LoginState, bool),
        retry: Duration,
        error: &str,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(claim.login.tenant)).await?;
        sqlx::query(
            "update connections set lease_by = null, failures = failures + 1, failed_at = now(),
                 state = case when $5 = 'waiting' and sealed is not null and (expires_at is null or expires_at > now())
                     then 'connected' else $5 end,
                 retry_at = clock_timestamp() + make_interval(secs => $6), last_error = $7,
                 refresh_sealed = case when $8 then null else refresh_sealed end,
                 refresh_key_id = case when $8 then null else refresh_key_id end
             where tenant_id = $1 and connection_id = $2 and generation = $3 and lease_by = $4",
        )
        .bind(claim.login.tenant.0)
        .bind(claim.connection)
        .bind(claim.generation)
        .bind(claim.id)
        .bind(state.as_str())
        .bind(retry.as_secs_f64())
        .bind(error)
        .bind(is_over)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Notes that a server refuses this token of the gateway at a listing, and forgets it. `retry` gives the pause after so many
    /// failures.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn token_refused(
        &self,
        (login, generation): (LoginOf, i64),
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
}

/// Adds the row of the gateway's own login, or empties one of another generation.
async fn add(tx: &mut Unit, login: LoginOf) -> Result<(), StoreError> {
    sqlx::query(
        "insert into connections (tenant_id, connection_id, server_id, client_generation) values ($1, $2, $3, $4)
         on conflict (tenant_id, server_id, coalesce(principal_id, '00000000-0000-0000-0000-000000000000'))
         do update set client_generation = excluded.client_generation, state = 'none', sealed = null,
             data_key_id = null, lease_by = null, retry_at = null, failures = 0, last_error = null
         where connections.client_generation <> excluded.client_generation",
    )
    .bind(login.tenant.0)
    .bind(Uuid::now_v7())
    .bind(login.server.0)
    .bind(login.client)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Returns the row of a login, with the given lock.
async fn find(tx: &mut Unit, login: LoginOf, lock: &'static str) -> Result<Option<Found>, StoreError> {
    let query = format!(
        "select connection_id, generation, state, data_key_id, sealed, refresh_key_id, refresh_sealed,
             extract(epoch from expires_at - clock_timestamp())::float8 as expires_s,
             extract(epoch from renew_at - clock_timestamp())::float8 as renew_s,
             case when refused_since > clock_timestamp() - interval '1 minute' then refused_count else 0 end as refused_count,
             coalesce(lease_by is not null and lease_until > clock_timestamp(), false) as is_leased,
             extract(epoch from retry_at - clock_timestamp())::float8 as retry_s, failures, last_error
         from connections where tenant_id = $1 and server_id = $2 and client_generation = $3
           and principal_id is not distinct from $4{lock}"
    );
    let found = sqlx::query_as(AssertSqlSafe(query))
        .bind(login.tenant.0)
        .bind(login.server.0)
        .bind(login.client)
        .bind(login.principal)
        .fetch_optional(&mut **tx)
        .await?;
    Ok(found)
}

/// Returns the configuration of a login, if it is still of this generation and for the place where the server is.
async fn configured(tx: &mut Unit, login: LoginOf) -> Result<Option<Configured>, StoreError> {
    let found = sqlx::query_as(
        "select o.kind, o.place, o.issuer, o.token_endpoint, o.resource, o.audience, o.scopes, o.client_id, o.client_auth,
             o.exchange_grant, o.data_key_id, o.client_sealed
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
