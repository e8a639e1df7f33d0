//! Requests for new tokens: for the gateway itself with its own credentials, for a person with the token that renews the login.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::answer::{GoodAnswer, TokenRefusal};
use super::slot::Held;
use super::{ServerLogins, after, needed, unavailable, vault};
use crate::domain::backoff::{chance, doubled, jittered};
use crate::domain::server_login::{LoginKind, LoginNeed, LoginState};
use crate::store::{LoginClaim, LoginConfig, LoginOf, NewTokens};
use crate::upstream::{AccessToken, LoginFailure, TokenAnswer, TokenRequest};

/// First and longest pause after a token endpoint gave no token.
const UNAVAILABLE_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// First and longest pause after the gateway's credentials were refused.
pub(super) const REFUSED_PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));
/// Interval between tries to store an answer: with rotated tokens, it is the only copy.
const STORE_EVERY: Duration = Duration::from_millis(500);

impl ServerLogins {
    /// Asks the token endpoint and stores the outcome; `None` if another request took over meanwhile, or the login was changed.
    pub(super) async fn ask(&self, claim: &LoginClaim) -> Result<Option<Held>, LoginFailure> {
        let answer = match self.request(claim).await {
            Ok(answer) => answer,
            Err(TokenRefusal::Unavailable(why)) => return Err(self.note_failure(claim, &why).await),
            // without its grant, a person's login is over; with it, the gateway's own client is refused
            Err(TokenRefusal::Refused(why, true)) if claim.login.principal.is_some() => {
                self.note(claim, (LoginState::LoginRequired, true), Duration::ZERO, &why).await;
                return Err(needed(LoginNeed::Ended));
            }
            Err(TokenRefusal::Refused(why, _)) => {
                let pause = refused_pause(claim.failures);
                self.note(claim, (LoginState::LoginRequired, false), pause, &why).await;
                return Err(LoginFailure::Refused { why, generation: None });
            }
        };
        self.keep(claim, &answer).await
    }

    async fn request(&self, claim: &LoginClaim) -> Result<TokenAnswer, TokenRefusal> {
        let (config, keyring) = (&claim.config, &self.0.options.keyring);
        let refresh = match &claim.refresh {
            None => None,
            Some(sealed) => {
                let place = vault::token_place(claim.login, vault::REFRESH, &config.place);
                let opened = vault::open(keyring, claim.login.tenant, (sealed, &config.keys), place);
                let locked = || "its tokens cannot be opened with the master keys at hand".to_owned();
                Some(opened.ok_or_else(|| TokenRefusal::Unavailable(locked()))?)
            }
        };
        let scope = config.scopes.join(" ");
        let fields = match (claim.kind, &refresh) {
            // with exchanged tokens people call the server, and the gateway lists it
            (LoginKind::ClientCredentials | LoginKind::TokenExchange, _) => {
                let mut fields = vec![("grant_type", "client_credentials")];
                fields.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
                fields
            }
            (LoginKind::AuthorizationCode, refresh) => {
                let refresh = refresh.as_ref().map_or("", |refresh| refresh.as_str());
                vec![("grant_type", "refresh_token"), ("refresh_token", refresh)]
            }
        };
        self.request_as_client(claim.login, config, fields).await
    }

    /// Sends a request with these fields to the token endpoint of a login, as the gateway's client there.
    pub(super) async fn request_as_client(
        &self,
        LoginOf { tenant, server, .. }: LoginOf,
        config: &LoginConfig,
        mut fields: Vec<(&str, &str)>,
    ) -> Result<TokenAnswer, TokenRefusal> {
        let client = vault::OpenClient::open(
            &self.0.options.keyring,
            (tenant, server.0, &config.token_endpoint),
            (&config.client_id, &config.client_auth),
            (config.client_secret.as_ref(), &config.keys),
        );
        let client = client.map_err(|(why, may_help)| match may_help {
            true => TokenRefusal::Unavailable(why.to_owned()),
            false => TokenRefusal::Refused(why.to_owned(), false),
        })?;
        fields.extend(config.resource.as_deref().map(|resource| ("resource", resource)));
        fields.extend(config.audience.as_deref().map(|audience| ("audience", audience)));
        let timeout = self.0.options.server_logins.timeout;
        let (url, tenant) = (&*config.token_endpoint, Some(tenant.0));
        let request = TokenRequest { tenant, url, client: client.auth(), fields: &fields, timeout };
        self.0.client.request(request).await.map_err(|error| TokenRefusal::of(&error))
    }

    /// Stores the tokens of an answer before anything else is looked at: a token that renews the login is gone at the endpoint.
    async fn keep(&self, claim: &LoginClaim, answer: &TokenAnswer) -> Result<Option<Held>, LoginFailure> {
        let good = GoodAnswer::read(answer);
        let refresh = answer.refresh_token.as_ref().filter(|_| claim.kind == LoginKind::AuthorizationCode);
        let refresh = refresh.map(|token| token.as_str()).filter(|token| !token.is_empty());
        if let (Err(why), None) = (&good, refresh) {
            return Err(self.note_failure(claim, why).await);
        }
        let why = good.as_ref().err().copied();
        let good = good.ok();
        let pause = self.pause(claim);
        let until = Instant::now() + self.0.options.server_logins.lease;
        let generation = loop {
            let error = match self.try_to_keep(claim, (good.as_ref(), refresh), (pause, why)).await {
                Ok(generation) => break generation,
                Err(error) => error,
            };
            let (tenant, server) = (claim.login.tenant, claim.login.server);
            tracing::warn!(%tenant, %server, error, "a token could not be stored yet");
            // what can be asked for again need not be kept
            if refresh.is_none() || Instant::now() >= until {
                return Err(self.note_failure(claim, "its token could not be stored").await);
            }
            sleep(STORE_EVERY).await;
        };
        let Some(good) = good else {
            return Err(unavailable(pause.as_secs_f64(), why.unwrap_or_default()));
        };
        Ok(generation.and_then(|generation| {
            let token = AccessToken::new(&good.token, generation)?;
            Some(Held { token, ends: after(good.life_s), renew: after(good.renew_s()) })
        }))
    }

    async fn try_to_keep(
        &self,
        claim: &LoginClaim,
        (good, refresh): (Option<&GoodAnswer>, Option<&str>),
        failed: (Duration, Option<&str>),
    ) -> Result<Option<i64>, String> {
        let vault = (&self.0.store, &*self.0.options.keyring);
        let new: NewTokens = vault::seal_tokens(vault, (claim.login, &claim.config.place), good, refresh)
            .await
            .map_err(|error| error.to_string())?;
        self.0.store.keep_tokens(claim, &new, failed).await.map_err(|error| error.to_string())
    }

    fn pause(&self, claim: &LoginClaim) -> Duration {
        let (first, max) = UNAVAILABLE_PAUSES;
        jittered(doubled(first, max, claim.failures), chance())
    }

    async fn note_failure(&self, claim: &LoginClaim, why: &str) -> LoginFailure {
        let pause = self.pause(claim);
        self.note(claim, (LoginState::Waiting, false), pause, why).await;
        unavailable(pause.as_secs_f64(), why)
    }

    async fn note(&self, claim: &LoginClaim, state: (LoginState, bool), pause: Duration, why: &str) {
        let LoginOf { tenant, server, .. } = claim.login;
        tracing::warn!(%tenant, %server, why, "no token came for a login at a server");
        if let Err(error) = self.0.store.login_failed(claim, state, pause, why).await {
            tracing::warn!(%tenant, %server, %error, "a failed login was not noted");
        }
    }
}

/// Returns the pause after the gateway's own credentials were refused, after so many failures before.
pub(in crate::gateway) fn refused_pause(failures: u32) -> Duration {
    let (first, max) = REFUSED_PAUSES;
    doubled(first, max, failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(refused_pause(0), Duration::from_secs(30));
        assert_eq!(refused_pause(9), Duration::from_secs(300));
    }
}
