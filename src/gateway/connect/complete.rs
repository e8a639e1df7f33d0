//! Return of a browser from an authorization server: the code, the tokens behind it, and whose they are.

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::begin::VERIFIER;
use super::{Connect, ConnectFault, login_of};
use crate::domain::id::TenantId;
use crate::domain::seal::Place;
use crate::domain::server_login::{FlowState, is_token};
use crate::domain::tenant::Action;
use crate::domain::web_session::{CookieSecret, SECRET_BYTES};
use crate::gateway::credentials::random;
use crate::gateway::server_logins::answer::GoodAnswer;
use crate::gateway::server_logins::vault;
use crate::gateway::tenants::{Caller, LoginAnswer};
use crate::gateway::{GatewayError, clock};
use crate::store::{DataKey, FlowRow, RevisionKind, SealedText, StoreError};
use crate::upstream::{TokenAnswer, TokenRequest};

/// Longest code of an authorization server, in bytes.
const CODE_BYTES_MAX: usize = 4096;
/// Content of the seal of tokens that wait to be claimed.
const TOKENS: &str = "tokens";

/// Login that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Name of the server.
    pub server: String,
    /// True if the server is listed with this login from now on.
    pub for_listing: bool,
}

/// Outcome of a browser's return.
#[derive(Clone, PartialEq, Eq)]
pub enum ConnectEnd {
    /// The person is logged in at the server.
    Stored(Returned),
    /// The browser goes on to the program that began the login, with a code to claim the tokens with, or the reason why there are
    /// none.
    Program(String),
}

impl fmt::Debug for ConnectEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectEnd::Stored(returned) => f.debug_tuple("Stored").field(returned).finish(),
            ConnectEnd::Program(_) => f.write_str("Program"),
        }
    }
}

/// Tokens that wait to be claimed.
#[derive(Serialize, Deserialize)]
struct Parked {
    access: Zeroizing<String>,
    refresh: Option<Zeroizing<String>>,
    /// End of the access token, in seconds since 1970; `None` if the provider does not say.
    ends_s: Option<f64>,
}

/// Browser that came back from the authorization server of its login. `Debug` shows no code.
pub struct Arrival {
    tenant: TenantId,
    flow: FlowRow,
    keys: Vec<DataKey>,
    code: Option<Zeroizing<String>>,
    is_error: bool,
}

impl Arrival {
    /// Returns whether the login was begun on a page.
    pub fn is_of_page(&self) -> bool {
        self.flow.loopback.is_none()
    }
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Returns now, in seconds since 1970.
fn now_s() -> f64 {
    clock::now().timestamp_millis() as f64 / 1000.0
}

fn unavailable(error: &StoreError) -> ConnectFault {
    tracing::warn!(%error, "a login at a server could not be completed");
    ConnectFault::Unavailable
}

impl Connect {
    /// Returns whether an answer of an authorization server is for a login at a server.
    pub fn is_for_server(answer: &LoginAnswer<'_>) -> bool {
        answer.state.and_then(FlowState::read).is_some()
    }

    /// Takes a browser back from the authorization server of the server `at`, with the `state` of a login that is under way.
    /// `visitor` is whose session the browser has.
    ///
    /// # Errors
    /// [`ConnectFault::Foreign`] or [`ConnectFault::Unavailable`]. A login whose `state`, place, browser, session or `iss` do not fit
    /// stays under way.
    pub async fn arrive(
        &self,
        (answer, at): (LoginAnswer<'_>, Uuid),
        browser: Option<&str>,
        visitor: Option<&Caller>,
    ) -> Result<Arrival, ConnectFault> {
        let state = answer.state.and_then(FlowState::read).ok_or(ConnectFault::Foreign)?;
        let (tenant, id) = state.names();
        let tenant = TenantId(tenant);
        let found = {
            let permit = self.tenants.stranger_permit().await;
            let _permit = permit.map_err(|_| ConnectFault::Unavailable)?;
            self.store.flow(tenant, id).await.map_err(|error| unavailable(&error))?
        };
        let (flow, keys) = found.ok_or(ConnectFault::Foreign)?;
        let is_known = flow.state_hash.as_deref().is_some_and(|known| known.ct_eq(&state.hash()).into());
        let is_own = |visitor: &Caller| {
            visitor.tenant_id() == tenant && visitor.key.is_some_and(|key| key.0 == flow.principal_id)
        };
        let is_of_browser = match &flow.browser_hash {
            None => flow.loopback.is_some(),
            Some(known) => {
                let own = browser.and_then(CookieSecret::read).map(|secret| secret.hash());
                own.is_some_and(|own| known.ct_eq(&own).into()) && visitor.is_some_and(is_own)
            }
        };
        // RFC 9207: compared as it is; where it was announced, its absence is a forgery
        let is_of_issuer = match answer.iss {
            Some(iss) => flow.issuer.as_deref() == Some(iss),
            None => !flow.require_iss,
        };
        if !is_known || !is_of_browser || !is_of_issuer || flow.server_id != at {
            tracing::debug!(%tenant, is_known, is_of_browser, is_of_issuer, "an answer is of no login under way");
            return Err(ConnectFault::Foreign);
        }
        // who may no longer change servers lists none
        let may_list =
            flow.loopback.is_some() || visitor.is_some_and(|visitor| visitor.role.may(Action::ChangeServers));
        if flow.for_listing && !may_list {
            return Err(ConnectFault::Foreign);
        }
        if !self.store.arrive(tenant, id, &state.hash()).await.map_err(|error| unavailable(&error))? {
            return Err(ConnectFault::Foreign);
        }
        let code = answer.code.filter(|code| !code.is_empty() && code.len() <= CODE_BYTES_MAX);
        let code = code.map(|code| Zeroizing::new(code.to_owned()));
        Ok(Arrival { tenant, flow, keys, code, is_error: answer.is_error })
    }

    /// Completes the login of a browser that came back. What went wrong with a program's login is told to the program.
    ///
    /// # Errors
    /// [`ConnectFault`], by the reason.
    pub async fn complete(&self, arrival: Arrival) -> Result<ConnectEnd, ConnectFault> {
        let Arrival { tenant, flow, keys, code, is_error } = &arrival;
        let ended = match is_error {
            true => Err(ConnectFault::Declined),
            false => self.take(*tenant, (flow, keys), code.as_ref().map(|code| code.as_str())).await,
        };
        if ended == Err(ConnectFault::Declined)
            && let Err(error) = self.store.forget_wanted_scopes(login_of(*tenant, flow)).await
        {
            tracing::warn!(%tenant, %error, "wanted scopes were not forgotten");
        }
        match (&flow.loopback, ended) {
            (Some(loopback), Err(fault)) => {
                let word = if fault == ConnectFault::Declined { "access_denied" } else { "server_error" };
                leave(loopback, ("error", word)).map(ConnectEnd::Program).ok_or(fault)
            }
            (_, ended) => ended,
        }
    }

    /// Exchanges the code, and stores or parks the tokens.
    async fn take(
        &self,
        tenant: TenantId,
        (flow, keys): (&FlowRow, &[DataKey]),
        code: Option<&str>,
    ) -> Result<ConnectEnd, ConnectFault> {
        let code = code.ok_or(ConnectFault::Provider)?;
        let answer = self.exchange(tenant, (flow, keys), code).await?;
        let good = GoodAnswer::read(&answer).map_err(|why| {
            tracing::warn!(%tenant, server = flow.server_name, why, "no token came for a person's login");
            ConnectFault::Provider
        })?;
        let refresh = answer.refresh_token.filter(|token| is_token(token));
        match &flow.loopback {
            None => {
                let refresh = refresh.as_ref().map(|token| token.as_str());
                let stored = self.store_tokens(tenant, flow, (&good, refresh)).await?;
                Ok(ConnectEnd::Stored(stored))
            }
            Some(loopback) => {
                let claim = CookieSecret::new(random::<SECRET_BYTES>()?);
                let ends_s = good.life_s.map(|life_s| now_s() + life_s);
                let parked = Parked { access: good.token.clone(), refresh, ends_s };
                let text = serde_json::to_string(&parked).map(Zeroizing::new);
                let text = text.map_err(|_| ConnectFault::Unavailable)?;
                let place = Place::ConnectFlow { tenant, flow: flow.flow_id, part: TOKENS };
                let sealed =
                    vault::seal_text(&self.store, &self.options.keyring, tenant, place, &text).await?;
                let kept = self.store.park(tenant, flow.flow_id, &claim.hash(), &sealed).await;
                if !kept.map_err(|error| unavailable(&error))? {
                    return Err(ConnectFault::Foreign);
                }
                let url = leave(loopback, ("code", &claim.cookie()));
                url.map(ConnectEnd::Program).ok_or(ConnectFault::Foreign)
            }
        }
    }

    async fn exchange(
        &self,
        tenant: TenantId,
        (flow, keys): (&FlowRow, &[DataKey]),
        code: &str,
    ) -> Result<TokenAnswer, ConnectFault> {
        let keyring = &self.options.keyring;
        let locked = |why: &str| {
            tracing::warn!(%tenant, server = flow.server_name, why, "a code could not be exchanged");
            ConnectFault::Unavailable
        };
        let verifier = flow.data_key_id.zip(flow.sealed.clone());
        let verifier = verifier.map(|(data_key_id, sealed)| SealedText { data_key_id, sealed });
        let place = Place::ConnectFlow { tenant, flow: flow.flow_id, part: VERIFIER };
        let verifier = verifier.and_then(|sealed| vault::open(keyring, tenant, (&sealed, keys), place));
        let verifier = verifier.ok_or_else(|| locked("its verifier cannot be opened"))?;
        let secret = flow.client_key_id.zip(flow.client_sealed.clone());
        let secret = secret.map(|(data_key_id, sealed)| SealedText { data_key_id, sealed });
        let client = vault::OpenClient::open(
            keyring,
            (tenant, flow.server_id, &flow.token_endpoint),
            (&flow.client_id, &flow.client_auth),
            (secret.as_ref(), keys),
        );
        let client = client.map_err(|(why, _)| locked(why))?;
        let redirect = self.redirect_uri(flow.server_id)?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &redirect),
            ("code_verifier", &verifier),
        ];
        fields.extend(flow.resource.as_deref().map(|resource| ("resource", resource)));
        let request = TokenRequest {
            tenant: Some(tenant.0),
            url: &flow.token_endpoint,
            client: client.auth(),
            fields: &fields,
            timeout: self.options.server_logins.timeout,
        };
        self.upstreams.token_request(request).await.map_err(|error| {
            tracing::warn!(%tenant, server = flow.server_name, %error, "no tokens came for a code");
            ConnectFault::Provider
        })
    }

    async fn store_tokens(
        &self,
        tenant: TenantId,
        flow: &FlowRow,
        (good, refresh): (&GoodAnswer, Option<&str>),
    ) -> Result<Returned, GatewayError> {
        let login = login_of(tenant, flow);
        let vault = (&self.store, &*self.options.keyring);
        let new = vault::seal_tokens(vault, (login, &flow.place), Some(good), refresh).await?;
        let kept = self.store.put_connection(login, flow.flow_id, &new, flow.for_listing).await;
        if !kept.map_err(|error| GatewayError::from_store(error, "server"))? {
            return Err(GatewayError::NotFound("login"));
        }
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        Ok(Returned { server: flow.server_name.clone(), for_listing: flow.for_listing })
    }

    /// Stores the tokens of a login that a program began, which shows the code that the browser brought it.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`] if no login of the caller at the server waits for this code,
    /// or [`GatewayError::Unavailable`].
    pub async fn claim(&self, caller: &Caller, name: &str, code: &str) -> Result<Returned, GatewayError> {
        caller.authorise(Action::UseTools)?;
        let tenant = caller.tenant()?.id;
        let gone = || GatewayError::NotFound("login");
        let (principal, code) = caller.key.zip(CookieSecret::read(code)).ok_or_else(gone)?;
        let found = self.store.claimed_flow(tenant, principal.0, &code.hash()).await;
        let found = found.map_err(|error| GatewayError::from_store(error, "login"))?;
        let (flow, keys) = found.filter(|(flow, _)| flow.server_name == name).ok_or_else(gone)?;
        if flow.for_listing {
            caller.authorise(Action::ChangeServers)?;
        }
        let sealed = flow.data_key_id.zip(flow.sealed.clone()).ok_or_else(gone)?;
        let sealed = SealedText { data_key_id: sealed.0, sealed: sealed.1 };
        let place = Place::ConnectFlow { tenant, flow: flow.flow_id, part: TOKENS };
        let text = vault::open(&self.options.keyring, tenant, (&sealed, &keys), place).ok_or_else(gone)?;
        let parked: Parked = serde_json::from_str(&text).map_err(|_| gone())?;
        let life_s = parked.ends_s.map(|ends_s| (ends_s - now_s()).max(0.0));
        let good = GoodAnswer { token: parked.access, life_s };
        let refresh = parked.refresh.as_ref().map(|token| token.as_str());
        self.store_tokens(tenant, &flow, (&good, refresh)).await
    }
}

/// Returns a program's address with a parameter.
fn leave(loopback: &str, (name, value): (&str, &str)) -> Option<String> {
    let mut url = Url::parse(loopback).ok()?;
    url.query_pairs_mut().append_pair(name, value);
    Some(url.into())
}
