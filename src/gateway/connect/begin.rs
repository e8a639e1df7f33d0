//! Begin of a person's login at a server: the URL that the browser is sent to.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use url::{Host, Url};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Connect;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::seal::Place;
use crate::domain::server_login::{FlowState, LoginKind};
use crate::domain::server_url::without_query;
use crate::domain::tenant::Action;
use crate::domain::web_session::{CookieSecret, SECRET_BYTES};
use crate::gateway::catalog::sees;
use crate::gateway::credentials::random;
use crate::gateway::server_logins::{discover, vault};
use crate::gateway::tenants::Caller;
use crate::gateway::{GatewayError, clock};
use crate::store::{FlowDeparture, FlowRow, NewFlow, SealedText, Server, ServerOauth};

/// Longest address of a program, in bytes.
const LOOPBACK_BYTES_MAX: usize = 300;
/// Content of the seal of a verifier.
pub(super) const VERIFIER: &str = "verifier";
/// Scope by which OpenID providers are asked for a token that renews a login.
const OFFLINE: &str = "offline_access";

/// Login that a program began.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectBegun {
    /// URL of the authorization server, for a browser.
    pub url: String,
    /// Host of the authorization server, for the person to recognize.
    pub host: String,
    /// Time by which the browser must be back.
    pub expires_at: DateTime<Utc>,
}

impl fmt::Debug for ConnectBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectBegun").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Page on which a person logs in at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectPage {
    /// Name of the server.
    pub server: String,
    /// Address of the server, without its query.
    pub place: String,
    /// Host of the authorization server.
    pub host: String,
    /// Scopes that are asked for.
    pub scopes: Vec<String>,
    /// True if the person may have the server listed with this login.
    pub may_list: bool,
}

/// Browser on its way to the authorization server. `Debug` shows neither URL nor cookie.
pub struct Departure {
    /// URL of the authorization server.
    pub url: String,
    /// Secret of the cookie that binds the login to the browser.
    pub browser: CookieSecret,
    /// Time for which the login can be completed.
    pub keep: Duration,
}

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Departure").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl Connect {
    /// Begins the login of a caller at a server, for a program that waits at `loopback` for the browser.
    ///
    /// # Errors
    /// - [`GatewayError::Forbidden`] for the role, or the bootstrap key
    /// - [`GatewayError::NotFound`] for a server that the caller does not see
    /// - [`GatewayError::Invalid`] for an address that is not of this machine
    /// - [`GatewayError::Conflict`] if the server has no such login
    /// - [`GatewayError::Refused`] if the server names another authorization server now
    /// - [`GatewayError::Unavailable`]
    pub async fn begin(
        &self,
        caller: &Caller,
        name: &str,
        (loopback, for_listing): (&str, bool),
    ) -> Result<ConnectBegun, GatewayError> {
        caller.authorise(Action::UseTools)?;
        if for_listing {
            caller.authorise(Action::ChangeServers)?;
        }
        let tenant = caller.tenant()?.id;
        let principal = caller.key.ok_or_else(|| {
            let text = "The bootstrap key has no login of its own: use an API key of the tenant.";
            GatewayError::Forbidden(text.to_owned())
        })?;
        check_loopback(loopback)?;
        let (server, oauth) = self.server_with_login(caller, name).await?;
        let place = server.url.as_deref().map(without_query).unwrap_or_default();
        let issuer = oauth.issuer.as_ref().filter(|_| oauth.is_named);
        self.check_issuer(caller, (name, place), issuer).await?;
        let new = NewFlow {
            id: Uuid::new_v4(),
            tenant,
            server: server.id(),
            principal: principal.0,
            client: oauth.client_generation,
            keep_s: self.options.server_logins.keep.as_secs_f64(),
        };
        let (state, verifier) = (FlowState::new(tenant.0, new.id, random()?), new_verifier()?);
        let departure = FlowDeparture {
            state: state.hash(),
            browser: None,
            loopback: Some(loopback.to_owned()),
            for_listing,
            verifier: self.seal_verifier(caller, new.id, &verifier).await?,
        };
        let stored = self.store.begin_flow(&new, &departure).await;
        stored.map_err(|error| GatewayError::from_store(error, "server"))?;
        let found = self.store.flow(tenant, new.id).await;
        let found = found.map_err(|error| GatewayError::from_store(error, "server"))?;
        let (flow, _) = found.ok_or(GatewayError::NotFound("server"))?;
        let url = self.authorization_url(&flow, &state, &verifier)?;
        let expires_at = clock::now() + self.options.server_logins.keep;
        Ok(ConnectBegun { host: host_of(&url), url: url.into(), expires_at })
    }

    /// Returns the page of a login for the person that it is for.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] if there is no such login, its time is over, or it is another person's.
    pub async fn page(&self, caller: &Caller, flow: Uuid) -> Result<ConnectPage, GatewayError> {
        let flow = self.flow_of(caller, flow).await?;
        let endpoint = flow.authorization_endpoint.as_deref().and_then(|url| Url::parse(url).ok());
        Ok(ConnectPage {
            host: endpoint.as_ref().map(host_of).unwrap_or_default(),
            server: flow.server_name,
            place: flow.place,
            scopes: flow.scopes,
            may_list: caller.role.may(Action::ChangeServers),
        })
    }

    /// Sends the browser of a person to the authorization server. `browser` is the cookie of logins that it has already.
    ///
    /// # Errors
    /// As for [`Connect::page`], [`GatewayError::Forbidden`] for `for_listing` without the right, [`GatewayError::Refused`] if the
    /// server names another authorization server now, or [`GatewayError::Unavailable`].
    pub async fn depart(
        &self,
        caller: &Caller,
        flow: Uuid,
        (browser, for_listing): (Option<&str>, bool),
    ) -> Result<Departure, GatewayError> {
        if for_listing {
            caller.authorise(Action::ChangeServers)?;
        }
        let found = self.flow_of(caller, flow).await?;
        let issuer = found.issuer.as_ref().filter(|_| found.is_named);
        self.check_issuer(caller, (&found.server_name, &found.place), issuer).await?;
        let browser = match browser.and_then(CookieSecret::read) {
            Some(browser) => browser,
            None => CookieSecret::new(random::<SECRET_BYTES>()?),
        };
        let state = FlowState::new(caller.tenant_id().0, flow, random()?);
        let verifier = new_verifier()?;
        let departure = FlowDeparture {
            state: state.hash(),
            browser: Some(browser.hash()),
            loopback: None,
            for_listing,
            verifier: self.seal_verifier(caller, flow, &verifier).await?,
        };
        let left = self.store.depart(caller.tenant_id(), flow, &departure).await;
        if !left.map_err(|error| GatewayError::from_store(error, "login"))? {
            return Err(GatewayError::NotFound("login"));
        }
        let url = self.authorization_url(&found, &state, &verifier)?.into();
        Ok(Departure { url, browser, keep: self.options.server_logins.keep })
    }

    /// Returns a login on a page, if it is this caller's.
    async fn flow_of(&self, caller: &Caller, flow: Uuid) -> Result<FlowRow, GatewayError> {
        let found = self.store.flow(caller.tenant()?.id, flow).await;
        let found = found.map_err(|error| GatewayError::from_store(error, "login"))?;
        let own = found.map(|(flow, _)| flow).filter(|flow| {
            caller.key.is_some_and(|key| key.0 == flow.principal_id) && flow.loopback.is_none()
        });
        own.ok_or(GatewayError::NotFound("login"))
    }

    /// Returns a server that the caller sees, and its login if each person has one of their own there.
    pub(super) async fn server_with_login(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<(Server, ServerOauth), GatewayError> {
        let found = self.store.get_server(caller.tenant()?.id, name).await;
        let server = found.map_err(|error| GatewayError::from_store(error, "server"))?;
        let is_seen = caller.role.may(Action::SeeServers)
            || caller.catalogue().is_some_and(|catalogue| {
                let tools = catalogue.listed().iter();
                let mut own = tools.filter(|tool| tool.server.id == server.id());
                own.any(|tool| sees(&caller.settings, tool).is_some())
            });
        if !is_seen {
            return Err(GatewayError::NotFound("server"));
        }
        let oauth = server.oauth.as_ref().map(|oauth| oauth.0.clone());
        let of_people = oauth.filter(|oauth| oauth.kind == LoginKind::AuthorizationCode.as_str());
        let is_exchange = |oauth: &ServerOauth| oauth.kind == LoginKind::TokenExchange.as_str();
        let oauth = of_people.ok_or_else(|| {
            let text = match server.oauth.as_ref().is_some_and(|oauth| is_exchange(oauth)) {
                true => format!(
                    "server '{name}' is called with what is given in exchange for the caller's own token: log in with your organisation's account"
                ),
                false => format!("server '{name}' needs no login of people (PUT /servers/{name}/oauth)"),
            };
            GatewayError::Conflict(text)
        })?;
        Ok((server, oauth))
    }

    /// Refuses to send anybody to an authorization server that the server does not name any more. If that cannot be found out now,
    /// the one that an administrator confirmed counts.
    async fn check_issuer(
        &self,
        caller: &Caller,
        (server, place): (&str, &str),
        issuer: Option<&String>,
    ) -> Result<(), GatewayError> {
        let Some(issuer) = issuer else { return Ok(()) };
        let named = discover::protected_resource(&self.upstreams, caller.tenant_id(), place).await;
        let Ok((resource, _)) = named else { return Ok(()) };
        if resource.authorization_servers.contains(issuer) {
            return Ok(());
        }
        let text = format!(
            "Server '{server}' now names another authorization server; an administrator must confirm it"
        );
        Err(GatewayError::Refused(Box::new(Refusal::new(Code::UpstreamAuthChanged, text))))
    }

    async fn seal_verifier(
        &self,
        caller: &Caller,
        flow: Uuid,
        verifier: &str,
    ) -> Result<SealedText, GatewayError> {
        let tenant = caller.tenant_id();
        let place = Place::ConnectFlow { tenant, flow, part: VERIFIER };
        vault::seal_text(&self.store, &self.options.keyring, tenant, place, verifier).await
    }

    fn authorization_url(
        &self,
        flow: &FlowRow,
        state: &FlowState,
        verifier: &str,
    ) -> Result<Url, GatewayError> {
        let endpoint = flow.authorization_endpoint.as_deref().and_then(|url| Url::parse(url).ok());
        let mut url = endpoint.ok_or_else(|| {
            GatewayError::Conflict("the login of the server has no authorization endpoint".to_owned())
        })?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &flow.client_id)
            .append_pair("redirect_uri", &self.redirect_uri(flow.server_id)?)
            .append_pair("state", &state.text())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if !flow.scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &flow.scopes.join(" "));
        }
        if flow.scopes.iter().any(|scope| scope == OFFLINE) {
            // OpenID Connect Core, section 11
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        if let Some(resource) = &flow.resource {
            url.query_pairs_mut().append_pair("resource", resource);
        }
        Ok(url)
    }
}

fn new_verifier() -> Result<Zeroizing<String>, GatewayError> {
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?)))
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Checks that a program's address is of the machine that the browser runs on.
fn check_loopback(text: &str) -> Result<(), GatewayError> {
    let is_own = |url: &Url| {
        let is_loopback = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        is_loopback
            && url.scheme() == "http"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    };
    match Url::parse(text) {
        Ok(url) if text.len() <= LOOPBACK_BYTES_MAX && is_own(&url) => Ok(()),
        _ => Err(GatewayError::invalid(
            "redirect_uri",
            "redirect_uri must be an http URL of 127.0.0.1, [::1] or localhost without a query, where the program waits for the browser",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_wait_on_the_own_machine() {
        for good in ["http://127.0.0.1:7070/x", "http://localhost:1/", "http://[::1]:9/a/b"] {
            assert!(check_loopback(good).is_ok(), "{good}");
        }
        for bad in [
            "https://127.0.0.1/",
            "http://127.0.0.1.evil.example/",
            "http://localhost.evil.example/",
            "http://evil@localhost/",
            "http://localhost@evil.example/",
            "http://10.0.0.1/",
            "http://localhost/?x=1",
            "http://localhost/#x",
            "javascript:alert(1)",
            "",
        ] {
            assert!(check_loopback(bad).is_err(), "{bad}");
        }
    }
}
