//! Begin of a login: the URL that the browser is sent to.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{LoginFault, redirect_uri, seal_login};
use crate::domain::web_session::{CookieSecret, SECRET_BYTES};
use crate::gateway::credentials::random;
use crate::gateway::tenants::Tenants;
use crate::store::NewWebLogin;

/// Scopes that a login asks for.
const SCOPES: &str = "openid email profile";

/// Login that has begun. `Debug` shows neither `state` nor the cookie.
pub struct LoginBegun {
    /// URL of the provider, for the browser alone.
    pub url: String,
    /// Secret of the cookie that binds the login to the browser.
    pub browser: CookieSecret,
    /// Time for which the login can be completed.
    pub keep: Duration,
}

impl std::fmt::Debug for LoginBegun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginBegun").field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// Part of a login under way that is sealed.
#[derive(Serialize, Deserialize)]
pub(super) struct LoginUnderWay {
    pub(super) verifier: Zeroizing<String>,
    pub(super) nonce: String,
}

fn random_text() -> Result<String, LoginFault> {
    Ok(URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?))
}

impl Tenants {
    /// Begins a login at the provider that the console offers. `browser` is the cookie of logins that the browser has already: one
    /// cookie serves several tabs.
    ///
    /// # Errors
    /// [`LoginFault::NotOffered`], [`LoginFault::Provider`] or [`LoginFault::Unavailable`].
    pub async fn begin_login(
        &self,
        (browser, address): (Option<&str>, Option<IpAddr>),
        return_to: &str,
    ) -> Result<LoginBegun, LoginFault> {
        let (options, issuer) = self.login_issuer()?;
        if !self.logins.begins.may_begin(address) {
            tracing::warn!(?address, "too many logins begin at one client address");
            return Err(LoginFault::Unavailable);
        }
        let provider = self.provider(&issuer).await?;
        let browser = match browser.and_then(CookieSecret::read) {
            Some(browser) => browser,
            None => CookieSecret::new(random::<SECRET_BYTES>()?),
        };
        let state = CookieSecret::new(random::<SECRET_BYTES>()?);
        let under_way = LoginUnderWay { verifier: Zeroizing::new(random_text()?), nonce: random_text()? };
        let text = serde_json::to_vec(&under_way).map(Zeroizing::new).map_err(|_| LoginFault::Unavailable)?;
        let new = NewWebLogin {
            state: state.hash(),
            browser: browser.hash(),
            issuer: issuer.id,
            require_iss: provider.names_itself,
            sealed: seal_login(options, &state, &text)?,
            return_to: return_to.to_owned(),
            keep_s: options.keep.as_secs_f64(),
        };
        let _permit = self.stranger_permit().await?;
        self.store.begin_web_login(&new).await.map_err(|error| {
            tracing::warn!(%error, "a login could not be stored");
            LoginFault::Unavailable
        })?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(under_way.verifier.as_bytes()));
        let mut url = provider.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &options.client_id)
            .append_pair("redirect_uri", &redirect_uri(options))
            .append_pair("scope", SCOPES)
            .append_pair("state", &state.cookie())
            .append_pair("nonce", &under_way.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(LoginBegun { url: url.into(), browser, keep: options.keep })
    }
}
