//! Login at one server, as a replica knows it: the token at hand, those of the last minutes, and the last failure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use uuid::Uuid;

use crate::upstream::{AccessToken, LoginFailure};

/// Time for which a token is remembered after it was replaced: no call lasts longer.
const RECENT_FOR: Duration = Duration::from_secs(1800);
/// Most tokens that are remembered; refusals renew six a minute at most.
const RECENT_MAX: usize = 50;

/// Token at hand.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) token: AccessToken,
    /// End of the token; `None` if the provider does not say.
    pub(super) ends: Option<Instant>,
    /// Time from which the next token is asked for; `None` if nothing renews it.
    pub(super) renew: Option<Instant>,
}

impl Held {
    /// Returns whether the next token is to be asked for.
    pub(super) fn is_due(&self) -> bool {
        self.renew.is_some_and(|renew| renew <= Instant::now())
    }
}

/// Login at one server, as this replica knows it.
pub(super) struct LoginSlot {
    /// Generation of the configuration.
    pub(super) client: Uuid,
    /// Number of connections that were made or removed at the server, as far as is known here.
    epoch: AtomicI64,
    held: RwLock<Option<Held>>,
    recent: Mutex<VecDeque<(Instant, AccessToken)>>,
    /// Failure of a moment ago, and the end of that moment.
    pub(super) failed: Mutex<Option<(Instant, LoginFailure)>>,
    /// Held by whoever asks for a token.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl LoginSlot {
    /// Creates a slot without a token. It knows the tokens of `before`, which calls may still use.
    pub(super) fn new(client: Uuid, before: Option<&LoginSlot>) -> LoginSlot {
        let recent = before.map(|before| before.recent.lock().clone()).unwrap_or_default();
        LoginSlot {
            client,
            epoch: AtomicI64::new(0),
            held: RwLock::default(),
            recent: Mutex::new(recent),
            failed: Mutex::default(),
            turn: Arc::default(),
        }
    }

    /// Returns a token that has not ended and is newer than `seen`.
    pub(super) fn usable(&self, seen: Option<i64>) -> Option<Held> {
        let held = self.held.read().clone()?;
        let is_new = seen.is_none_or(|seen| held.token.generation > seen);
        (is_new && held.ends.is_none_or(|ends| ends > Instant::now())).then_some(held)
    }

    /// Returns how new what is known of the login is.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Forgets the token at hand if a connection was made or removed at the server since it was read.
    pub(super) fn as_of(&self, epoch: i64) {
        if self.epoch() >= epoch {
            return;
        }
        // under the lock, so that no token that was read before is kept afterwards
        let mut held = self.held.write();
        if self.epoch.fetch_max(epoch, Ordering::AcqRel) < epoch {
            *held = None;
            *self.failed.lock() = None;
        }
    }

    /// Keeps a token at hand that was read as of this epoch. A token of an earlier one serves its call alone.
    pub(super) fn keep(&self, new: Held, epoch: i64) {
        let mut recent = self.recent.lock();
        recent.retain(|(since, _)| since.elapsed() < RECENT_FOR);
        if !recent.iter().any(|(_, token)| *token == new.token) {
            if recent.len() >= RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back((Instant::now(), new.token.clone()));
        }
        let mut held = self.held.write();
        if self.epoch() == epoch {
            *held = Some(new);
        }
    }

    /// Returns the tokens of the last minutes.
    pub(super) fn recent(&self) -> Vec<AccessToken> {
        self.recent.lock().iter().map(|(_, token)| token.clone()).collect()
    }

    /// Drops the token of this number, or an older one.
    pub(super) fn drop_token(&self, generation: i64) {
        let mut held = self.held.write();
        if held.as_ref().is_some_and(|held| held.token.generation <= generation) {
            *held = None;
        }
    }

    /// Puts the next renewal off until `then`.
    pub(super) fn renew_later(&self, then: Instant) {
        if let Some(held) = self.held.write().as_mut() {
            held.renew = held.renew.map(|renew| renew.max(then));
        }
    }

    pub(super) fn recent_failure(&self) -> Option<LoginFailure> {
        let failed = self.failed.lock();
        failed.as_ref().filter(|(until, _)| *until > Instant::now()).map(|(_, failure)| failure.clone())
    }
}
