//! Authentication: finds the caller of a presented key.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::SemaphorePermit;

use super::Tenants;
use super::live::LiveTenant;
use super::live::access::{Access, Caller};
use super::refused::{PersonRefusal, RefusedPerson};
use crate::domain::id::{KeyId, PLATFORM_TENANT, TenantId};
use crate::domain::identity::is_token;
use crate::domain::person::Person;
use crate::domain::settings::{Effective, Rates, Settings};
use crate::domain::tenant::Role;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::store::{RevisionKind, SessionTouch, StoreError};

/// Reason why a key was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The key is missing, unknown, expired or revoked, without distinction.
    Unauthenticated,
    /// The key cannot be checked at present: the database has been unreachable for too long, or all look-ups are busy.
    Unavailable,
    /// The key is valid, but its tenant is suspended.
    Suspended,
    /// The tenant that a platform key or a person named does not exist, or is not the person's.
    NoSuchTenant,
    /// The token of an identity provider cannot be verified, without distinction.
    TokenUnverifiable,
    /// The signature of the token is good, and it has expired, or was issued before a block.
    TokenExpired,
    /// The signature of the token is good, and it was issued for another audience.
    TokenAudience,
    /// The person is known, and has no tenant or no rule here.
    NoRule(Box<RefusedPerson>),
    /// The person is blocked.
    Blocked(Box<RefusedPerson>),
    /// The person belongs to several tenants, and named none.
    SeveralTenants,
    /// The issuer's keys are unknown or too old, and cannot be fetched now.
    KeysUnavailable,
    /// Too many tokens of the issuer wait for their signatures to be verified.
    LoginsBusy,
}

impl AuthError {
    /// Returns whether the credential itself was refused. The end of a token's time is none: it comes to every client, each hour.
    fn is_refusal(&self) -> bool {
        matches!(self, AuthError::Unauthenticated | AuthError::TokenUnverifiable | AuthError::TokenAudience)
    }
}

/// Credential of a request, by the header that held it.
#[derive(Clone, Copy)]
pub enum PresentedCredential<'a> {
    /// Value of `X-API-Key`: never a token.
    ApiKey(&'a str),
    /// Bearer token: an API key, or a token of an identity provider.
    Bearer(&'a str),
    /// Cookie of a session of the console.
    Session(&'a str),
}

impl<'a> PresentedCredential<'a> {
    /// Returns the secret itself.
    pub fn text(self) -> &'a str {
        match self {
            PresentedCredential::ApiKey(text)
            | PresentedCredential::Bearer(text)
            | PresentedCredential::Session(text) => text,
        }
    }
}

impl fmt::Debug for PresentedCredential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentedCredential")
    }
}

/// Prefix of every API key.
pub(super) const KEY_PREFIX: &str = "mcpk_";
/// Longest wait for a permit to load the tenant of a key.
const ENTRY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest key that is looked up, in bytes.
const KEY_BYTES_MAX: usize = 200;

/// Returns the SHA-256 of a key, which is stored and compared.
pub(crate) fn hash_key(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

impl Tenants {
    /// Returns the caller of a key. A key in a snapshot costs no query, an unknown one a single bounded look-up. `tenant` is
    /// the header `X-Tenant`, which only the bootstrap key and people may use.
    ///
    /// # Errors
    /// [`AuthError`], by the reason.
    pub async fn authenticate(
        self: &Arc<Self>,
        credential: PresentedCredential<'_>,
        tenant: Option<&str>,
    ) -> Result<Arc<Caller>, AuthError> {
        if self.is_stale() {
            return Err(AuthError::Unavailable);
        }
        let caller = self.authenticated(credential, tenant).await?;
        self.admitted(caller)
    }

    /// Returns a caller who was found, if nothing but the credential keeps requests out: expiry, suspension, a tenant that could not be
    /// loaded.
    pub(super) fn admitted(&self, caller: Arc<Caller>) -> Result<Arc<Caller>, AuthError> {
        if caller.key.is_none() {
            return if self.is_behind(&caller) { Err(AuthError::Unavailable) } else { Ok(caller) };
        }
        if self.is_behind(&caller) {
            return Err(AuthError::Unavailable);
        }
        let now = clock::now();
        if caller.is_expired(now) {
            return Err(AuthError::Unauthenticated);
        }
        if caller.is_suspended() {
            self.suspensions.count(&caller, now);
            return Err(AuthError::Suspended);
        }
        self.uses.key_used(&caller, now);
        Ok(caller)
    }

    /// Counts a request that was refused: of a person whose token is good in the log of the tenant, else in the platform's.
    pub fn count_refusal(&self, error: &AuthError, presented: Option<&str>, address: Option<IpAddr>) {
        match error {
            AuthError::Blocked(person) => self.count_refused(person, PersonRefusal::Blocked, address),
            AuthError::NoRule(person) => self.count_refused(person, PersonRefusal::NoRule, address),
            other if other.is_refusal() => self.count_auth_failure(presented, address),
            _ => {}
        }
    }

    /// Returns the caller of a credential. A bearer token with three parts between dots is a token of an identity provider, any other a
    /// key: neither is ever tried as the other.
    async fn authenticated(
        self: &Arc<Self>,
        credential: PresentedCredential<'_>,
        tenant: Option<&str>,
    ) -> Result<Arc<Caller>, AuthError> {
        // all but a key that is known is boxed: kilobytes that would be part of every request's future, and copied with it
        let secret = credential.text();
        if let PresentedCredential::Session(cookie) = credential {
            let session = Box::pin(self.session_of_cookie(cookie, tenant, SessionTouch::Use));
            return session.await.map(|session| session.caller);
        }
        let hash = hash_key(secret);
        if self.options.bootstrap.is(&hash) {
            return Box::pin(self.platform_caller(tenant)).await;
        }
        if let PresentedCredential::Bearer(token) = credential
            && is_token(token)
        {
            return Box::pin(self.authenticate_token((token, &hash), tenant)).await;
        }
        match self.live.caller(&hash) {
            Some(caller) => Ok(caller),
            None => Box::pin(self.look_up(secret, &hash)).await,
        }
    }

    /// Returns whether a caller that was accepted earlier still would be; for open streams.
    pub fn is_valid(&self, caller: &Caller) -> bool {
        if self.is_stale() || self.is_behind(caller) || caller.is_expired(clock::now()) {
            return false;
        }
        let Some(tenant) = &caller.tenant else { return true };
        let access = tenant.access();
        let now = clock::now();
        let known = |access: &Access| match caller.key {
            None => true,
            Some(_) if access.is_suspended => false,
            Some(_) if caller.login.is_some() => self.holds(caller),
            Some(key) => access.by_id.get(&key).is_some_and(|current| !current.is_expired(now)),
        };
        access.as_ref().as_ref().is_some_and(known)
    }

    /// Returns whether keys and revisions have been unconfirmed for too long. This bounds the life of a revoked key.
    pub(in crate::gateway) fn is_stale(&self) -> bool {
        self.live.confirmed_ago().is_none_or(|ago| ago > self.options.stale_max)
    }

    /// Returns whether the keys of the caller's tenant have been out of date for too long, because they could not be loaded.
    fn is_behind(&self, caller: &Caller) -> bool {
        caller.tenant.as_ref().is_some_and(|live| live.lag.is_over(self.options.stale_max))
    }

    async fn look_up(&self, secret: &str, hash: &[u8; 32]) -> Result<Arc<Caller>, AuthError> {
        if !secret.starts_with(KEY_PREFIX) || secret.len() > KEY_BYTES_MAX {
            return Err(AuthError::Unauthenticated);
        }
        let found = self.live.lookups.find(&self.store, hash).await;
        let found = found.map_err(|_| AuthError::Unavailable)?.ok_or(AuthError::Unauthenticated)?;
        let _permit = self.enter_permit().await?;
        let unavailable = |error: StoreError| {
            tracing::warn!(%error, tenant = %found.tenant, "a tenant could not be loaded");
            AuthError::Unavailable
        };
        let live = self.tenant(found.tenant, None).await.map_err(unavailable)?;
        if let Some(caller) = self.live.caller(hash) {
            return Ok(caller);
        }
        // the tenant is live, but its snapshot may be older than a key made on another replica a moment ago
        let rev = live.access().as_ref().as_ref().map_or(0, |access| access.rev);
        self.reload(&live, RevisionKind::Access, rev + 1).await.map_err(unavailable)?;
        self.live.caller(hash).ok_or(AuthError::Unauthenticated)
    }

    /// Returns a permit to load a tenant.
    pub(super) async fn enter_permit(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        let permit = tokio::time::timeout(ENTRY_WAIT_MAX, self.live.entries.acquire()).await;
        permit.map_err(|_| AuthError::Unavailable)?.map_err(|_| AuthError::Unavailable)
    }

    async fn find_tenant_id(&self, name: &str) -> Result<TenantId, AuthError> {
        let found = self.store.find_tenant(name).await.map_err(|error| match error {
            StoreError::NotFound => AuthError::NoSuchTenant,
            _ => AuthError::Unavailable,
        })?;
        Ok(found.tenant_id())
    }

    pub(super) async fn platform_caller(&self, tenant: Option<&str>) -> Result<Arc<Caller>, AuthError> {
        let live = match tenant {
            None => None,
            Some(name) => {
                let id = match self.live.by_name(name) {
                    Some(live) => live.id,
                    None => self.find_tenant_id(name).await?,
                };
                // the tenant may still be loading
                let live = self.tenant(id, Some(name)).await.map_err(|_| AuthError::Unavailable)?;
                if live.access().is_none() {
                    return Err(AuthError::NoSuchTenant);
                }
                Some(live)
            }
        };
        let access = live.as_ref().map(|live| live.access());
        let access = access.as_ref().and_then(|access| access.as_ref().as_ref());
        Ok(Arc::new(self.platform_in(live.as_ref(), access)))
    }

    /// Returns the caller that a key would be now; without a key, one that has nothing of its own but its tenant's.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] for a key that is not live, [`GatewayError::Invalid`] without a tenant.
    pub(in crate::gateway) fn stand_in(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
    ) -> Result<Arc<Caller>, GatewayError> {
        if caller.login.is_some() && key == caller.key {
            return self.remapped(caller).ok_or(GatewayError::NotFound("identity"));
        }
        let live = caller.tenant()?;
        let access = live.access();
        let access = access.as_ref().as_ref();
        match key {
            None => Ok(Arc::new(self.platform_in(Some(live), access))),
            Some(key) => {
                access.and_then(|access| access.by_id.get(&key).cloned()).ok_or(GatewayError::NotFound("key"))
            }
        }
    }

    /// Returns the caller of the bootstrap key without a tenant.
    pub fn platform(&self) -> Caller {
        self.platform_in(None, None)
    }

    /// Returns the caller of the bootstrap key in a tenant with these settings and policies.
    pub(super) fn platform_in(&self, live: Option<&Arc<LiveTenant>>, access: Option<&Access>) -> Caller {
        let none = Settings::default();
        let settings = access.map_or(&none, |access| &access.tenant_settings);
        Caller {
            tenant: live.map(Arc::clone),
            key: None,
            key_name: self.options.bootstrap.name().map(str::to_owned),
            owner: PLATFORM_TENANT.to_owned(),
            person: Person::PLATFORM,
            role: Role::Platform,
            settings: Effective::resolve(&none, settings, &self.options.defaults),
            policies: access.map(|access| access.policies.of(None)).unwrap_or_default(),
            grants: access.map(|access| access.grants.of_key(None)).unwrap_or_default(),
            expires_at: None,
            // the bootstrap key is exempt from the tenant's rate limits
            rates: Rates::default(),
            bucket: Arc::default(),
            login: None,
            sent: None,
        }
    }
}
