//! Requests for tokens in exchange for those that people came with (RFC 8693). A token goes to the token endpoint of its own issuer and
//! nowhere else: the endpoint is that of the issuer's metadata.

use std::time::Duration;

use tokio::time::Instant;

use super::answer::{GoodAnswer, TokenRefusal};
use super::person_token::PersonToken;
use super::renewal::{REFUSED_PAUSES, UNAVAILABLE_PAUSES};
use super::slot::Held;
use super::{ServerLogins, after, login_of, needed, unavailable};
use crate::domain::backoff::{chance, doubled, jittered};
use crate::domain::server_login::{ExchangeGrant, LoginNeed};
use crate::upstream::{AccessToken, LoginFailure, ServerLogin};

/// Time before its end at which a token is not sent any more, in seconds; a tenth of its life for short ones.
const UNUSED_LAST_S: f64 = 30.0;
/// Grant of RFC 8693.
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Grant of RFC 7523.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Type of the tokens that are exchanged and wanted.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

impl ServerLogins {
    /// Returns a token that was given in exchange for that of the caller, newer than `refused`, and asks for one if need be.
    pub(super) async fn exchanged(
        &self,
        login: ServerLogin,
        refused: Option<i64>,
    ) -> Result<AccessToken, LoginFailure> {
        let presented = self.0.exchanges.presented(login).ok_or_else(|| needed(LoginNeed::First))?;
        let slot = &presented.slot;
        let _turn = slot.turn.lock().await;
        // another call may have been faster
        if let Some(held) = slot.usable(refused) {
            return Ok(held.token);
        }
        if let Some(failure) = slot.recent_failure() {
            return Err(failure);
        }
        if let Some(generation) = refused {
            if !presented.may_exchange_again() {
                return Err(needed(LoginNeed::Ended));
            }
            slot.drop_token(generation);
        }
        let exchanged = self.exchange_and_keep(login, &presented).await;
        exchanged.map_err(|(failure, pause)| {
            *slot.failed.lock() = Some((Instant::now() + pause, failure.clone()));
            failure
        })
    }

    /// Asks for the next token beside the calls that use the one at hand.
    pub(super) async fn exchanged_anew(&self, login: ServerLogin) -> Result<AccessToken, LoginFailure> {
        let presented = self.0.exchanges.presented(login).ok_or_else(|| needed(LoginNeed::First))?;
        self.exchange_and_keep(login, &presented).await.map_err(|(failure, _)| failure)
    }

    async fn exchange_and_keep(
        &self,
        login: ServerLogin,
        presented: &PersonToken,
    ) -> Result<AccessToken, (LoginFailure, Duration)> {
        let held = self.exchange(login, presented).await?;
        presented.succeeded();
        presented.slot.keep(held.clone(), presented.slot.epoch());
        Ok(held.token)
    }

    /// Asks the token endpoint. The error says for how long it holds.
    async fn exchange(
        &self,
        login: ServerLogin,
        presented: &PersonToken,
    ) -> Result<Held, (LoginFailure, Duration)> {
        let of = login_of(login);
        let later = |why: &str| {
            let pause =
                jittered(doubled(UNAVAILABLE_PAUSES.0, UNAVAILABLE_PAUSES.1, presented.failed()), chance());
            (unavailable(pause.as_secs_f64(), why), pause)
        };
        let config = self.0.store.login_config(of).await.map_err(|error| {
            tracing::warn!(tenant = %of.tenant, server = %of.server, %error, "no login could be read");
            later("the gateway's database does not answer")
        })?;
        let config = config.ok_or_else(|| later("the login was changed"))?;
        let token = &presented.token;
        if config.issuer.as_deref() != Some(&*token.issuer) {
            // of another provider: it never gets there
            return Err((needed(LoginNeed::First), super::FAILED_FOR));
        }
        let grant = config.exchange_grant.as_deref().and_then(ExchangeGrant::parse);
        let grant = grant.ok_or_else(|| later("this release does not know its exchange_grant"))?;
        let scope = config.scopes.join(" ");
        let mut fields = match grant {
            ExchangeGrant::TokenExchange => vec![
                ("grant_type", EXCHANGE),
                ("subject_token", token.text()),
                ("subject_token_type", ACCESS_TOKEN),
                ("requested_token_type", ACCESS_TOKEN),
            ],
            ExchangeGrant::OnBehalfOf => vec![
                ("grant_type", JWT_BEARER),
                ("assertion", token.text()),
                ("requested_token_use", "on_behalf_of"),
            ],
        };
        fields.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        let answer = self.request_as_client(of, &config, fields).await;
        let read = match &answer {
            Ok(answer) => GoodAnswer::read(answer).map_err(|why| TokenRefusal::Unavailable(why.to_owned())),
            Err(refusal) => Err(refusal.clone()),
        };
        let good = read.map_err(|refusal| {
            tracing::warn!(tenant = %of.tenant, server = %of.server, why = refusal.why(), "no token came in exchange for a person's");
            match refusal {
                TokenRefusal::Unavailable(why) => later(&why),
                TokenRefusal::Refused(why, is_account) => {
                    let failure = match is_account {
                        true => LoginFailure::ExchangeRefused { why },
                        false => LoginFailure::Refused { why, generation: None },
                    };
                    (failure, doubled(REFUSED_PAUSES.0, REFUSED_PAUSES.1, presented.failed()))
                }
            }
        })?;
        let token = AccessToken::new(&good.token, self.0.exchanges.number());
        let token =
            token.ok_or_else(|| later("its token endpoint gives a token that cannot be sent in a header"))?;
        let left_s = presented.ends.saturating_duration_since(Instant::now()).as_secs_f64();
        let life_s = good.life_s.map_or(left_s, |life_s| life_s.min(left_s));
        let ends = after(Some(life_s - UNUSED_LAST_S.min(life_s / 10.0)));
        // beyond the person's own token, nothing renews it
        let renew = good.renew_s().filter(|_| good.life_s.is_some_and(|life_s| life_s < left_s));
        Ok(Held { token, ends, renew: after(renew) })
    }
}
