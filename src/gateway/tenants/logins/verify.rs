//! From a token to its caller.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::book::KnownIssuer;
use super::cache;
use crate::domain::id::TenantId;
use crate::domain::identity::{CallerToken, ClaimRules, KeyDigest, SplitToken, TokenFault, VerifiedToken};
use crate::gateway::clock;
use crate::gateway::tenants::Tenants;
use crate::gateway::tenants::authenticate::AuthError;
use crate::gateway::tenants::live::LiveTenant;
use crate::gateway::tenants::live::access::Caller;
use crate::gateway::tenants::refused::RefusedPerson;
use crate::store::StoreError;

impl From<TokenFault> for AuthError {
    fn from(fault: TokenFault) -> AuthError {
        match fault {
            TokenFault::Unverifiable(_) | TokenFault::UnknownKey => AuthError::TokenUnverifiable,
            TokenFault::Expired => AuthError::TokenExpired,
            TokenFault::Audience => AuthError::TokenAudience,
        }
    }
}

impl Tenants {
    /// Returns the caller of a token. A token that was verified a short time ago costs no query and no signature. `hash` is its
    /// SHA-256, and `tenant` the header `X-Tenant`, by which a person of several tenants names one.
    ///
    /// # Errors
    /// [`AuthError`], by the reason.
    pub(in crate::gateway::tenants) async fn authenticate_token(
        self: &Arc<Self>,
        (token, hash): (&str, &[u8; 32]),
        tenant: Option<&str>,
    ) -> Result<Arc<Caller>, AuthError> {
        if token.len() > self.options.logins.token_bytes_max {
            tracing::debug!("a token is larger than limits.token_bytes_max");
            return Err(AuthError::TokenUnverifiable);
        }
        if !self.knows_issuers() {
            return Err(AuthError::Unavailable);
        }
        let digest = cache::digest(hash, tenant);
        let caller = match self.logins.tokens.get(&digest).filter(|caller| self.is_still_mapped(caller)) {
            Some(caller) => caller,
            None => {
                let caller = self.verify_token(token, tenant).await?;
                self.logins.tokens.put(digest, &caller);
                caller
            }
        };
        let now = clock::now();
        if caller.is_expired(now) {
            self.logins.tokens.forget(&digest);
            return Err(AuthError::TokenExpired);
        }
        self.logins.seen.note(&caller, now);
        Ok(self.with_token(caller, (token, hash)))
    }

    /// Returns a person with the token as it was sent, if a server of the tenant takes what is given in exchange for it. No cache has
    /// it.
    fn with_token(&self, caller: Arc<Caller>, sent: (&str, &[u8; 32])) -> Arc<Caller> {
        let is_wanted = caller.tenant.as_ref().is_some_and(|tenant| tenant.catalogue_now().exchanges);
        let Some(login) = caller.login.as_ref().filter(|_| is_wanted) else { return caller };
        let Some(issuer) = self.logins.book().by_id(login.issuer).cloned() else { return caller };
        let sent = CallerToken::new(sent, (&issuer.url, &issuer.audiences), login.token.expires_s);
        Arc::new(Caller { sent: Some(Arc::new(sent)), ..Caller::clone(&caller) })
    }

    /// Returns whether all that a person was verified and mapped with is as it was, and the issuer's keys are not too old.
    fn is_still_mapped(&self, caller: &Caller) -> bool {
        let (Some(login), Some(live)) = (&caller.login, &caller.tenant) else { return false };
        let access = live.access_now();
        let is_mapped = access.as_ref().as_ref().is_some_and(|access| access.rev == login.access_rev);
        let book = self.logins.book();
        let issuer = book.by_id(login.issuer).filter(|issuer| issuer.stamp == login.stamp);
        let stale_max = self.options.logins.stale_max;
        is_mapped && issuer.is_some_and(|issuer| issuer.fresh_keys(clock::now(), stale_max).is_some())
    }

    /// Returns whether the issuers are confirmed to be those of the database, not too long ago.
    pub(in crate::gateway::tenants) fn knows_issuers(&self) -> bool {
        self.logins.confirmed_ago().is_some_and(|ago| ago <= self.options.stale_max)
    }

    async fn verify_token(
        self: &Arc<Self>,
        token: &str,
        tenant: Option<&str>,
    ) -> Result<Arc<Caller>, AuthError> {
        let split = SplitToken::read(token).map_err(|fault| refused("?", fault))?;
        let url = split.unverified_issuer().map_err(|fault| refused("?", fault))?.to_owned();
        let issuer = self.logins.book().by_url(&url).cloned();
        let unknown = || refused("?", TokenFault::Unverifiable("no such issuer is known here"));
        let (issuer, token, claims) = self.verify_split(issuer.ok_or_else(unknown)?, split).await?;
        let live = self.tenant_of(&issuer, (&token, &claims), tenant).await?;
        self.map_person(&live, &issuer, (&Arc::new(token), &claims))
    }

    /// Checks signature and claims.
    async fn verify_split(
        self: &Arc<Self>,
        issuer: Arc<KnownIssuer>,
        split: SplitToken<'_>,
    ) -> Result<(Arc<KnownIssuer>, VerifiedToken, Map<String, Value>), AuthError> {
        let (issuer, key) = self.verify_signature(issuer, &split).await?;
        let token = split.check_claims(&self.claim_rules(&issuer), key, clock::now().timestamp());
        let (token, claims) = token.map_err(|fault| refused(&issuer.name, fault))?;
        warn_of_overage(&issuer, &claims);
        Ok((issuer, token, claims))
    }

    /// Checks the signature of a token. A key that the issuer's set does not have causes a fetch, if the last was long enough ago.
    /// Returns the issuer as it is known after that, and the digest of the key.
    pub(super) async fn verify_signature(
        self: &Arc<Self>,
        issuer: Arc<KnownIssuer>,
        split: &SplitToken<'_>,
    ) -> Result<(Arc<KnownIssuer>, KeyDigest), AuthError> {
        let mut issuer = issuer;
        let mut may_fetch = true;
        loop {
            let (now, stale_max) = (clock::now(), self.options.logins.stale_max);
            let checked = match issuer.fresh_keys(now, stale_max) {
                None => Err(None),
                // a key that is not there costs no turn
                Some(keys) => match split.signature_check(keys, &issuer.algorithms) {
                    Err(fault) => Err(Some(fault)),
                    Ok(check) => self.logins.verifying.verify(issuer.id, check).await?.map_err(Some),
                },
            };
            match checked {
                Ok(key) => return Ok((issuer, key)),
                Err(None | Some(TokenFault::UnknownKey)) if may_fetch => {
                    may_fetch = false;
                    self.fetch_for_token(&issuer).await;
                    let known = self.logins.book().by_id(issuer.id).cloned();
                    issuer = known.ok_or(AuthError::TokenUnverifiable)?;
                }
                Err(None) => return Err(AuthError::KeysUnavailable),
                Err(Some(fault)) => return Err(refused(&issuer.name, fault)),
            }
        }
    }

    /// Returns the rules for the claims of an issuer's tokens.
    pub(super) fn claim_rules<'a>(&self, issuer: &'a KnownIssuer) -> ClaimRules<'a> {
        let options = &self.options.logins;
        ClaimRules {
            issuer: &issuer.url,
            token_types: issuer.token_types.as_deref(),
            audiences: &issuer.audiences,
            subject_claim: &issuer.subject_claim,
            owner_claim: issuer.owner_claim.as_deref(),
            leeway_s: options.leeway_s,
            lifetime_max_s: options.lifetime_max_s,
        }
    }

    /// Returns the tenant of a person: the only one, or the one that the request names.
    async fn tenant_of(
        &self,
        issuer: &KnownIssuer,
        (token, claims): (&VerifiedToken, &Map<String, Value>),
        named: Option<&str>,
    ) -> Result<Arc<LiveTenant>, AuthError> {
        let no_tenant = || of_no_tenant(issuer, token);
        let of = issuer.tenants_of(claims);
        let tenant = match (named, of.as_slice()) {
            (_, []) => return Err(no_tenant()),
            (None, [(tenant, _)]) => *tenant,
            (None, _) => return Err(AuthError::SeveralTenants),
            (Some(name), of) => {
                let named = of.iter().find(|(_, own)| *own == name);
                named.map(|(tenant, _)| *tenant).ok_or(AuthError::NoSuchTenant)?
            }
        };
        // only this one: claims may name many
        self.live_for_login(tenant).await?.ok_or_else(no_tenant)
    }

    /// Returns a tenant with its access loaded; `None` if it is deleted.
    pub(in crate::gateway::tenants) async fn live_for_login(
        &self,
        tenant: TenantId,
    ) -> Result<Option<Arc<LiveTenant>>, AuthError> {
        if let Some(live) = self.live.get(tenant).filter(|live| live.access_now().is_some()) {
            return Ok(Some(live));
        }
        let _permit = self.enter_permit().await?;
        match self.tenant(tenant, None).await {
            Ok(live) => Ok(Some(live).filter(|live| live.access_now().is_some())),
            Err(StoreError::NotFound) => Ok(None),
            Err(error) => {
                tracing::warn!(%error, %tenant, "a tenant could not be loaded");
                Err(AuthError::Unavailable)
            }
        }
    }

    pub(super) fn map_person(
        &self,
        live: &Arc<LiveTenant>,
        issuer: &KnownIssuer,
        token: (&Arc<VerifiedToken>, &Map<String, Value>),
    ) -> Result<Arc<Caller>, AuthError> {
        let access = live.access();
        let access = access.as_ref().as_ref().ok_or(AuthError::Unavailable)?;
        access.person(live, issuer, token, &self.options.defaults, &self.options.logins).map(Arc::new)
    }

    /// Returns whether the login of a person still holds. The token's end is not looked at.
    pub(in crate::gateway::tenants) fn holds(&self, caller: &Caller) -> bool {
        self.knows_issuers() && (self.is_still_mapped(caller) || self.remapped(caller).is_some())
    }

    /// Returns a person who was verified earlier, by the rules and issuers of now; `None` if the login does not hold any more.
    /// The token's end is not looked at.
    pub(in crate::gateway::tenants) fn remapped(&self, caller: &Caller) -> Option<Arc<Caller>> {
        let (login, live) = (caller.login.as_ref()?, caller.tenant.as_ref()?);
        let issuer = self.logins.book().by_id(login.issuer).cloned()?;
        let token = &login.token;
        if issuer.stamp != login.stamp {
            let keys = issuer.fresh_keys(clock::now(), self.options.logins.stale_max)?;
            if !token.is_verified_by(keys, &issuer.algorithms, &self.claim_rules(&issuer)) {
                return None;
            }
        }
        let claims = token.claims();
        if !issuer.tenants_of(&claims).iter().any(|(tenant, _)| *tenant == live.id) {
            return None;
        }
        self.map_person(live, &issuer, (token, &claims)).ok()
    }
}

/// Returns the error for a person who belongs to no tenant.
pub(super) fn of_no_tenant(issuer: &KnownIssuer, token: &VerifiedToken) -> AuthError {
    let (issuer, owner) = (issuer.name.clone(), token.owner.clone());
    AuthError::NoRule(Box::new(RefusedPerson { of: None, issuer, owner }))
}

/// Logs that the provider left claims out of a token.
pub(super) fn warn_of_overage(issuer: &KnownIssuer, claims: &Map<String, Value>) {
    if claims.contains_key("_claim_names") {
        tracing::warn!(
            issuer = issuer.name,
            "the provider left claims out of a token: rules see them as absent"
        );
    }
}

/// Logs why a token was refused, and returns the error for its sender, which does not say.
pub(super) fn refused(issuer: &str, fault: TokenFault) -> AuthError {
    tracing::debug!(issuer, %fault, "a token was refused");
    fault.into()
}
