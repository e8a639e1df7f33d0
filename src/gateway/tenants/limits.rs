//! Rate limits: attempts per minute of one key, and of all keys of a tenant together (behaviour, section 3).
//!
//! Each replica counts for itself and lets its share through: the limit divided by the replicas that live. A bucket
//! holds a minute's share and fills evenly, so that an idle key may use its whole minute at once; no minute sees more
//! than twice the limit (and two more per replica, where it does not divide evenly), and no longer time more than the
//! limit and one bucket. What is refused takes nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, Utc};

use super::Tenants;
use super::live::bucket::{RateShare, SECOND_NS};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::clock;
use crate::gateway::tenants::live::access::Caller;

/// Keys whose refused attempts are counted apart between two writes.
const SHED_KEYS_MAX: usize = 100_000;

/// Attempts over the rate limit that a check refused and that keep a record of their own, per key and minute; as many that
/// are forbidden do. Further ones are counted.
const EVIDENCE_MAX: u32 = 10;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Shed {
    /// A `call_tool_*`.
    Call,
    /// A search.
    Search,
    /// A `read_cache`.
    Read,
    /// A `tools/list`.
    List,
    /// An attempt that its key may not make, whatever its rate.
    Forbidden,
}

/// Refused attempts of one key since the last record of them.
#[derive(Debug)]
pub(in crate::gateway) struct Sheds {
    pub(in crate::gateway) tenant: TenantId,
    pub(in crate::gateway) owner: String,
    pub(in crate::gateway) first: DateTime<Utc>,
    /// Attempts over the limit that have a record of their own.
    evidence: u32,
    /// Forbidden attempts that have a record of their own.
    forbidden_evidence: u32,
    pub(in crate::gateway) calls: u64,
    pub(in crate::gateway) searches: u64,
    pub(in crate::gateway) reads: u64,
    pub(in crate::gateway) lists: u64,
    pub(in crate::gateway) forbidden: u64,
}

impl Sheds {
    fn of(&mut self, what: Shed) -> &mut u64 {
        match what {
            Shed::Call => &mut self.calls,
            Shed::Search => &mut self.searches,
            Shed::Read => &mut self.reads,
            Shed::List => &mut self.lists,
            Shed::Forbidden => &mut self.forbidden,
        }
    }

    fn evidence(&mut self, what: Shed) -> &mut u32 {
        match what {
            Shed::Forbidden => &mut self.forbidden_evidence,
            _ => &mut self.evidence,
        }
    }
}

/// The limits of this replica.
#[derive(Debug)]
pub(in crate::gateway) struct RateLimits {
    /// Where the clock of all buckets begins.
    epoch: Instant,
    replicas: AtomicU32,
    sheds: Mutex<HashMap<KeyId, Sheds>>,
    /// Attempts over the limit that were counted, since the start.
    pub(in crate::gateway) shed: Count,
}

impl RateLimits {
    pub(in crate::gateway) fn new(epoch: Instant) -> RateLimits {
        RateLimits { epoch, replicas: AtomicU32::new(1), sheds: Mutex::default(), shed: Count::default() }
    }

    /// Takes over how many replicas live.
    pub(in crate::gateway) fn share_among(&self, replicas: u32) {
        self.replicas.store(replicas, Ordering::Relaxed);
    }

    /// How many replicas live, this one included.
    pub(in crate::gateway) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// Counts an attempt. One that is too much counts for nothing, and its refusal says when the next may come.
    pub(in crate::gateway) fn admit(&self, caller: &Caller, now: Instant) -> Result<(), Refusal> {
        let rates = caller.rates;
        if rates.key.is_none() && rates.tenant.is_none() {
            return Ok(());
        }
        let now_ns = u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        let replicas = self.replicas.load(Ordering::Relaxed);
        let own = rates.key.map(|limit| RateShare::of(limit, replicas));
        if let (Some(share), Some(limit)) = (own, rates.key) {
            caller.bucket.take(share, now_ns).map_err(|wait_ns| too_many("key", limit, wait_ns))?;
        }
        if let (Some(limit), Some(tenant)) = (rates.tenant, &caller.tenant)
            && let Err(wait_ns) = tenant.bucket.take(RateShare::of(limit, replicas), now_ns)
        {
            if let Some(share) = own {
                caller.bucket.give_back(share);
            }
            return Err(too_many("tenant", limit, wait_ns));
        }
        Ok(())
    }

    /// Counts an attempt that was refused already, for a reason of its own. Returns whether it keeps a record of its own:
    /// over the limit, only the first [`EVIDENCE_MAX`] of a key and minute do.
    pub(in crate::gateway) fn note(
        &self,
        caller: &Caller,
        what: Shed,
        at: DateTime<Utc>,
        now: Instant,
    ) -> bool {
        self.admit(caller, now).is_ok() || self.keeps_record(caller, what, at)
    }

    /// Returns whether an attempt that was refused for a reason of its own, and is over the limit or forbidden, keeps a
    /// record of its own. If not, it is counted for the record of this key's minute.
    pub(in crate::gateway) fn keeps_record(&self, caller: &Caller, what: Shed, at: DateTime<Utc>) -> bool {
        let is_kept = self.with_sheds(caller, at, |sheds| {
            let evidence = sheds.evidence(what);
            let has_room = *evidence < EVIDENCE_MAX;
            *evidence += u32::from(has_room);
            has_room
        });
        // the platform's key has no rate, but may be forbidden something: what cannot be counted is recorded
        let is_kept = is_kept.unwrap_or(what == Shed::Forbidden);
        if !is_kept {
            self.count_shed(caller, what, at);
        }
        is_kept
    }

    /// Counts a refused attempt, for the record of this key's minute.
    pub(in crate::gateway) fn count_shed(&self, caller: &Caller, what: Shed, at: DateTime<Utc>) {
        if what != Shed::Forbidden {
            self.shed.one();
        }
        self.with_sheds(caller, at, |sheds| *sheds.of(what) += 1);
    }

    /// Changes what is counted of a key in this minute; `None` for the platform's key, and while too many keys are
    /// counted.
    fn with_sheds<T>(
        &self,
        caller: &Caller,
        at: DateTime<Utc>,
        change: impl FnOnce(&mut Sheds) -> T,
    ) -> Option<T> {
        let key = caller.key?;
        let mut sheds = self.sheds.lock().unwrap_or_else(PoisonError::into_inner);
        if sheds.len() >= SHED_KEYS_MAX && !sheds.contains_key(&key) {
            return None;
        }
        Some(change(sheds.entry(key).or_insert_with(|| Sheds {
            tenant: caller.tenant_id(),
            owner: caller.owner.clone(),
            first: at,
            evidence: 0,
            forbidden_evidence: 0,
            calls: 0,
            searches: 0,
            reads: 0,
            lists: 0,
            forbidden: 0,
        })))
    }

    /// Takes what was refused since the last time, by key.
    pub(in crate::gateway) fn take_sheds(&self) -> HashMap<KeyId, Sheds> {
        std::mem::take(&mut *self.sheds.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The answer to an attempt that is too much.
fn too_many(whose: &str, limit: u32, wait_ns: u64) -> Refusal {
    let seconds = wait_ns.div_ceil(SECOND_NS).max(1);
    let message = format!(
        "The rate limit of this {whose} ({limit} attempts per minute) is reached; nothing was run, try again in {seconds} s"
    );
    Refusal::new(Code::RateLimited, message).retry_after(seconds)
}

impl Tenants {
    /// Counts a `tools/list`, which is no attempt of the log's but costs like one.
    pub fn admit_list(&self, caller: &Caller) -> Result<(), Refusal> {
        self.limits.admit(caller, Instant::now()).inspect_err(|_| {
            self.limits.count_shed(caller, Shed::List, clock::now());
        })
    }

    /// Counts a call of a management tool.
    pub fn admit_management(&self, caller: &Caller) -> Result<(), Refusal> {
        self.limits.admit(caller, Instant::now()).inspect_err(|_| {
            self.limits.count_shed(caller, Shed::Call, clock::now());
        })
    }
}

#[cfg(test)]
mod tests;
