//! Round-robin queue of tenants with definitions to embed, and of definitions set aside. A plain state machine: time is
//! passed in.
//!
//! A tenant's definitions may be ones that the service refuses or cannot process in time. That costs the other tenants one
//! request per round, and this tenant its pauses.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::domain::backoff::{Backoff, chance};
use crate::domain::id::TenantId;

/// Time for which a refused definition is not sent again.
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// First pause of a definition that the service failed at, maybe for another reason; doubles up to [`REFUSED_FOR`].
const FAILED_FOR_MIN: Duration = Duration::from_secs(1);
/// First pause of a tenant after a failure at its definitions; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Definitions set aside per tenant; beyond that, the tenant's further ones wait for [`REFUSED_FOR`].
const ASIDE_MAX: usize = 1000;
/// Definitions set aside over all tenants.
const ALL_ASIDE_MAX: usize = 100_000;
/// Shortest time between two log lines about one tenant's failures.
const TELL: Duration = Duration::from_secs(300);

/// Result of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// The service returned vectors.
    Well,
    /// The service refused a text.
    Refused,
    /// The service failed, perhaps because of a text.
    Failed,
}

/// Next definitions to send of a tenant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Pin after which the definitions begin.
    pub(super) after: String,
    /// Pins left out, because they are set aside.
    pub(super) except: Vec<String>,
    /// Most definitions in the batch.
    pub(super) limit: usize,
}

/// Tenants that have, or may have, definitions to send.
#[derive(Debug)]
pub(super) struct EmbedTurns {
    batch_max: usize,
    tenants: BTreeMap<TenantId, Standing>,
    /// Tenant of the last batch.
    last: Option<TenantId>,
}

/// State of a tenant in the queue.
#[derive(Debug)]
struct Standing {
    /// Time of the next batch.
    due: Instant,
    /// Earliest time of the next batch, whatever changes.
    paused: Instant,
    pauses: Backoff,
    /// Most definitions in a batch: halved by each failure, so that a bad one ends up alone; one more after each success.
    limit: usize,
    after: String,
    aside: BTreeMap<String, Aside>,
    told: Option<Instant>,
    /// Definitions set aside since the last log line.
    untold: usize,
}

/// A definition that is not sent for some time.
#[derive(Debug)]
struct Aside {
    until: Instant,
    times: Backoff,
}

impl EmbedTurns {
    /// Creates an empty queue.
    pub(super) fn new(batch_max: usize) -> EmbedTurns {
        EmbedTurns { batch_max: batch_max.max(1), tenants: BTreeMap::new(), last: None }
    }

    /// Adds a tenant whose definitions may have changed.
    pub(super) fn add(&mut self, tenant: TenantId, now: Instant) {
        let batch_max = self.batch_max;
        let standing = self.tenants.entry(tenant).or_insert_with(|| Standing::new(batch_max, now));
        standing.due = standing.due.min(standing.paused.max(now));
    }

    /// Returns the next tenant that is due; `None` if none is.
    pub(super) fn next(&mut self, now: Instant) -> Option<TenantId> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut in_turn = self.tenants.range((behind, Bound::Unbounded)).chain(&self.tenants);
        let (tenant, _) = in_turn.find(|(_, standing)| standing.due <= now)?;
        self.last = Some(*tenant);
        self.last
    }

    /// Returns the time of the next batch, if nothing changes; `None` if the queue is empty.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.tenants.values().map(|standing| standing.due).min()
    }

    /// Returns the batch to send for this tenant.
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

    /// Notes that a tenant has no more to send now: it is due again when a definition is no longer set aside.
    pub(super) fn nothing(&mut self, tenant: TenantId, now: Instant) {
        let Some(standing) = self.tenants.get_mut(&tenant) else { return };
        if !standing.after.is_empty() {
            // the scan wraps to the definitions before the start
            standing.after.clear();
            return;
        }
        standing.aside.retain(|_, aside| aside.until > now);
        match standing.aside.values().map(|aside| aside.until).min() {
            Some(until) => standing.due = until,
            None => drop(self.tenants.remove(&tenant)),
        }
    }

    /// Notes the result of a batch.
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
            let pause = standing.pauses.jittered(chance());
            standing.pause_until(now + pause);
        }
        if let [pin] = pins {
            standing.set_aside(pin, ended, all_aside, now);
        }
    }

    /// Removes a deleted tenant.
    pub(super) fn forget(&mut self, tenant: TenantId) {
        self.tenants.remove(&tenant);
    }

    /// Returns the number of definitions set aside, if it should be logged: once all of a tenant's are sent, or the tenant
    /// pauses.
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
        aside.until =
            now + if ended == BatchEnd::Refused { REFUSED_FOR } else { aside.times.jittered(chance()) };
    }
}

#[cfg(test)]
mod tests;
