//! Tokens that people came with, and the tokens at servers that were given in exchange for them. Both are in memory alone: another
//! replica asks for tokens of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use uuid::Uuid;

use super::slot::LoginSlot;
use crate::domain::identity::CallerToken;
use crate::domain::shares::make_room;
use crate::gateway::clock;
use crate::upstream::{CONNECTIONS_MAX, ExchangeFor, LoginFailure, ServerLogin};

/// Most tokens of a person that are kept for a server: the newest ones.
const TOKENS_MAX: usize = 16;
/// Most exchanges in a minute because the server refused a token, for each token of a person.
const REFUSED_PER_MINUTE: usize = 6;

/// Tenant, server, principal, and generation of the login's configuration.
type PersonKey = (Uuid, Uuid, Uuid, Uuid);

fn key_of(login: ServerLogin) -> PersonKey {
    (login.tenant, login.server, login.principal.unwrap_or_default(), login.client)
}

/// Token that a person came with, and what was given in exchange for it.
pub(super) struct PersonToken {
    pub(super) token: Arc<CallerToken>,
    /// End of the token.
    pub(super) ends: Instant,
    pub(super) slot: Arc<LoginSlot>,
    /// Times of exchanges because the server refused a token.
    refused: Mutex<VecDeque<Instant>>,
    /// Refusals by the token endpoint in a row.
    refusals: AtomicU32,
}

impl PersonToken {
    fn new(token: &Arc<CallerToken>, client: Uuid) -> PersonToken {
        let left_s = token.expires_s.saturating_sub(clock::now().timestamp()).max(0);
        PersonToken {
            token: Arc::clone(token),
            ends: Instant::now() + Duration::from_secs(left_s.unsigned_abs()),
            slot: Arc::new(LoginSlot::new(client, None)),
            refused: Mutex::default(),
            refusals: AtomicU32::new(0),
        }
    }

    fn has_ended(&self) -> bool {
        self.ends <= Instant::now()
    }

    /// Counts an exchange because the server refused a token. Returns whether there may be one.
    pub(super) fn may_exchange_again(&self) -> bool {
        let mut refused = self.refused.lock();
        refused.retain(|at| at.elapsed() < Duration::from_secs(60));
        let may = refused.len() < REFUSED_PER_MINUTE;
        if may {
            refused.push_back(Instant::now());
        }
        may
    }

    /// Counts a refusal of the token endpoint, and returns how many there were before it.
    pub(super) fn count_refusal(&self) -> u32 {
        self.refusals.fetch_add(1, Ordering::Relaxed)
    }

    /// Forgets the refusals.
    pub(super) fn forgive(&self) {
        self.refusals.store(0, Ordering::Relaxed);
    }
}

/// Tokens of one person for one server, the newest at the end.
type PersonTokens = RwLock<Vec<Arc<PersonToken>>>;

/// Failure of a token endpoint that is not about one person.
struct EndpointFailure {
    client: Uuid,
    until: Instant,
    failure: LoginFailure,
    /// Failures in a row.
    count: u32,
}

/// Tokens of all people.
#[derive(Default)]
pub(super) struct Exchanges {
    people: RwLock<HashMap<PersonKey, Arc<PersonTokens>>>,
    /// Failing token endpoints, by tenant and server.
    failing: Mutex<HashMap<(Uuid, Uuid), EndpointFailure>>,
    /// Number of tokens so far.
    numbers: AtomicI64,
}

impl Exchanges {
    /// Notes that a person came with a token.
    pub(super) fn present(&self, login: ServerLogin, token: &Arc<CallerToken>) {
        let person = self.person(login);
        let is_known = |tokens: &[Arc<PersonToken>]| tokens.iter().any(|kept| kept.token.mark == token.mark);
        if is_known(&person.read()) {
            return;
        }
        let mut tokens = person.write();
        if is_known(&tokens) {
            return;
        }
        tokens.retain(|kept| !kept.has_ended());
        if tokens.len() >= TOKENS_MAX {
            tokens.remove(0);
        }
        tokens.push(Arc::new(PersonToken::new(token, login.client)));
    }

    /// Returns the token that requests of a login are sent for; `None` without one that has not ended. For work that is nobody's
    /// call, that is the newest for which something is at hand, or else the newest.
    pub(super) fn find(&self, login: ServerLogin) -> Option<Arc<PersonToken>> {
        let person = self.people.read().get(&key_of(login)).map(Arc::clone)?;
        let tokens = person.read();
        let mut living = tokens.iter().rev().filter(|kept| !kept.has_ended());
        let found = match login.exchange_for {
            ExchangeFor::Nobody => None,
            ExchangeFor::Token(mark) => living.find(|kept| kept.token.mark == mark),
            ExchangeFor::Newest => {
                let at_hand = living.clone().find(|kept| kept.slot.usable(None).is_some());
                at_hand.or_else(|| living.next())
            }
        };
        found.map(Arc::clone)
    }

    /// Returns the slots of all tokens of a person for a server.
    pub(super) fn slots(&self, login: ServerLogin) -> Vec<Arc<LoginSlot>> {
        let person = self.people.read().get(&key_of(login)).map(Arc::clone);
        let slots = |person: Arc<PersonTokens>| {
            person.read().iter().map(|kept| Arc::clone(&kept.slot)).collect::<Vec<_>>()
        };
        person.map(slots).unwrap_or_default()
    }

    /// Returns the failure of a server's token endpoint, until it may be asked again.
    pub(super) fn endpoint_failure(&self, login: ServerLogin) -> Option<LoginFailure> {
        let failing = self.failing.lock();
        let found = failing.get(&(login.tenant, login.server))?;
        let is_now = found.client == login.client && found.until > Instant::now();
        is_now.then(|| found.failure.clone())
    }

    /// Notes a failure of a server's token endpoint for a pause that grows with the failures in a row.
    pub(super) fn endpoint_failed(
        &self,
        login: ServerLogin,
        failed: impl FnOnce(u32) -> (LoginFailure, Duration),
    ) -> (LoginFailure, Duration) {
        let mut failing = self.failing.lock();
        let before = failing.get(&(login.tenant, login.server)).filter(|found| found.client == login.client);
        let count = before.map_or(0, |found| found.count);
        let (failure, pause) = failed(count);
        let until = Instant::now() + pause;
        let noted =
            EndpointFailure { client: login.client, until, failure: failure.clone(), count: count + 1 };
        failing.insert((login.tenant, login.server), noted);
        (failure, pause)
    }

    /// Notes that a server's token endpoint works.
    pub(super) fn endpoint_works(&self, login: ServerLogin) {
        self.failing.lock().remove(&(login.tenant, login.server));
    }

    /// Forgets the failures of a moment ago at a server.
    pub(super) fn reset(&self, tenant: Uuid, server: Uuid) {
        self.failing.lock().remove(&(tenant, server));
        let people = self.people.read();
        for (_, person) in people.iter().filter(|(key, _)| (key.0, key.1) == (tenant, server)) {
            for kept in person.read().iter() {
                kept.forgive();
                *kept.slot.failed.lock() = None;
            }
        }
    }

    /// Forgets the tokens of a tenant.
    pub(super) fn forget(&self, tenant: Uuid) {
        self.people.write().retain(|key, _| key.0 != tenant);
        self.failing.lock().retain(|key, _| key.0 != tenant);
    }

    /// Forgets tokens that have ended, and failures that are over.
    pub(super) fn sweep(&self) {
        self.people.write().retain(|_, person| {
            let mut tokens = person.write();
            tokens.retain(|kept| !kept.has_ended());
            !tokens.is_empty()
        });
        let now = Instant::now();
        self.failing.lock().retain(|_, found| found.until + super::FORGIVEN_AFTER > now);
    }

    /// Returns a number for a token: no two have the same.
    pub(super) fn number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn person(&self, login: ServerLogin) -> Arc<PersonTokens> {
        let key = key_of(login);
        if let Some(person) = self.people.read().get(&key) {
            return Arc::clone(person);
        }
        let mut people = self.people.write();
        if !people.contains_key(&key) {
            make_room(&mut people, CONNECTIONS_MAX, |key| key.0 == login.tenant);
        }
        // what is under way at this moment alone is beyond the room
        Arc::clone(people.entry(key).or_default())
    }
}
