//! Login by browser at an identity provider: authorization code with PKCE, nonce and the `iss` of RFC 9207.
//!
//! `state` finds the login under way, whose sealed part only it can open; a cookie binds it to the browser. What comes back is an ID
//! token, which is verified by the keys of its issuer, and mapped to a caller by the same assignment and rules as an access token.

mod begin;
mod complete;
mod logout;
mod provider;

pub use self::begin::LoginBegun;
pub use self::complete::{LoginAnswer, LoginEnd, PersonLogin};

pub(super) use self::provider::{Begins, Providers};

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::book::KnownIssuer;
use crate::domain::seal::{self, NONCE_BYTES, Place};
use crate::domain::web_session::CookieSecret;
use crate::gateway::BrowserLoginOptions;
use crate::gateway::credentials::random;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::authenticate::AuthError;
use crate::gateway::tenants::{Login, Tenants};

/// Path of the gateway's metadata as a client, below its public URL.
pub const CLIENT_METADATA_PATH: &str = "/oauth/client.json";
/// Path of the redirect of providers, below the public URL.
const CALLBACK_PATH: &str = "/oauth/callback";

/// Returns the path of the redirect of the authorization server of a login at this server.
pub(in crate::gateway) fn callback_path(server: Uuid) -> String {
    format!("{CALLBACK_PATH}/{server}")
}

/// Returns the path of the gateway's metadata for the login at this server.
pub(in crate::gateway) fn client_metadata_path(server: Uuid) -> String {
    format!("/oauth/client/{server}.json")
}

/// Reason why a login by browser came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFault {
    /// No provider is configured, or its issuer is not known.
    NotOffered,
    /// `state`, cookie or `iss` belong to no login of this browser.
    Foreign,
    /// The provider did not log the person in.
    Declined,
    /// The provider is out of reach, or its answer cannot be used.
    Provider,
    /// The person is not let in.
    Refused(AuthError),
    /// The gateway's own database is out of reach.
    Unavailable,
}

impl From<AuthError> for LoginFault {
    fn from(error: AuthError) -> LoginFault {
        LoginFault::Refused(error)
    }
}

impl From<GatewayError> for LoginFault {
    fn from(error: GatewayError) -> LoginFault {
        match error {
            GatewayError::NotFound(_) => LoginFault::Foreign,
            _ => LoginFault::Unavailable,
        }
    }
}

/// Returns the URL that the provider sends the browser back to.
fn redirect_uri(options: &BrowserLoginOptions) -> String {
    format!("{}{CALLBACK_PATH}", options.public_url.as_str())
}

/// Seals what completes a login. The key is made with `state`, which the gateway does not keep.
fn seal_login(
    options: &BrowserLoginOptions,
    state: &CookieSecret,
    text: &[u8],
) -> Result<Vec<u8>, LoginFault> {
    let key = options.keys.first().ok_or(LoginFault::Unavailable)?.derive(state.cookie().as_bytes());
    let place = Place::WebLogin { state: &state.hash() };
    seal::seal(&key, random::<NONCE_BYTES>()?, place, text).map_err(|_| LoginFault::Unavailable)
}

fn open_login(
    options: &BrowserLoginOptions,
    state: &CookieSecret,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, LoginFault> {
    let hash = state.hash();
    let opened = options.keys.iter().find_map(|key| {
        seal::open(&key.derive(state.cookie().as_bytes()), Place::WebLogin { state: &hash }, sealed).ok()
    });
    opened.ok_or(LoginFault::Foreign)
}

impl Tenants {
    /// Returns whether a person is of the issuer whose login the console offers.
    pub(in crate::gateway) fn is_of_console(&self, login: &Login) -> bool {
        self.login_issuer().is_ok_and(|(_, issuer)| issuer.id == login.issuer)
    }

    /// Returns the name of the issuer whose login the console offers; `None` without one.
    pub fn offered_login(&self) -> Option<String> {
        self.login_issuer().ok().map(|(_, issuer)| issuer.name.clone())
    }

    /// Returns the gateway's metadata as a client of providers and authorization servers (OAuth Client ID Metadata Document); `None`
    /// without a public URL.
    pub fn client_metadata(&self) -> Option<Value> {
        let (id, redirects) = (CLIENT_METADATA_PATH.to_owned(), vec![CALLBACK_PATH.to_owned()]);
        self.metadata(&id, &redirects)
    }

    /// Returns the gateway's metadata as the client of one login at a server. Each has a redirect of its own, so that what one
    /// authorization server answers is never taken for another's answer (RFC 9700, section 4.4).
    pub fn client_metadata_of(&self, login: Uuid) -> Option<Value> {
        self.metadata(&client_metadata_path(login), &[callback_path(login)])
    }

    fn metadata(&self, path: &str, redirects: &[String]) -> Option<Value> {
        let base = self.options.logins.public_url.as_ref()?.as_str();
        let redirects: Vec<String> = redirects.iter().map(|path| format!("{base}{path}")).collect();
        Some(json!({
            "client_id": format!("{base}{path}"),
            "client_name": "mcpproxy",
            "client_uri": base,
            "redirect_uris": redirects,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "web",
        }))
    }

    /// Returns the settings of the login, and its issuer.
    fn login_issuer(&self) -> Result<(&BrowserLoginOptions, Arc<KnownIssuer>), LoginFault> {
        let options = self.options.logins.browser.as_ref().ok_or(LoginFault::NotOffered)?;
        let book = self.logins.book();
        let issuer = book.all().find(|issuer| issuer.name == options.issuer).cloned();
        Ok((options, issuer.ok_or(LoginFault::NotOffered)?))
    }
}
