//! Tokens at servers: those of the gateway itself, one per server and tenant, and those of people, one per server and principal. They
//! are kept sealed in the database, asked for by one replica at a time, and renewed before they end. Tokens that are given in exchange
//! for those that people came with are kept in memory alone.
//!
//! In a replica, one call asks and the others wait for it. Over replicas, a lease in the row of the connection decides; no transaction
//! and no lock is held over HTTP. A request that was begun ends although its caller went away: its token is stored for all.

pub(super) mod answer;
pub(super) mod discover;
mod exchange;
mod person_token;
mod renewal;
mod slot;
pub(super) mod vault;

pub(super) use self::renewal::refused_pause;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use self::person_token::{Exchanges, PersonToken};
use self::slot::{Held, LoginSlot};
use super::Lifecycle;
use super::options::Options;
use crate::domain::backoff::{chance, jittered};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::identity::CallerToken;
use crate::domain::server_login::{LoginNeed, LoginState};
use crate::domain::shares::make_room;
use crate::store::{LoginOf, LoginTurn, SealedToken, Store};
use crate::upstream::{AccessToken, CONNECTIONS_MAX, LoginFailure, ServerLogin, TokenClient, TokenSource};

/// Longest wait for a token that another replica asks for.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest interval between looks at the database meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for which a failure is remembered without another look at the database.
const FAILED_FOR: Duration = Duration::from_secs(1);
/// Time after which the failures of a token endpoint before do not count.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// Tenant, server and principal of a login; nil for the tenant's.
type Key = (Uuid, Uuid, Uuid);

/// Tokens at the servers of all tenants.
#[derive(Clone)]
pub(super) struct ServerLogins(Arc<Shared>);

struct Shared {
    store: Store,
    client: TokenClient,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    slots: RwLock<HashMap<Key, Arc<LoginSlot>>>,
    exchanges: Exchanges,
}

impl fmt::Debug for ServerLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLogins").finish_non_exhaustive()
    }
}

impl TokenSource for ServerLogins {
    fn held(&self, login: ServerLogin) -> Option<AccessToken> {
        if login.exchanges {
            let person = self.0.exchanges.find(login)?;
            let held = person.slot.usable(None)?;
            if held.is_due() {
                self.exchange_aside(login, person);
            }
            return Some(held.token);
        }
        let slot = self.slot(login);
        let held = slot.usable(None)?;
        if held.is_due() {
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
            if login.exchanges {
                return self.exchanged(login, refused).await;
            }
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
            // a refusal of this call's token says nothing about other calls
            *slot.failed.lock() = obtained
                .as_ref()
                .err()
                .filter(|_| refused.is_none())
                .map(|failure| (Instant::now() + FAILED_FOR, failure.clone()));
            obtained
        })
    }

    fn recent(&self, login: ServerLogin) -> Vec<AccessToken> {
        let slots = match login.exchanges {
            true => self.0.exchanges.slots(login),
            false => self.0.slots.read().get(&key_of(login)).map(Arc::clone).into_iter().collect(),
        };
        slots.iter().flat_map(|slot| slot.recent()).collect()
    }

    fn wants(&self, login: ServerLogin, generation: i64, scopes: Vec<String>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.slot(login).drop_token(generation);
            if let Err(error) = self.0.store.want_scopes(login_of(login), generation, &scopes).await {
                tracing::warn!(tenant = %login.tenant, server = %login.server, %error, "wanted scopes were not noted");
            }
        })
    }

    fn reset(&self, tenant: Uuid, server: Uuid) {
        self.of_server(tenant, server, |slot| *slot.failed.lock() = None);
        self.0.exchanges.reset(tenant, server);
    }

    fn forget(&self, tenant: Uuid) {
        self.0.slots.write().retain(|key, _| key.0 != tenant);
        self.0.exchanges.forget(tenant);
    }

    fn sweep(&self) {
        self.0.exchanges.sweep();
    }

    fn as_of(&self, login: ServerLogin, epoch: i64) {
        // exchanged tokens are of no connection
        if !login.exchanges {
            self.slot(login).as_of(epoch);
        }
    }

    fn present(&self, login: ServerLogin, token: &Arc<CallerToken>) {
        if login.exchanges {
            self.0.exchanges.present(login, token);
        }
    }
}

impl ServerLogins {
    pub(super) fn new(
        store: Store,
        client: TokenClient,
        options: Arc<Options>,
        life: Arc<Lifecycle>,
    ) -> ServerLogins {
        ServerLogins(Arc::new(Shared {
            store,
            client,
            options,
            life,
            slots: RwLock::default(),
            exchanges: Exchanges::default(),
        }))
    }

    fn of_server(&self, tenant: Uuid, server: Uuid, act: impl Fn(&LoginSlot)) {
        let slots = self.0.slots.read();
        let own = slots.iter().filter(|(key, _)| (key.0, key.1) == (tenant, server));
        own.for_each(|(_, slot)| act(slot));
    }

    /// Returns the slot of a login. With another configuration it is a new one.
    fn slot(&self, login: ServerLogin) -> Arc<LoginSlot> {
        let key = key_of(login);
        let is_good = |slot: &&Arc<LoginSlot>| slot.client == login.client;
        if let Some(slot) = self.0.slots.read().get(&key).filter(is_good) {
            return Arc::clone(slot);
        }
        let mut slots = self.0.slots.write();
        if let Some(slot) = slots.get(&key).filter(is_good) {
            return Arc::clone(slot);
        }
        // the tokens of those dropped come back from the database
        let (has_room, _) = match slots.contains_key(&key) {
            true => (true, Vec::new()),
            false => make_room(&mut slots, CONNECTIONS_MAX, |key| key.0 == login.tenant),
        };
        let slot = Arc::new(LoginSlot::new(login.client, slots.get(&key).map(|before| &**before)));
        if has_room {
            slots.insert(key, Arc::clone(&slot));
        }
        slot
    }

    /// Renews a token that has not ended yet, beside the calls that use it.
    fn renew_aside(&self, login: ServerLogin, slot: &Arc<LoginSlot>) {
        let Ok(turn) = Arc::clone(&slot.turn).try_lock_owned() else { return };
        let (this, slot) = (self.clone(), Arc::clone(slot));
        self.0.life.tasks.spawn(async move {
            let _turn = turn;
            let obtained = this.obtain(login, &slot, None).await;
            if let Err(failure) = obtained {
                tracing::debug!(server = %login.server, ?failure, "a token was not renewed yet");
            }
            // no next try within a moment, whatever came of this one
            slot.renew_later(Instant::now() + FAILED_FOR);
        });
    }

    /// Exchanges a person's token once more, beside the calls that use what was given for it.
    fn exchange_aside(&self, login: ServerLogin, person: Arc<PersonToken>) {
        let Ok(turn) = Arc::clone(&person.slot.turn).try_lock_owned() else { return };
        let this = self.clone();
        self.0.life.tasks.spawn(async move {
            let slot = Arc::clone(&person.slot);
            if let Err((failure, pause)) = this.exchange_in_turn(login, person, turn).await {
                tracing::debug!(server = %login.server, ?failure, "a token was not renewed yet");
                slot.renew_later(Instant::now() + pause.max(FAILED_FOR));
            }
        });
    }

    /// Takes the token from the database, or asks for one if nobody else does.
    async fn obtain(
        &self,
        login: ServerLogin,
        slot: &LoginSlot,
        mut seen: Option<i64>,
    ) -> Result<AccessToken, LoginFailure> {
        let (of, options) = (login_of(login), &self.0.options);
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let epoch = slot.epoch();
            let turn = self.0.store.take_login_turn(of, seen, options.server_logins.lease).await;
            let turn = turn.map_err(|error| {
                tracing::warn!(tenant = %of.tenant, server = %of.server, %error, "no token could be read");
                unavailable(1.0, "the gateway's database does not answer")
            })?;
            match turn {
                LoginTurn::Held(sealed) => match self.open(of, &sealed) {
                    Some(held) => {
                        let token = held.token.clone();
                        slot.keep(held, epoch);
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
                    let asked = self.0.life.tasks.spawn(async move { this.ask(&claim).await }).await;
                    match asked.unwrap_or_else(|_| Err(unavailable(1.0, "the request was lost")))? {
                        Some(held) => {
                            let token = held.token.clone();
                            slot.keep(held, epoch);
                            return Ok(token);
                        }
                        // another request took over
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
                LoginTurn::RefusedAgain if of.principal.is_some() => return Err(needed(LoginNeed::Ended)),
                LoginTurn::RefusedAgain => {
                    let why = "it refuses a token after many others of this minute".to_owned();
                    return Err(LoginFailure::Refused { why, generation: seen });
                }
                LoginTurn::Needed(false) => return Err(needed(LoginNeed::First)),
                LoginTurn::Needed(true) => return Err(needed(LoginNeed::Ended)),
                LoginTurn::Failed { state: Some(LoginState::LoginRequired), error, .. } => {
                    return Err(LoginFailure::Refused { why: error, generation: None });
                }
                LoginTurn::Failed { retry_s, error, .. } => return Err(unavailable(retry_s, &error)),
                LoginTurn::Gone => return Err(unavailable(1.0, "the login was changed")),
            }
        }
    }

    fn open(&self, of: LoginOf, sealed: &SealedToken) -> Option<Held> {
        let place = vault::token_place(of, vault::ACCESS, &sealed.place);
        let text = vault::open(&self.0.options.keyring, of.tenant, (&sealed.token, &sealed.keys), place)?;
        let token = AccessToken::new(&text, sealed.generation)?;
        Some(Held { token, ends: after(sealed.expires_s), renew: after(sealed.renew_s) })
    }
}

fn key_of(login: ServerLogin) -> Key {
    (login.tenant, login.server, login.principal.unwrap_or_default())
}

fn login_of(login: ServerLogin) -> LoginOf {
    let ServerLogin { tenant, server, principal, client, .. } = login;
    LoginOf { tenant: TenantId(tenant), server: ServerId(server), principal, client }
}

fn needed(need: LoginNeed) -> LoginFailure {
    LoginFailure::Needed { need, scopes: Vec::new() }
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
    use super::*;

    #[test]
    fn callers_are_told_whole_seconds() {
        assert_eq!(unavailable(0.2, ""), unavailable(1.0, ""));
        assert_ne!(unavailable(1.2, ""), unavailable(1.0, ""));
    }
}
