//! Tokens of the gateway at servers: one per server and tenant, kept sealed in the database, asked for by one replica at a time, and
//! renewed before they end.
//!
//! In a replica, one call asks and the others wait for it. Over replicas, a lease in the row of the connection decides; no transaction
//! and no lock is held over HTTP. A request that was begun ends although its caller went away: its token is stored for all.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::credentials::{data_key, open_data_key, random};
use super::options::Options;
use crate::domain::backoff::{chance, doubled, jittered};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::seal::{self, Place};
use crate::domain::server_login::{ClientAuthWay, LoginState, is_token};
use crate::store::{LoginClaim, LoginOf, LoginTurn, SealedToken, Store};
use crate::upstream::{
    AccessToken, CONNECTIONS_MAX, ClientAuth, LoginFailure, ServerLogin, TokenAnswer, TokenClient,
    TokenError, TokenRequest, TokenSource,
};

/// Longest wait for a token that another replica asks for.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest interval between looks at the database meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time before its end at which a token is renewed, in seconds; half of its life for short ones.
const RENEW_BEFORE_S: f64 = 60.0;
/// Longest life of a token that is believed, in seconds.
const LIFE_MAX_S: f64 = 366.0 * 86_400.0;
/// Time for which a failure is remembered without another look at the database.
const FAILED_FOR: Duration = Duration::from_secs(1);
/// First and longest pause after a token endpoint gave no token.
const UNAVAILABLE_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// First and longest pause after the gateway's credentials were refused.
const REFUSED_PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));

/// Token at hand.
#[derive(Clone)]
struct Held {
    token: AccessToken,
    /// End of the token; `None` if the provider does not say.
    ends: Option<Instant>,
    /// Time from which the next token is asked for.
    renew: Option<Instant>,
}

/// Login at one server, as this replica knows it.
struct Slot {
    /// Generation of the configuration.
    client: Uuid,
    held: RwLock<Option<Held>>,
    /// Failure of a moment ago, and the end of that moment.
    failed: Mutex<Option<(Instant, LoginFailure)>>,
    /// Held by whoever asks for a token.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Slot {
    fn new(client: Uuid) -> Slot {
        Slot { client, held: RwLock::default(), failed: Mutex::default(), turn: Arc::default() }
    }

    /// Returns a token that has not ended and is newer than `seen`.
    fn usable(&self, seen: Option<i64>) -> Option<Held> {
        let held = self.held.read().clone()?;
        let is_new = seen.is_none_or(|seen| held.token.generation > seen);
        (is_new && held.ends.is_none_or(|ends| ends > Instant::now())).then_some(held)
    }

    /// Drops the token of this number, or an older one.
    fn drop_token(&self, generation: i64) {
        let mut held = self.held.write();
        if held.as_ref().is_some_and(|held| held.token.generation <= generation) {
            *held = None;
        }
    }

    fn recent_failure(&self) -> Option<LoginFailure> {
        let failed = self.failed.lock();
        failed.as_ref().filter(|(until, _)| *until > Instant::now()).map(|(_, failure)| failure.clone())
    }
}

/// Tokens of the gateway at the servers of all tenants.
#[derive(Clone)]
pub(super) struct ServerLogins(Arc<Shared>);

struct Shared {
    store: Store,
    client: TokenClient,
    options: Arc<Options>,
    slots: RwLock<HashMap<(Uuid, Uuid), Arc<Slot>>>,
}

impl fmt::Debug for ServerLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLogins").finish_non_exhaustive()
    }
}

impl TokenSource for ServerLogins {
    fn held(&self, login: ServerLogin) -> Option<AccessToken> {
        let slot = self.slot(login);
        let held = slot.usable(None)?;
        if held.renew.is_some_and(|renew| renew <= Instant::now()) {
            self.renew_aside(login, &slot);
        }
        Some(held.token)
    }

    fn token(
        &self,
        login: ServerLogin,
        refused: Option<i64>,
    ) -> BoxFuture<'_, Result<AccessToken, LoginFailure>> {
        Box::pin(async move {
            let slot = self.slot(login);
            if let Some(generation) = refused {
                slot.drop_token(generation);
            }
            let _turn = slot.turn.lock().await;
            // another call may have been faster
            if let Some(held) = slot.usable(refused) {
                return Ok(held.token);
            }
            if let Some(failure) = slot.recent_failure() {
                return Err(failure);
            }
            let obtained = self.obtain(login, &slot, refused).await;
            *slot.failed.lock() =
                obtained.as_ref().err().map(|failure| (Instant::now() + FAILED_FOR, failure.clone()));
            obtained
        })
    }

    fn refused(&self, login: ServerLogin, generation: i64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.slot(login).drop_token(generation);
            let why = "it refuses a token that its authorization server had just issued";
            let noted = self.0.store.token_refused(login_of(login), generation, why, refused_pause).await;
            if let Err(error) = noted {
                tracing::warn!(tenant = %login.tenant, server = %login.server, %error, "a refused token was not noted");
            }
        })
    }

    fn reset(&self, tenant: Uuid, server: Uuid) {
        if let Some(slot) = self.0.slots.read().get(&(tenant, server)) {
            *slot.failed.lock() = None;
        }
    }
}

impl ServerLogins {
    pub(super) fn new(store: Store, client: TokenClient, options: Arc<Options>) -> ServerLogins {
        ServerLogins(Arc::new(Shared { store, client, options, slots: RwLock::default() }))
    }

    fn slot(&self, login: ServerLogin) -> Arc<Slot> {
        let key = (login.tenant, login.server);
        let is_same = |slot: &&Arc<Slot>| slot.client == login.client;
        if let Some(slot) = self.0.slots.read().get(&key).filter(is_same) {
            return Arc::clone(slot);
        }
        let mut slots = self.0.slots.write();
        if let Some(slot) = slots.get(&key).filter(is_same) {
            return Arc::clone(slot);
        }
        if slots.len() >= CONNECTIONS_MAX {
            // tokens come back from the database
            slots.clear();
        }
        let slot = Arc::new(Slot::new(login.client));
        slots.insert(key, Arc::clone(&slot));
        slot
    }

    /// Renews a token that has not ended yet, beside the calls that use it.
    fn renew_aside(&self, login: ServerLogin, slot: &Arc<Slot>) {
        let Ok(turn) = Arc::clone(&slot.turn).try_lock_owned() else { return };
        let (this, slot) = (self.clone(), Arc::clone(slot));
        tokio::spawn(async move {
            let _turn = turn;
            if let Err(failure) = this.obtain(login, &slot, None).await {
                tracing::debug!(server = %login.server, ?failure, "a token was not renewed yet");
            }
            // no next try within a moment, whatever came of this one
            let later = Instant::now() + FAILED_FOR;
            if let Some(held) = slot.held.write().as_mut() {
                held.renew = held.renew.map(|renew| renew.max(later));
            }
        });
    }

    /// Takes the token from the database, or asks for one if nobody else does.
    async fn obtain(
        &self,
        login: ServerLogin,
        slot: &Slot,
        mut seen: Option<i64>,
    ) -> Result<AccessToken, LoginFailure> {
        let (of, options) = (login_of(login), &self.0.options);
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let turn =
                self.0.store.take_login_turn(of, seen, options.replica, options.server_logins.lease).await;
            let turn = turn.map_err(|error| {
                tracing::warn!(tenant = %of.tenant, server = %of.server, %error, "no token could be read");
                unavailable(1.0, "the gateway's database does not answer")
            })?;
            match turn {
                LoginTurn::Held(sealed) => match self.open(of, &sealed) {
                    Some(held) => {
                        let token = held.token.clone();
                        *slot.held.write() = Some(held);
                        return Ok(token);
                    }
                    // of master keys that are gone: as good as none
                    None if seen.is_none_or(|seen| seen < sealed.generation) => {
                        seen = Some(sealed.generation);
                    }
                    None => return Err(unavailable(1.0, "its token cannot be opened")),
                },
                LoginTurn::Granted(claim) => {
                    let this = self.clone();
                    // the request ends, and its token is stored, whoever still waits for it
                    let asked = tokio::spawn(async move { this.ask(&claim).await }).await;
                    match asked.unwrap_or_else(|_| Err(unavailable(1.0, "the request was lost")))? {
                        Some(held) => {
                            let token = held.token.clone();
                            *slot.held.write() = Some(held);
                            return Ok(token);
                        }
                        // another replica took over
                        None if Instant::now() < deadline => {}
                        None => return Err(unavailable(1.0, "another replica asks for a token")),
                    }
                }
                LoginTurn::UnderWay if Instant::now() < deadline => {
                    sleep(jittered(LOOK_EVERY, chance())).await;
                }
                LoginTurn::UnderWay => {
                    return Err(unavailable(
                        options.server_logins.lease.as_secs_f64(),
                        "another replica has asked for a token and has no answer yet",
                    ));
                }
                LoginTurn::Failed { state: Some(LoginState::LoginRequired), error, .. } => {
                    return Err(LoginFailure::Refused { why: error });
                }
                LoginTurn::Failed { retry_s, error, .. } => return Err(unavailable(retry_s, &error)),
                LoginTurn::Gone => return Err(unavailable(1.0, "the login was changed")),
            }
        }
    }

    fn open(&self, of: LoginOf, sealed: &SealedToken) -> Option<Held> {
        let key = open_data_key(&self.0.options.keyring, of.tenant, &sealed.keys, sealed.data_key_id)?;
        let text = seal::open(&key, token_place(of, &sealed.place), &sealed.sealed).ok()?;
        let token = AccessToken::new(std::str::from_utf8(&text).ok()?, sealed.generation)?;
        Some(Held { token, ends: after(sealed.expires_s), renew: after(sealed.renew_s) })
    }

    /// Asks the token endpoint and stores the outcome; `None` if another replica took over meanwhile, or the login was changed.
    async fn ask(&self, claim: &LoginClaim) -> Result<Option<Held>, LoginFailure> {
        let (answer, why) = match self.request(claim).await {
            Ok(answer) => (Some(answer), String::new()),
            Err(Asked::Unavailable(why)) => (None, why),
            Err(Asked::Refused(why)) => return Err(self.note_refusal(claim, why).await),
        };
        let good = answer.as_ref().map(GoodAnswer::read);
        match good {
            Some(Ok(good)) => match self.keep(claim, &good).await {
                Ok(kept) => Ok(kept),
                Err(why) => Err(self.note_failure(claim, why).await),
            },
            Some(Err(why)) => Err(self.note_failure(claim, why.to_owned()).await),
            None => Err(self.note_failure(claim, why).await),
        }
    }

    async fn request(&self, claim: &LoginClaim) -> Result<TokenAnswer, Asked> {
        let LoginOf { tenant, server, .. } = claim.login;
        let locked = || {
            Asked::Unavailable("its client secret cannot be opened with the master keys at hand".to_owned())
        };
        let key = open_data_key(&self.0.options.keyring, tenant, &claim.keys, claim.data_key_id);
        let place = Place::ServerOauth { tenant, server, endpoint: &claim.token_endpoint };
        let secret =
            seal::open(&key.ok_or_else(locked)?, place, &claim.client_sealed).map_err(|_| locked())?;
        let secret = std::str::from_utf8(&secret).map_err(|_| locked())?;
        let client = match ClientAuthWay::parse(&claim.client_auth) {
            Some(ClientAuthWay::Basic) => ClientAuth::Basic(&claim.client_id, secret),
            Some(ClientAuthWay::Post) => ClientAuth::Post(&claim.client_id, secret),
            None => return Err(Asked::Refused("this release does not know its client_auth".to_owned())),
        };
        let scope = claim.scopes.join(" ");
        let mut fields = vec![("grant_type", "client_credentials")];
        fields.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        fields.extend(claim.resource.as_deref().map(|resource| ("resource", resource)));
        let timeout = self.0.options.server_logins.timeout;
        let (url, tenant) = (&*claim.token_endpoint, Some(tenant.0));
        let request = TokenRequest { tenant, url, client, fields: &fields, timeout };
        self.0.client.request(request).await.map_err(|error| Asked::of(&error))
    }

    /// Stores a token. The error is a sentence for administrators.
    async fn keep(&self, claim: &LoginClaim, good: &GoodAnswer) -> Result<Option<Held>, String> {
        let tenant = claim.login.tenant;
        let lost = |error: &dyn fmt::Display| {
            tracing::warn!(%tenant, server = %claim.login.server, %error, "a token could not be stored");
            "its token could not be stored".to_owned()
        };
        let key = data_key(&self.0.store, &self.0.options.keyring, tenant).await;
        let (key_id, key) = key.map_err(|error| lost(&error))?;
        let place = token_place(claim.login, &claim.place);
        let nonce = random().map_err(|error| lost(&error))?;
        let sealed = seal::seal(&key, nonce, place, good.token.as_bytes()).map_err(|error| lost(&error))?;
        let (ends, renew) = (good.life_s, good.renew_s());
        let kept = self.0.store.keep_token(claim, (key_id, &sealed), (ends, renew)).await;
        let kept = kept.map_err(|error| lost(&error))?;
        Ok(kept.and_then(|generation| {
            let token = AccessToken::new(&good.token, generation)?;
            Some(Held { token, ends: after(ends), renew: after(renew) })
        }))
    }

    async fn note_failure(&self, claim: &LoginClaim, why: String) -> LoginFailure {
        let (first, max) = UNAVAILABLE_PAUSES;
        let pause = jittered(doubled(first, max, claim.failures), chance());
        self.note(claim, LoginState::Waiting, pause, &why).await;
        unavailable(pause.as_secs_f64(), &why)
    }

    async fn note_refusal(&self, claim: &LoginClaim, why: String) -> LoginFailure {
        self.note(claim, LoginState::LoginRequired, refused_pause(claim.failures), &why).await;
        LoginFailure::Refused { why }
    }

    async fn note(&self, claim: &LoginClaim, state: LoginState, pause: Duration, why: &str) {
        let LoginOf { tenant, server, .. } = claim.login;
        tracing::warn!(%tenant, %server, why, "the gateway could not log in at a server");
        if let Err(error) = self.0.store.login_failed(claim, state, pause, why).await {
            tracing::warn!(%tenant, %server, %error, "a failed login was not noted");
        }
    }
}

/// Reason why a token endpoint gave nothing to read, for administrators.
enum Asked {
    Unavailable(String),
    Refused(String),
}

impl Asked {
    fn of(error: &TokenError) -> Asked {
        let why = format!("its token endpoint gives no token: {error}");
        match error {
            TokenError::Refused(status, _)
                if status.is_client_error() && !matches!(status.as_u16(), 404 | 408 | 425 | 429) =>
            {
                Asked::Refused(why)
            }
            TokenError::Refused(..) | TokenError::NoAnswer(_) | TokenError::Malformed => {
                Asked::Unavailable(why)
            }
        }
    }
}

/// Token of an answer that can be used.
struct GoodAnswer {
    token: Zeroizing<String>,
    /// Life of the token in seconds; `None` if the provider does not say.
    life_s: Option<f64>,
}

impl GoodAnswer {
    /// Reads an answer. The error is a sentence for administrators, and repeats nothing of the answer.
    fn read(answer: &TokenAnswer) -> Result<GoodAnswer, &'static str> {
        if answer.token_type.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err("its token endpoint gives a token that is not of type Bearer");
        }
        let token = answer.access_token.clone().filter(|token| is_token(token));
        let token = token.ok_or("its token endpoint gives a token that cannot be sent in a header")?;
        match answer.expires_in {
            Some(life_s) if !life_s.is_finite() || life_s <= 0.0 => {
                Err("its token endpoint gives a token that has ended already")
            }
            life_s => Ok(GoodAnswer { token, life_s: life_s.map(|life_s| life_s.min(LIFE_MAX_S)) }),
        }
    }

    fn renew_s(&self) -> Option<f64> {
        self.life_s.map(|life_s| life_s - RENEW_BEFORE_S.min(life_s / 2.0))
    }
}

fn login_of(login: ServerLogin) -> LoginOf {
    LoginOf { tenant: TenantId(login.tenant), server: ServerId(login.server), client: login.client }
}

fn token_place(of: LoginOf, place: &str) -> Place<'_> {
    Place::ServerToken { tenant: of.tenant, server: of.server, client: of.client, place }
}

fn refused_pause(failures: u32) -> Duration {
    let (first, max) = REFUSED_PAUSES;
    doubled(first, max, failures)
}

fn unavailable(retry_s: f64, why: &str) -> LoginFailure {
    let retry_s =
        Duration::try_from_secs_f64(retry_s).map_or(1, |retry| retry.as_millis().div_ceil(1000).max(1));
    LoginFailure::Unavailable { retry_s: u32::try_from(retry_s).unwrap_or(u32::MAX), why: why.to_owned() }
}

fn after(seconds: Option<f64>) -> Option<Instant> {
    let left = Duration::try_from_secs_f64(seconds?.max(0.0)).ok()?;
    Some(Instant::now() + left)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(answer: serde_json::Value) -> Result<GoodAnswer, &'static str> {
        GoodAnswer::read(&serde_json::from_value(answer).unwrap())
    }

    #[test]
    fn only_tokens_that_can_be_sent_are_taken() {
        let good = read(json!({"access_token": "a.b", "token_type": "bearer", "expires_in": 600})).unwrap();
        assert_eq!((good.life_s, good.renew_s()), (Some(600.0), Some(540.0)));
        let short = read(json!({"access_token": "a", "expires_in": 10})).unwrap();
        assert_eq!(short.renew_s(), Some(5.0));
        assert_eq!(read(json!({"access_token": "a"})).unwrap().renew_s(), None);
        for bad in [
            json!({}),
            json!({"access_token": "a\r\nX: 1"}),
            json!({"access_token": "a b"}),
            json!({"access_token": "a", "token_type": "DPoP"}),
            json!({"access_token": "a", "expires_in": 0}),
            json!({"access_token": "a", "expires_in": -5}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn failures_of_providers_are_told_from_refusals() {
        use http::StatusCode;
        let is_refusal = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            matches!(Asked::of(&TokenError::Refused(status, None)), Asked::Refused(_))
        };
        for status in [400, 401, 403] {
            assert!(is_refusal(status), "{status}");
        }
        for status in [302, 404, 429, 500, 503] {
            assert!(!is_refusal(status), "{status}");
        }
        assert_eq!(refused_pause(0), Duration::from_secs(30));
        assert_eq!(refused_pause(9), Duration::from_secs(300));
        assert_eq!(unavailable(0.2, ""), unavailable(1.0, ""));
    }
}
