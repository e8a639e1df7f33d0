//! Whose definitions are sent next, and what is set aside meanwhile. A plain state: time is passed in.
//!
//! A tenant's definitions may be ones that the service cannot take, or not in time. That costs the others one request
//! per turn, and that tenant its pauses.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::domain::id::TenantId;
use crate::store::Backoff;

/// How long a definition that the service refuses is not sent.
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// The shortest time for one that it failed at: it may have failed for another reason. Each is twice the one before.
const FAILED_FOR_MIN: Duration = Duration::from_secs(1);
/// Pauses of a tenant at whose definitions the service fails.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Definitions of a tenant that are remembered as set aside. After as many, those behind them wait for an hour.
const ASIDE_MAX: usize = 1000;
/// Those of all tenants together.
const ALL_ASIDE_MAX: usize = 100_000;
/// How often a tenant's trouble is told at most.
const TELL: Duration = Duration::from_secs(300);

/// What became of what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// There are vectors.
    Well,
    /// The service refuses a text.
    Refused,
    /// It failed, maybe at a text.
    Failed,
}

/// What is sent of a tenant next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Definitions behind this pin,
    pub(super) after: String,
    /// but for these,
    pub(super) except: Vec<String>,
    /// at most so many.
    pub(super) limit: usize,
}

/// Tenants that have, or may have, definitions to send.
#[derive(Debug)]
pub(super) struct EmbedTurns {
    batch_max: usize,
    tenants: BTreeMap<TenantId, Standing>,
    /// Who had the last turn.
    last: Option<TenantId>,
}

/// How a tenant stands with the service.
#[derive(Debug)]
struct Standing {
    /// When it has its next turn.
    due: Instant,
    /// It has none before, whatever changes.
    paused: Instant,
    pauses: Backoff,
    /// Halved by each failure, so that what cannot be sent ends up alone; one more with each success.
    limit: usize,
    after: String,
    aside: BTreeMap<String, Aside>,
    told: Option<Instant>,
    /// Set aside since.
    untold: usize,
}

/// A definition that is not sent for now.
#[derive(Debug)]
struct Aside {
    until: Instant,
    times: Backoff,
}

impl EmbedTurns {
    /// Nobody yet.
    pub(super) fn new(batch_max: usize) -> EmbedTurns {
        EmbedTurns { batch_max: batch_max.max(1), tenants: BTreeMap::new(), last: None }
    }

    /// A tenant's definitions may have changed.
    pub(super) fn add(&mut self, tenant: TenantId, now: Instant) {
        let batch_max = self.batch_max;
        let standing = self.tenants.entry(tenant).or_insert_with(|| Standing::new(batch_max, now));
        standing.due = standing.due.min(standing.paused.max(now));
    }

    /// Whose turn it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<TenantId> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut in_turn = self.tenants.range((behind, Bound::Unbounded)).chain(&self.tenants);
        let (tenant, _) = in_turn.find(|(_, standing)| standing.due <= now)?;
        self.last = Some(*tenant);
        self.last
    }

    /// When the next one is, if nothing changes.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.tenants.values().map(|standing| standing.due).min()
    }

    /// What to send in this tenant's turn.
    pub(super) fn batch(&self, tenant: TenantId, now: Instant) -> Batch {
        let Some(standing) = self.tenants.get(&tenant) else {
            return Batch { after: String::new(), except: Vec::new(), limit: 0 };
        };
        let except = standing.aside.iter().filter(|(_, aside)| aside.until > now);
        Batch {
            after: standing.after.clone(),
            except: except.map(|(pin, _)| pin.clone()).collect(),
            limit: standing.limit,
        }
    }

    /// There was nothing to send: its next turn is when something is no longer set aside.
    pub(super) fn nothing(&mut self, tenant: TenantId, now: Instant) {
        let Some(standing) = self.tenants.get_mut(&tenant) else { return };
        if !standing.after.is_empty() {
            // and now those before
            standing.after.clear();
            return;
        }
        standing.aside.retain(|_, aside| aside.until > now);
        match standing.aside.values().map(|aside| aside.until).min() {
            Some(until) => standing.due = until,
            None => drop(self.tenants.remove(&tenant)),
        }
    }

    /// How it ended with what was sent.
    pub(super) fn ended(&mut self, tenant: TenantId, pins: &[String], ended: BatchEnd, now: Instant) {
        let all_aside: usize = self.tenants.values().map(|standing| standing.aside.len()).sum();
        let batch_max = self.batch_max;
        let Some(standing) = self.tenants.get_mut(&tenant) else { return };
        if ended == BatchEnd::Well {
            standing.limit = (standing.limit + 1).min(batch_max);
            standing.pauses.reset();
            standing.aside.retain(|pin, _| !pins.contains(pin));
            return;
        }
        standing.limit = (pins.len() / 2).max(1);
        if ended == BatchEnd::Failed {
            let pause = standing.pauses.pause();
            standing.pause_until(now + pause);
        }
        if let [pin] = pins {
            standing.set_aside(pin, ended, all_aside, now);
        }
    }

    /// It has nothing to send any more.
    pub(super) fn forget(&mut self, tenant: TenantId) {
        self.tenants.remove(&tenant);
    }

    /// How many definitions were set aside, once that is worth a line in the log: when all of a tenant's have been sent,
    /// or it pauses.
    pub(super) fn news(&mut self, tenant: TenantId, now: Instant) -> Option<usize> {
        let standing = self.tenants.get_mut(&tenant)?;
        let is_told = standing.told.is_some_and(|told| now.saturating_duration_since(told) < TELL);
        if standing.untold == 0 || is_told || standing.due <= now {
            return None;
        }
        standing.told = Some(now);
        Some(std::mem::take(&mut standing.untold))
    }
}

impl Standing {
    fn new(limit: usize, now: Instant) -> Standing {
        Standing {
            due: now,
            paused: now,
            pauses: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            limit,
            after: String::new(),
            aside: BTreeMap::new(),
            told: None,
            untold: 0,
        }
    }

    fn pause_until(&mut self, until: Instant) {
        (self.paused, self.due) = (until, until);
    }

    fn set_aside(&mut self, pin: &str, ended: BatchEnd, all_aside: usize, now: Instant) {
        self.untold += 1;
        let is_full = self.aside.len() >= ASIDE_MAX || all_aside >= ALL_ASIDE_MAX;
        if is_full && !self.aside.contains_key(pin) {
            pin.clone_into(&mut self.after);
            self.aside.clear();
            return self.pause_until(now + REFUSED_FOR);
        }
        let fresh = || Aside { until: now, times: Backoff::new(FAILED_FOR_MIN, REFUSED_FOR) };
        let aside = self.aside.entry(pin.to_owned()).or_insert_with(fresh);
        aside.until = now + if ended == BatchEnd::Refused { REFUSED_FOR } else { aside.times.pause() };
    }
}

#[cfg(test)]
mod tests;
