//! Tokens that people came with, and the tokens at servers that were given in exchange for them. Both are in memory alone: another
//! replica asks for tokens of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;
use uuid::Uuid;

use super::Key;
use super::slot::LoginSlot;
use crate::domain::identity::CallerToken;
use crate::domain::shares::make_room;
use crate::gateway::clock;
use crate::upstream::{CONNECTIONS_MAX, ServerLogin};

/// Most tokens of a person that are kept for a server: the newest ones.
const TOKENS_MAX: usize = 8;
/// Most exchanges in a minute because the server refused a token, for each token of a person.
const REFUSED_PER_MINUTE: usize = 6;

/// Token that a person came with, and what was given in exchange for it.
pub(super) struct PersonToken {
    pub(super) token: Arc<CallerToken>,
    /// End of the token.
    pub(super) ends: Instant,
    pub(super) slot: Arc<LoginSlot>,
    /// Times of exchanges because the server refused a token.
    refused: RwLock<VecDeque<Instant>>,
    /// Failures in a row.
    failures: AtomicI64,
}

impl PersonToken {
    fn new(token: &Arc<CallerToken>, client: Uuid) -> PersonToken {
        let left_s = token.expires_s.saturating_sub(clock::now().timestamp()).max(0);
        PersonToken {
            token: Arc::clone(token),
            ends: Instant::now() + Duration::from_secs(left_s.unsigned_abs()),
            slot: Arc::new(LoginSlot::new(client, None)),
            refused: RwLock::default(),
            failures: AtomicI64::new(0),
        }
    }

    /// Counts an exchange because the server refused a token. Returns whether there may be one.
    pub(super) fn may_exchange_again(&self) -> bool {
        let mut refused = self.refused.write();
        refused.retain(|at| at.elapsed() < Duration::from_secs(60));
        let may = refused.len() < REFUSED_PER_MINUTE;
        if may {
            refused.push_back(Instant::now());
        }
        may
    }

    /// Counts a failure, and returns how many there were before it.
    pub(super) fn failed(&self) -> u32 {
        u32::try_from(self.failures.fetch_add(1, Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Forgets the failures.
    pub(super) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }
}

/// Tokens of one person for one server, the newest at the end.
struct OfPerson {
    client: Uuid,
    tokens: RwLock<Vec<Arc<PersonToken>>>,
}

/// Tokens of all people.
#[derive(Default)]
pub(super) struct Exchanges {
    people: RwLock<HashMap<Key, Arc<OfPerson>>>,
    /// Number of tokens so far.
    numbers: AtomicI64,
}

impl Exchanges {
    /// Notes that a person came with a token.
    pub(super) fn present(&self, login: ServerLogin, token: &Arc<CallerToken>) {
        let person = self.person(login);
        let is_known = |tokens: &[Arc<PersonToken>]| tokens.iter().any(|kept| kept.token.mark == token.mark);
        if is_known(&person.tokens.read()) {
            return;
        }
        let mut tokens = person.tokens.write();
        if is_known(&tokens) {
            return;
        }
        tokens.retain(|kept| kept.ends > Instant::now());
        if tokens.len() >= TOKENS_MAX {
            tokens.remove(0);
        }
        tokens.push(Arc::new(PersonToken::new(token, login.client)));
    }

    /// Returns the token of a login by its mark, or the newest; `None` without any that has not ended.
    pub(super) fn presented(&self, login: ServerLogin) -> Option<Arc<PersonToken>> {
        let person = self.people.read().get(&super::key_of(login)).map(Arc::clone)?;
        if person.client != login.client {
            return None;
        }
        let tokens = person.tokens.read();
        let is_it = |kept: &&Arc<PersonToken>| {
            login.mark.is_none_or(|mark| kept.token.mark == mark) && kept.ends > Instant::now()
        };
        tokens.iter().rev().find(is_it).map(Arc::clone)
    }

    /// Returns the slots of all tokens of a person for a server.
    pub(super) fn slots(&self, login: ServerLogin) -> Vec<Arc<LoginSlot>> {
        let person = self.people.read().get(&super::key_of(login)).map(Arc::clone);
        let slots = |person: Arc<OfPerson>| {
            person.tokens.read().iter().map(|kept| Arc::clone(&kept.slot)).collect::<Vec<_>>()
        };
        person.map(slots).unwrap_or_default()
    }

    /// Forgets the failures of a moment ago at a server.
    pub(super) fn reset(&self, tenant: Uuid, server: Uuid) {
        let people = self.people.read();
        for (_, person) in people.iter().filter(|(key, _)| (key.0, key.1) == (tenant, server)) {
            for kept in person.tokens.read().iter() {
                kept.succeeded();
                *kept.slot.failed.lock() = None;
            }
        }
    }

    /// Forgets the tokens of a tenant.
    pub(super) fn forget(&self, tenant: Uuid) {
        self.people.write().retain(|key, _| key.0 != tenant);
    }

    /// Returns a number for a token: no two have the same.
    pub(super) fn number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn person(&self, login: ServerLogin) -> Arc<OfPerson> {
        let key = super::key_of(login);
        let is_good = |person: &&Arc<OfPerson>| person.client == login.client;
        if let Some(person) = self.people.read().get(&key).filter(is_good) {
            return Arc::clone(person);
        }
        let mut people = self.people.write();
        if let Some(person) = people.get(&key).filter(is_good) {
            return Arc::clone(person);
        }
        let (has_room, _) = match people.contains_key(&key) {
            true => (true, Vec::new()),
            false => make_room(&mut people, CONNECTIONS_MAX, |key| key.0 == login.tenant),
        };
        let person = Arc::new(OfPerson { client: login.client, tokens: RwLock::default() });
        if has_room {
            people.insert(key, Arc::clone(&person));
        }
        person
    }
}
