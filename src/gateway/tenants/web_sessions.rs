//! Sessions of people at the console. A session stands for the credential that began it: each request maps it to the caller that the
//! credential is by now, so nothing of a revoked key outlives it.
//!
//! A request costs one look-up in the database. So a session that was ended on one replica has ended on all.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Tenants;
use super::authenticate::{AuthError, hash_key};
use super::live::LiveTenant;
use super::live::access::Caller;
use super::logins::PersonLogin;
use crate::domain::id::{IssuerId, KeyId, TenantId};
use crate::domain::seal::{self, NONCE_BYTES, Place};
use crate::domain::web_session::{CookieSecret, SECRET_BYTES, SESSION_LIFETIME, SessionKind};
use crate::gateway::credentials::{data_key, open_data_key, random, unsealable};
use crate::gateway::error::GatewayError;
use crate::store::{
    NewWebSession, RevisionKind, SessionHolder, SessionLogin, SessionTouch, StoreError, WebSessionRow,
    WebSessionRules,
};

/// Rules of all sessions.
const RULES: WebSessionRules = WebSessionRules {
    idle: Duration::from_secs(8 * 3600),
    lifetime: SESSION_LIFETIME,
    per_principal_max: 50,
};
/// Most look-ups of sessions at the same time: cookies of nobody leave connections to the database for others.
const LOOKUPS_MAX: usize = 3;
/// Most begins and ends of logins at the same time, which wait for no look-up.
const LOGINS_MAX: usize = 2;
/// Longest ID token that a logout sends along, in bytes.
const HINT_BYTES_MAX: usize = 2048;
/// Longest wait for a look-up.
const LOOKUP_WAIT_MAX: Duration = Duration::from_secs(2);

/// Look-ups of sessions on this replica.
#[derive(Debug)]
pub(super) struct WebSessions {
    lookups: Semaphore,
    logins: Semaphore,
}

impl Default for WebSessions {
    fn default() -> WebSessions {
        WebSessions { lookups: Semaphore::new(LOOKUPS_MAX), logins: Semaphore::new(LOGINS_MAX) }
    }
}

/// Session of a request, and the caller that it stands for.
#[derive(Clone, Debug)]
pub struct ConsoleSession {
    /// Id by which its holder sees and ends the session.
    pub id: Uuid,
    /// Caller, as the credential of the session is mapped now.
    pub caller: Arc<Caller>,
    /// Kind of the credential.
    pub kind: SessionKind,
    /// Session at the provider of a person; `None` for keys.
    pub provider: Option<Arc<ProviderSession>>,
    /// Time of the login.
    pub created_at: DateTime<Utc>,
    /// End of the session.
    pub expires_at: DateTime<Utc>,
}

/// Login of a person behind a session. `Debug` does not show the ID token.
pub struct ProviderSession {
    /// Name of the issuer.
    pub issuer: String,
    /// URL where the provider ends its own session; `None` if it has none.
    pub logout_url: Option<String>,
    id_token: Zeroizing<String>,
}

impl fmt::Debug for ProviderSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSession").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Cookie of a new session. `Debug` does not show it.
#[derive(Debug)]
pub struct SessionCookie {
    /// Secret that the cookie holds.
    pub secret: CookieSecret,
    /// Longest time that the session lasts.
    pub lifetime: Duration,
}

/// Session as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Id by which the session is ended.
    pub id: Uuid,
    /// Address that the login came from; `None` if it is unknown.
    pub address: Option<String>,
    /// Time of the login.
    pub created_at: DateTime<Utc>,
    /// Time of the last request, written at most once a minute.
    pub seen_at: DateTime<Utc>,
    /// End of the session.
    pub expires_at: DateTime<Utc>,
}

fn holder_of(caller: &Caller) -> SessionHolder {
    match caller.key {
        Some(key) => SessionHolder { tenant: Some(caller.tenant_id()), principal: key.0 },
        None => SessionHolder { tenant: None, principal: Uuid::nil() },
    }
}

fn failed(error: StoreError) -> GatewayError {
    GatewayError::from_store(error, "session")
}

async fn permit_of(semaphore: &Semaphore) -> Result<SemaphorePermit<'_>, AuthError> {
    let permit = timeout(LOOKUP_WAIT_MAX, semaphore.acquire()).await;
    permit.ok().and_then(Result::ok).ok_or(AuthError::Unavailable)
}

impl Tenants {
    /// Begins a session of the holder of an API key, or of the bootstrap key.
    ///
    /// # Errors
    /// [`GatewayError::Unavailable`] if it cannot be stored.
    pub async fn begin_key_session(
        &self,
        caller: &Caller,
        key: &str,
        address: Option<IpAddr>,
    ) -> Result<SessionCookie, GatewayError> {
        let secret = CookieSecret::new(random::<SECRET_BYTES>()?);
        let kind = if caller.key.is_some() { SessionKind::ApiKey } else { SessionKind::BootstrapKey };
        let new = NewWebSession {
            hash: secret.hash(),
            id: Uuid::new_v4(),
            kind: kind.as_str(),
            holder: holder_of(caller),
            proof: caller.key.is_none().then(|| secret.proof_of(&hash_key(key))),
            login: None,
            address: address.map(|address| address.to_string()),
        };
        self.store.begin_web_session(&new, RULES).await.map_err(failed)?;
        Ok(SessionCookie { secret, lifetime: RULES.lifetime })
    }

    /// Begins a session of a person who logged in at a provider.
    ///
    /// # Errors
    /// [`GatewayError::Unavailable`] if it cannot be sealed or stored.
    pub async fn begin_person_session(
        &self,
        login: &PersonLogin,
        address: Option<IpAddr>,
    ) -> Result<SessionCookie, GatewayError> {
        let secret = CookieSecret::new(random::<SECRET_BYTES>()?);
        let (data_key, key) = data_key(&self.store, &self.options.keyring, login.tenant).await?;
        let place = Place::WebSession { tenant: login.tenant, session: &secret.hash() };
        let token = login.identified.id_token.as_bytes();
        let sealed = seal::seal(&key, random::<NONCE_BYTES>()?, place, token).map_err(unsealable)?;
        let new = NewWebSession {
            hash: secret.hash(),
            id: Uuid::new_v4(),
            kind: SessionKind::Person.as_str(),
            holder: holder_of(&login.caller),
            proof: None,
            login: Some(SessionLogin {
                issuer: login.issuer.0,
                sub: login.identified.sub.clone(),
                sid: login.identified.sid.clone(),
                logout_url: login.identified.logout_url.clone(),
                data_key,
                sealed,
            }),
            address: address.map(|address| address.to_string()),
        };
        self.store.begin_web_session(&new, RULES).await.map_err(failed)?;
        Ok(SessionCookie { secret, lifetime: RULES.lifetime })
    }

    /// Returns the URL at which a browser ends the provider's session as well; `None` where there is none.
    pub fn provider_logout(&self, session: &ConsoleSession) -> Option<String> {
        let (options, provider) = (self.options.logins.browser.as_ref()?, session.provider.as_ref()?);
        let mut url = Url::parse(provider.logout_url.as_deref()?).ok()?;
        // proxies refuse large response headers
        if provider.id_token.len() <= HINT_BYTES_MAX {
            url.query_pairs_mut().append_pair("id_token_hint", &provider.id_token);
        }
        url.query_pairs_mut().append_pair("client_id", &options.client_id).append_pair(
            "post_logout_redirect_uri",
            &format!("{}/console/login", options.public_url.as_str()),
        );
        Some(url.into())
    }

    /// Returns the session of a cookie. `tenant` is the one that the bootstrap key acts in.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`] if there is no such session, or what began it is not valid any more; otherwise as for the
    /// credential itself.
    pub async fn web_session(
        self: &Arc<Self>,
        cookie: &str,
        tenant: Option<&str>,
        touch: SessionTouch,
    ) -> Result<ConsoleSession, AuthError> {
        if self.is_stale() {
            return Err(AuthError::Unavailable);
        }
        let session = self.session_of_cookie(cookie, tenant, touch).await?;
        Ok(ConsoleSession { caller: self.admitted(session.caller)?, ..session })
    }

    /// Returns a permit for work at the database that a login causes before anybody knows whose it is.
    pub(in crate::gateway) async fn stranger_permit(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        permit_of(&self.web_sessions.logins).await
    }

    /// Returns the session of a cookie, whose caller is not admitted yet.
    pub(super) async fn session_of_cookie(
        self: &Arc<Self>,
        cookie: &str,
        tenant: Option<&str>,
        touch: SessionTouch,
    ) -> Result<ConsoleSession, AuthError> {
        let secret = CookieSecret::read(cookie).ok_or(AuthError::Unauthenticated)?;
        let row = self.session_row(&secret, touch).await?.ok_or(AuthError::Unauthenticated)?;
        let kind = SessionKind::parse(&row.kind).ok_or(AuthError::Unauthenticated)?;
        let mut provider = None;
        let caller = match kind {
            SessionKind::ApiKey => self.caller_of_key(&row).await,
            SessionKind::BootstrapKey => {
                let proof = row.proof.as_deref().unwrap_or_default();
                match self.options.bootstrap.is_proved(proof, |hash| secret.proof_of(hash)) {
                    true => self.platform_caller(tenant).await,
                    false => Err(AuthError::Unauthenticated),
                }
            }
            SessionKind::Person => {
                self.caller_of_person(&row, &secret.hash()).await.map(|(caller, login)| {
                    provider = Some(Arc::new(login));
                    caller
                })
            }
        };
        // of anything else the row stays until its end: another replica may know what this one does not know yet
        let is_gone = matches!(
            (kind, &caller),
            (SessionKind::ApiKey, Err(AuthError::Unauthenticated))
                | (SessionKind::Person, Err(AuthError::TokenExpired))
        );
        if is_gone {
            if let Err(error) = self.store.end_web_session(&secret.hash()).await {
                tracing::warn!(%error, "a session that is not valid any more could not be deleted");
            }
            return Err(AuthError::Unauthenticated);
        }
        let WebSessionRow { id, created_at, expires_at, .. } = row;
        Ok(ConsoleSession { id, caller: caller?, kind, provider, created_at, expires_at })
    }

    /// Returns the row of a session; `None` if there is none, or it has ended.
    async fn session_row(
        &self,
        secret: &CookieSecret,
        touch: SessionTouch,
    ) -> Result<Option<WebSessionRow>, AuthError> {
        let _permit = permit_of(&self.web_sessions.lookups).await?;
        self.store.web_session(&secret.hash(), RULES, touch).await.map_err(|error| {
            tracing::warn!(%error, "a session could not be looked up");
            AuthError::Unavailable
        })
    }

    /// Returns whether a session has ended, by logout or by time. The question does not lengthen it.
    ///
    /// # Errors
    /// [`AuthError::Unavailable`] if that cannot be told now.
    pub async fn has_session_ended(&self, secret: &CookieSecret) -> Result<bool, AuthError> {
        Ok(self.session_row(secret, SessionTouch::Look).await?.is_none())
    }

    /// Returns the caller of the API key that began a session.
    async fn caller_of_key(&self, row: &WebSessionRow) -> Result<Arc<Caller>, AuthError> {
        let tenant = TenantId(row.for_tenant.ok_or(AuthError::Unauthenticated)?);
        let live = self.live_for_login(tenant).await?.ok_or(AuthError::Unauthenticated)?;
        let find = |live: &LiveTenant| {
            let access = live.access();
            let access = access.as_ref().as_ref();
            access.and_then(|access| access.by_id.get(&KeyId(row.principal_id)).cloned())
        };
        if let Some(caller) = find(&live) {
            return Ok(caller);
        }
        // the snapshot may be older than a key that was made, and logged in, on another replica a moment ago
        let rev = live.access().as_ref().as_ref().map_or(0, |access| access.rev);
        self.reload(&live, RevisionKind::Access, rev + 1).await.map_err(|error| {
            tracing::warn!(%error, %tenant, "a tenant could not be loaded");
            AuthError::Unavailable
        })?;
        find(&live).ok_or(AuthError::Unauthenticated)
    }

    /// Returns the caller that the person who began a session is by now, and the login at the provider.
    async fn caller_of_person(
        self: &Arc<Self>,
        row: &WebSessionRow,
        hash: &[u8; 32],
    ) -> Result<(Arc<Caller>, ProviderSession), AuthError> {
        let gone = || AuthError::Unauthenticated;
        let tenant = TenantId(row.for_tenant.ok_or_else(gone)?);
        let issuer = IssuerId(row.issuer_id.ok_or_else(gone)?);
        let (key_id, sealed) = (row.data_key_id.ok_or_else(gone)?, row.sealed.as_deref().ok_or_else(gone)?);
        let keys = self.store.data_keys(tenant).await.map_err(|error| {
            tracing::warn!(%error, %tenant, "the keys of a session could not be loaded");
            AuthError::Unavailable
        })?;
        let key = open_data_key(&self.options.keyring, tenant, &keys, key_id).ok_or_else(gone)?;
        let token =
            seal::open(&key, Place::WebSession { tenant, session: hash }, sealed).map_err(|_| gone())?;
        let id_token =
            std::str::from_utf8(&token).map(|token| Zeroizing::new(token.to_owned())).map_err(|_| gone())?;
        let ends_s = row.expires_at.timestamp();
        let (caller, issuer) = self.person_of_session((issuer, tenant), &id_token, ends_s).await?;
        // the entry may take the subject from another claim by now
        if caller.key != Some(KeyId(row.principal_id)) {
            return Err(gone());
        }
        Ok((caller, ProviderSession { issuer, logout_url: row.logout_url.clone(), id_token }))
    }

    /// Returns the sessions of a caller, the newest first.
    ///
    /// # Errors
    /// [`GatewayError::Unavailable`].
    pub async fn web_sessions_of(&self, caller: &Caller) -> Result<Vec<SessionView>, GatewayError> {
        let rows = self.store.web_sessions_of(holder_of(caller), RULES).await.map_err(failed)?;
        let view = |row: WebSessionRow| SessionView {
            id: row.id,
            address: row.address,
            created_at: row.created_at,
            seen_at: row.seen_at,
            expires_at: row.expires_at,
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Ends the session of a cookie, if there is one.
    ///
    /// # Errors
    /// [`GatewayError::Unavailable`].
    pub async fn end_web_session(&self, cookie: &str) -> Result<(), GatewayError> {
        let Some(secret) = CookieSecret::read(cookie) else { return Ok(()) };
        self.store.end_web_session(&secret.hash()).await.map_err(failed)
    }

    /// Ends a session of a caller, on all replicas.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] if it is not the caller's, or has ended, and [`GatewayError::Unavailable`].
    pub async fn end_web_session_of(&self, caller: &Caller, id: Uuid) -> Result<(), GatewayError> {
        self.store.end_web_session_of(holder_of(caller), id).await.map_err(failed)
    }
}
