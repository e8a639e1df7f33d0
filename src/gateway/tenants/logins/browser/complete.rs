//! End of a login: the provider's answer, the ID token behind it, and the person that it names.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::begin::LoginUnderWay;
use super::{LoginFault, open_login, redirect_uri, seal_login};
use crate::domain::id::{IssuerId, TenantId};
use crate::domain::identity::{LoginClaims, LoginRules, SplitToken, VerifiedToken};
use crate::domain::web_session::{CookieSecret, SECRET_BYTES, SESSION_LIFETIME};
use crate::gateway::BrowserLoginOptions;
use crate::gateway::clock;
use crate::gateway::credentials::random;
use crate::gateway::tenants::authenticate::AuthError;
use crate::gateway::tenants::logins::book::KnownIssuer;
use crate::gateway::tenants::logins::verify::{of_no_tenant, refused, warn_of_overage};
use crate::gateway::tenants::{Caller, Tenants};
use crate::store::{NewWebLogin, StoreError, WebLogin};
use crate::upstream::TokenRequest;

/// Longest code of a provider, in bytes.
const CODE_BYTES_MAX: usize = 4096;

/// Answer of a provider, as parameters of the redirect. `Debug` shows none.
#[derive(Clone, Copy, Default)]
pub struct LoginAnswer<'a> {
    /// Text that the login was begun with.
    pub state: Option<&'a str>,
    /// Code to be exchanged; `None` without one.
    pub code: Option<&'a str>,
    /// Issuer that the answer names; `None` without one.
    pub iss: Option<&'a str>,
    /// True if the provider says that it did not log the person in.
    pub is_error: bool,
}

impl fmt::Debug for LoginAnswer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginAnswer").field("is_error", &self.is_error).finish_non_exhaustive()
    }
}

/// Outcome of a login at the provider.
#[derive(Debug)]
pub enum LoginEnd {
    /// A person of one tenant.
    Person(Box<PersonLogin>),
    /// A person of several tenants, who has to name one.
    Choose {
        /// Secret that the choice must carry. `Debug` does not show it.
        state: CookieSecret,
        /// Names of the tenants.
        tenants: Vec<String>,
    },
}

/// Person who logged in. `Debug` shows no token.
pub struct PersonLogin {
    /// Caller that the person is.
    pub caller: Arc<Caller>,
    /// Page to return to.
    pub return_to: String,
    pub(in crate::gateway::tenants) tenant: TenantId,
    pub(in crate::gateway::tenants) issuer: IssuerId,
    pub(in crate::gateway::tenants) identified: Identified,
}

impl fmt::Debug for PersonLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersonLogin").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// ID token that was verified, and what a session keeps beside it.
#[derive(Serialize, Deserialize)]
pub(in crate::gateway::tenants) struct Identified {
    pub(in crate::gateway::tenants) id_token: Zeroizing<String>,
    pub(in crate::gateway::tenants) sub: String,
    pub(in crate::gateway::tenants) sid: Option<String>,
    pub(in crate::gateway::tenants) logout_url: Option<String>,
}

fn unavailable(error: &StoreError) -> LoginFault {
    tracing::warn!(%error, "a login could not be completed");
    LoginFault::Unavailable
}

impl Tenants {
    /// Completes a login of this browser with the provider's answer.
    ///
    /// # Errors
    /// [`LoginFault`], by the reason. A login whose `state`, cookie or `iss` do not fit stays under way for its own browser.
    pub async fn complete_login(
        self: &Arc<Self>,
        browser: Option<&str>,
        answer: LoginAnswer<'_>,
    ) -> Result<LoginEnd, LoginFault> {
        let (options, offered) = self.login_issuer()?;
        let browser = browser.and_then(CookieSecret::read).ok_or(LoginFault::Foreign)?;
        let state = answer.state.and_then(CookieSecret::read).ok_or(LoginFault::Foreign)?;
        let permit = self.stranger_permit().await?;
        let begun = self.store.web_login(&state.hash(), &browser.hash()).await;
        drop(permit);
        let begun = begun.map_err(|error| unavailable(&error))?.ok_or(LoginFault::Foreign)?;
        // the client's secret is for the provider that is offered now, whichever the login began at
        let issuer = Some(offered).filter(|offered| offered.id == IssuerId(begun.issuer_id));
        let issuer = issuer.ok_or(LoginFault::Foreign)?;
        // RFC 9207: compared as it is; where it was announced, its absence is a forgery
        let is_own = match answer.iss {
            Some(iss) => iss == issuer.url,
            None => !begun.require_iss,
        };
        if !is_own {
            return Err(LoginFault::Foreign);
        }
        if !self
            .store
            .take_web_login(&state.hash(), &browser.hash())
            .await
            .map_err(|error| unavailable(&error))?
        {
            return Err(LoginFault::Foreign);
        }
        if answer.is_error {
            return Err(LoginFault::Declined);
        }
        let code = answer.code.filter(|code| !code.is_empty() && code.len() <= CODE_BYTES_MAX);
        let code = code.ok_or(LoginFault::Foreign)?;
        let text = open_login(options, &state, &begun.sealed)?;
        let under_way: LoginUnderWay = serde_json::from_slice(&text).map_err(|_| LoginFault::Foreign)?;
        let (issuer, identified) = self.exchange(options, issuer, code, &under_way).await?;
        self.tenant_or_choice(options, (&issuer, identified), (&browser, begun.return_to)).await
    }

    /// Exchanges a code for an ID token, and verifies it.
    async fn exchange(
        self: &Arc<Self>,
        options: &BrowserLoginOptions,
        issuer: Arc<KnownIssuer>,
        code: &str,
        under_way: &LoginUnderWay,
    ) -> Result<(Arc<KnownIssuer>, Identified), LoginFault> {
        let provider = self.provider(&issuer).await?;
        let secret = options.client_secret.as_ref().map(|secret| secret.as_str());
        let client = provider.client_auth(&options.client_id, secret).ok_or_else(|| {
            tracing::warn!(issuer = issuer.name, "the provider takes no client secret as we can send it");
            LoginFault::Provider
        })?;
        let redirect = redirect_uri(options);
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &redirect),
            ("code_verifier", &under_way.verifier),
        ];
        let request = TokenRequest {
            tenant: None,
            url: &provider.token,
            client,
            fields: &fields,
            timeout: options.timeout,
        };
        let answer = self.upstreams.token_request(request).await.map_err(|error| {
            tracing::warn!(issuer = issuer.name, %error, "the provider gave no tokens for a code");
            LoginFault::Provider
        })?;
        let id_token = answer.id_token.filter(|token| token.len() <= self.options.logins.token_bytes_max);
        let id_token = id_token.ok_or_else(|| {
            tracing::warn!(issuer = issuer.name, "the provider gave no ID token, or one that is too large");
            LoginFault::Provider
        })?;
        let (issuer, claims) = self.verify_login(options, issuer, &id_token, &under_way.nonce).await?;
        let LoginClaims { sub, sid, .. } = claims;
        let logout_url = provider.end_session.clone();
        Ok((issuer, Identified { id_token, sub, sid, logout_url }))
    }

    async fn verify_login(
        self: &Arc<Self>,
        options: &BrowserLoginOptions,
        issuer: Arc<KnownIssuer>,
        id_token: &str,
        nonce: &str,
    ) -> Result<(Arc<KnownIssuer>, LoginClaims), LoginFault> {
        let split = SplitToken::read_id_token(id_token).map_err(|fault| refused(&issuer.name, fault))?;
        let (issuer, key) = self.verify_signature(issuer, &split).await?;
        let login = LoginRules { client_id: &options.client_id, nonce };
        let now_s = clock::now().timestamp();
        let claims = split.check_login(&self.claim_rules(&issuer), login, key, now_s);
        let claims = claims.map_err(|fault| {
            tracing::warn!(issuer = issuer.name, %fault, "an ID token was refused");
            LoginFault::Refused(AuthError::TokenUnverifiable)
        })?;
        warn_of_overage(&issuer, &claims.token.claims());
        Ok((issuer, claims))
    }

    /// Returns the person in the only tenant that the claims lead to, or has the person choose one.
    async fn tenant_or_choice(
        self: &Arc<Self>,
        options: &BrowserLoginOptions,
        (issuer, identified): (&Arc<KnownIssuer>, Identified),
        (browser, return_to): (&CookieSecret, String),
    ) -> Result<LoginEnd, LoginFault> {
        let person = self.session_token(issuer, &identified.id_token)?;
        let claims = person.claims();
        let tenants: Vec<(TenantId, String)> =
            issuer.tenants_of(&claims).into_iter().map(|(id, name)| (id, name.to_owned())).collect();
        match tenants.as_slice() {
            [] => Err(LoginFault::Refused(of_no_tenant(issuer, &person))),
            [(tenant, _)] => self.person_in(*tenant, issuer, identified, return_to).await,
            _ => {
                let state = CookieSecret::new(random::<SECRET_BYTES>()?);
                let text = serde_json::to_vec(&identified)
                    .map(Zeroizing::new)
                    .map_err(|_| LoginFault::Unavailable)?;
                let new = NewWebLogin {
                    state: state.hash(),
                    browser: browser.hash(),
                    issuer: issuer.id,
                    require_iss: false,
                    sealed: seal_login(options, &state, &text)?,
                    return_to,
                    keep_s: options.keep.as_secs_f64(),
                };
                self.store.begin_web_login(&new).await.map_err(|error| unavailable(&error))?;
                Ok(LoginEnd::Choose { state, tenants: tenants.into_iter().map(|(_, name)| name).collect() })
            }
        }
    }

    /// Completes a login with the tenant that the person named.
    ///
    /// # Errors
    /// [`LoginFault`], by the reason.
    pub async fn choose_tenant(
        self: &Arc<Self>,
        browser: Option<&str>,
        state: &str,
        name: &str,
    ) -> Result<LoginEnd, LoginFault> {
        let (options, offered) = self.login_issuer()?;
        let browser = browser.and_then(CookieSecret::read).ok_or(LoginFault::Foreign)?;
        let state = CookieSecret::read(state).ok_or(LoginFault::Foreign)?;
        let permit = self.stranger_permit().await?;
        let begun = self.store.web_login(&state.hash(), &browser.hash()).await;
        drop(permit);
        let begun = begun.map_err(|error| unavailable(&error))?;
        let WebLogin { issuer_id, sealed, return_to, .. } = begun.ok_or(LoginFault::Foreign)?;
        let text = open_login(options, &state, &sealed)?;
        // a login that has not come back yet has no ID token
        let identified: Identified = serde_json::from_slice(&text).map_err(|_| LoginFault::Foreign)?;
        let issuer = Some(offered).filter(|offered| offered.id == IssuerId(issuer_id));
        let issuer = issuer.ok_or(LoginFault::Foreign)?;
        let person = self.session_token(&issuer, &identified.id_token)?;
        let claims = person.claims();
        let tenant = issuer.tenants_of(&claims).into_iter().find(|(_, own)| *own == name).map(|(id, _)| id);
        let tenant = tenant.ok_or(LoginFault::Foreign)?;
        if !self
            .store
            .take_web_login(&state.hash(), &browser.hash())
            .await
            .map_err(|error| unavailable(&error))?
        {
            return Err(LoginFault::Foreign);
        }
        self.person_in(tenant, &issuer, identified, return_to).await
    }

    async fn person_in(
        self: &Arc<Self>,
        tenant: TenantId,
        issuer: &Arc<KnownIssuer>,
        identified: Identified,
        return_to: String,
    ) -> Result<LoginEnd, LoginFault> {
        let token = Arc::new(self.session_token(issuer, &identified.id_token)?);
        let live = self.live_for_login(tenant).await?.ok_or_else(|| of_no_tenant(issuer, &token))?;
        let caller = self.admitted(self.map_person(&live, issuer, (&token, &token.claims()))?)?;
        self.logins.seen.note(&caller, clock::now());
        let login = PersonLogin { caller, return_to, tenant, issuer: issuer.id, identified };
        Ok(LoginEnd::Person(Box::new(login)))
    }

    /// Returns the caller that the person of a session is by now.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`] if the session has ended with its issuer, [`AuthError::TokenExpired`] if it began before a block
    /// that is over, and the other errors of tokens.
    pub(in crate::gateway::tenants) async fn person_of_session(
        self: &Arc<Self>,
        (issuer, tenant): (IssuerId, TenantId),
        id_token: &str,
        ends_s: i64,
    ) -> Result<(Arc<Caller>, String), AuthError> {
        if !self.knows_issuers() {
            return Err(AuthError::Unavailable);
        }
        let issuer = self.logins.book().by_id(issuer).cloned().ok_or(AuthError::Unauthenticated)?;
        let token = VerifiedToken::of_session(id_token, &self.claim_rules(&issuer), ends_s);
        let token = Arc::new(token.map_err(|_| AuthError::Unauthenticated)?);
        let claims = token.claims();
        if !issuer.tenants_of(&claims).iter().any(|(own, _)| *own == tenant) {
            return Err(of_no_tenant(&issuer, &token));
        }
        let live = self.live_for_login(tenant).await?.ok_or(AuthError::Unauthenticated)?;
        let caller = self.map_person(&live, &issuer, (&token, &claims))?;
        self.logins.seen.note(&caller, clock::now());
        Ok((caller, issuer.name.clone()))
    }

    /// Returns the person of an ID token that was verified, as a session of now has it.
    fn session_token(&self, issuer: &KnownIssuer, id_token: &str) -> Result<VerifiedToken, LoginFault> {
        let ends_s = (clock::now() + SESSION_LIFETIME).timestamp();
        let token = VerifiedToken::of_session(id_token, &self.claim_rules(issuer), ends_s);
        token.map_err(|fault| LoginFault::from(refused(&issuer.name, fault)))
    }
}
