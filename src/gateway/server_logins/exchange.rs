//! Requests for tokens in exchange for those that people came with (RFC 8693). A token goes to the token endpoint of its own issuer and
//! nowhere else: the endpoint is that of the issuer's metadata.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::answer::{GoodAnswer, TokenRefusal};
use super::person_token::PersonToken;
use super::renewal::REFUSED_PAUSES;
use super::slot::Held;
use super::{ServerLogins, after, login_of, needed, unavailable};
use crate::domain::backoff::{chance, doubled, jittered};
use crate::domain::server_login::{ExchangeGrant, LoginNeed};
use crate::store::LoginConfig;
use crate::upstream::{AccessToken, ExchangeFor, LoginFailure, ServerLogin, TokenAnswer};

/// Time before its end at which a token is not sent any more, in seconds; a tenth of its life for short ones.
const UNUSED_LAST_S: f64 = 30.0;
/// First and longest pause after a token endpoint gave no token to anybody.
const UNAVAILABLE_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Grant of RFC 8693.
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Grant of RFC 7523.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Type of the tokens that are exchanged and wanted.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Failure of an exchange, and the time for which it is remembered.
type Failed = (LoginFailure, Duration);

impl ServerLogins {
    /// Returns a token that was given in exchange for that of the caller, newer than `refused`, and asks for one if need be.
    pub(super) async fn exchanged(
        &self,
        login: ServerLogin,
        refused: Option<i64>,
    ) -> Result<AccessToken, LoginFailure> {
        let Some(person) = self.0.exchanges.find(login) else {
            // whoever came with a token came with one that has ended since
            let is_ended = matches!(login.exchange_for, ExchangeFor::Token(_));
            return Err(needed(if is_ended { LoginNeed::Ended } else { LoginNeed::First }));
        };
        let turn = Arc::clone(&person.slot.turn).lock_owned().await;
        // another call may have been faster
        if let Some(held) = person.slot.usable(refused) {
            return Ok(held.token);
        }
        let failure = person.slot.recent_failure().or_else(|| self.0.exchanges.endpoint_failure(login));
        if let Some(failure) = failure {
            return Err(failure);
        }
        if let Some(generation) = refused {
            if !person.may_exchange_again() {
                return Err(needed(LoginNeed::Ended));
            }
            person.slot.drop_token(generation);
        }
        let this = self.clone();
        // the request ends, and its token is kept, whoever still waits for it
        let asked = self.0.life.tasks.spawn(async move { this.exchange_in_turn(login, person, turn).await });
        let asked =
            asked.await.unwrap_or_else(|_| Err((unavailable(1.0, "the request was lost"), Duration::ZERO)));
        asked.map_err(|(failure, _)| failure)
    }

    /// Asks for a token in the turn of a person's token, and keeps it. Returns for how long a failure is remembered.
    pub(super) async fn exchange_in_turn(
        &self,
        login: ServerLogin,
        person: Arc<PersonToken>,
        _turn: OwnedMutexGuard<()>,
    ) -> Result<AccessToken, Failed> {
        match self.exchange(login, &person).await {
            Ok(held) => {
                person.forgive();
                self.0.exchanges.endpoint_works(login);
                person.slot.keep(held.clone(), person.slot.epoch());
                Ok(held.token)
            }
            Err((failure, pause)) => {
                *person.slot.failed.lock() = Some((Instant::now() + pause, failure.clone()));
                Err((failure, pause))
            }
        }
    }

    /// Asks the token endpoint.
    async fn exchange(&self, login: ServerLogin, person: &PersonToken) -> Result<Held, Failed> {
        let of = login_of(login);
        let a_moment = |why: &str| (unavailable(1.0, why), super::FAILED_FOR);
        let config = self.0.store.login_config(of).await.map_err(|error| {
            tracing::warn!(tenant = %of.tenant, server = %of.server, %error, "no login could be read");
            a_moment("the gateway's database does not answer")
        })?;
        let config = config.ok_or_else(|| a_moment("the login was changed"))?;
        if config.issuer.as_deref() != Some(&*person.token.issuer) {
            // of another provider: it never gets there
            return Err((needed(LoginNeed::First), super::FAILED_FOR));
        }
        let answer = self.ask_for_exchange(login, &config, person).await;
        let good = answer.and_then(|answer| {
            GoodAnswer::read(&answer).map_err(|why| TokenRefusal::Unavailable(why.to_owned()))
        });
        let good = good.map_err(|refusal| {
            let why = refusal.why();
            tracing::warn!(tenant = %of.tenant, server = %of.server, why, "no token came in exchange for a person's");
            self.failed(login, person, refusal)
        })?;
        // whoever has such a token could come with it to the gateway, as that person
        if person.token.opens_with(&good.token) {
            let why = "its token endpoint gives a token that opens this gateway itself; give --oauth-audience or --oauth-resource of the \
                       server";
            tracing::warn!(tenant = %of.tenant, server = %of.server, why, "a token was not sent to a server");
            return Err(self.failed(login, person, TokenRefusal::Refused(why.to_owned(), false)));
        }
        let token = AccessToken::new(&good.token, self.0.exchanges.number());
        let token = token.ok_or_else(|| a_moment("its token endpoint gives a token that cannot be sent"))?;
        let left_s = person.ends.saturating_duration_since(Instant::now()).as_secs_f64();
        let life_s = good.life_s.map_or(left_s, |life_s| life_s.min(left_s));
        let ends = after(Some(life_s - UNUSED_LAST_S.min(life_s / 10.0)));
        // beyond the person's own token, nothing renews it
        let renew = good.renew_s().filter(|_| good.life_s.is_some_and(|life_s| life_s < left_s));
        Ok(Held { token, ends, renew: after(renew) })
    }

    async fn ask_for_exchange(
        &self,
        login: ServerLogin,
        config: &LoginConfig,
        person: &PersonToken,
    ) -> Result<TokenAnswer, TokenRefusal> {
        let grant = config.exchange_grant.as_deref().and_then(ExchangeGrant::parse);
        let grant = grant.ok_or_else(|| {
            TokenRefusal::Refused("this release does not know its exchange_grant".to_owned(), false)
        })?;
        let scope = config.scopes.join(" ");
        let mut fields = match grant {
            ExchangeGrant::TokenExchange => vec![
                ("grant_type", EXCHANGE),
                ("subject_token", person.token.text()),
                ("subject_token_type", ACCESS_TOKEN),
                ("requested_token_type", ACCESS_TOKEN),
            ],
            ExchangeGrant::OnBehalfOf => vec![
                ("grant_type", JWT_BEARER),
                ("assertion", person.token.text()),
                ("requested_token_use", "on_behalf_of"),
            ],
        };
        fields.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        self.request_as_client(login_of(login), config, fields).await
    }

    /// Notes why no token came: of the person, or of the endpoint for all.
    fn failed(&self, login: ServerLogin, person: &PersonToken, refusal: TokenRefusal) -> Failed {
        match refusal {
            TokenRefusal::Refused(why, true) => {
                let pause = doubled(REFUSED_PAUSES.0, REFUSED_PAUSES.1, person.count_refusal());
                (LoginFailure::ExchangeRefused { why }, pause)
            }
            TokenRefusal::Refused(why, false) => self.0.exchanges.endpoint_failed(login, |before| {
                let pause = doubled(REFUSED_PAUSES.0, REFUSED_PAUSES.1, before);
                (LoginFailure::Refused { why, generation: None }, pause)
            }),
            TokenRefusal::Unavailable(why) => self.0.exchanges.endpoint_failed(login, |before| {
                let pause = doubled(UNAVAILABLE_PAUSES.0, UNAVAILABLE_PAUSES.1, before);
                let pause = jittered(pause, chance());
                (unavailable(pause.as_secs_f64(), &why), pause)
            }),
        }
    }
}
