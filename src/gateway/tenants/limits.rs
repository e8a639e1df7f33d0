//! Rate limits: attempts per minute of one key, and of all keys of a tenant together (behaviour, section 3).
//!
//! Each replica counts for itself and admits its share: the limit divided by the number of live replicas. A bucket holds a
//! minute's share and refills evenly, so an idle key may use its whole minute at once. No minute sees more than twice the
//! limit, plus two per replica if it does not divide evenly. Any longer time sees at most its limit and one bucket. Refused
//! attempts take no token.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::Tenants;
use super::live::bucket::{RateShare, SECOND_NS};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::clock;
use crate::gateway::tenants::live::access::Caller;

/// Keys whose refused attempts are counted individually between two writes.
const SHED_KEYS_MAX: usize = 100_000;

/// Most attempts per key and minute that keep a record of their own although over the rate limit, because a check
/// refused them; as many forbidden ones keep theirs. Further ones are counted.
const EVIDENCE_MAX: u32 = 10;

/// Kind of a refused attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Shed {
    /// A call of any kind.
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

/// Refused attempts of one key since its last record.
#[derive(Debug)]
pub(in crate::gateway) struct Sheds {
    pub(in crate::gateway) tenant: TenantId,
    pub(in crate::gateway) key_name: Option<String>,
    pub(in crate::gateway) owner: String,
    pub(in crate::gateway) first: DateTime<Utc>,
    /// Number of attempts over the limit that kept a record of their own.
    evidence: u32,
    /// Number of forbidden attempts that kept a record of their own.
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

/// Rate limits on this replica.
#[derive(Debug)]
pub(in crate::gateway) struct RateLimits {
    /// Start of the clock of all buckets.
    epoch: Instant,
    replicas: AtomicU32,
    sheds: Mutex<HashMap<KeyId, Sheds>>,
    /// Number of attempts over a limit that were refused since the start.
    pub(in crate::gateway) shed: Count,
}

impl RateLimits {
    pub(in crate::gateway) fn new(epoch: Instant) -> RateLimits {
        RateLimits { epoch, replicas: AtomicU32::new(1), sheds: Mutex::default(), shed: Count::default() }
    }

    /// Sets the number of live replicas, which share each limit.
    pub(in crate::gateway) fn share_among(&self, replicas: u32) {
        self.replicas.store(replicas, Ordering::Relaxed);
    }

    /// Returns the number of live replicas, this one included.
    pub(in crate::gateway) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// Counts an attempt. One over the limit takes no token, and its refusal says when to retry.
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

    /// Counts an attempt that another check refused. Returns whether it keeps a record of its own: over the limit, only the
    /// first [`EVIDENCE_MAX`] of a key and minute do.
    pub(in crate::gateway) fn note(
        &self,
        caller: &Caller,
        what: Shed,
        at: DateTime<Utc>,
        now: Instant,
    ) -> bool {
        self.admit(caller, now).is_ok() || self.keeps_record(caller, what, at)
    }

    /// Returns whether a refused attempt that is over the limit or forbidden keeps a record of its own. If not, counts it in
    /// the record of the key's minute.
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

    /// Counts a refused attempt in the record of the key's minute.
    pub(in crate::gateway) fn count_shed(&self, caller: &Caller, what: Shed, at: DateTime<Utc>) {
        if what != Shed::Forbidden {
            self.shed.one();
        }
        self.with_sheds(caller, at, |sheds| *sheds.of(what) += 1);
    }

    /// Changes the counters of a key in this minute. Returns `None` for the platform's key, and if too many keys are
    /// counted.
    fn with_sheds<T>(
        &self,
        caller: &Caller,
        at: DateTime<Utc>,
        change: impl FnOnce(&mut Sheds) -> T,
    ) -> Option<T> {
        let key = caller.key?;
        let mut sheds = self.sheds.lock();
        if sheds.len() >= SHED_KEYS_MAX && !sheds.contains_key(&key) {
            return None;
        }
        Some(change(sheds.entry(key).or_insert_with(|| Sheds {
            tenant: caller.tenant_id(),
            key_name: caller.key_name.clone(),
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

    /// Takes the counters since the last call, by key.
    pub(in crate::gateway) fn take_sheds(&self) -> HashMap<KeyId, Sheds> {
        std::mem::take(&mut *self.sheds.lock())
    }
}

/// Returns the refusal of an attempt over a limit.
fn too_many(whose: &str, limit: u32, wait_ns: u64) -> Refusal {
    let seconds = wait_ns.div_ceil(SECOND_NS).max(1);
    let message = format!(
        "The rate limit of this {whose} ({limit} attempts per minute) is reached; nothing was run, try again in {seconds} s"
    );
    Refusal::new(Code::RateLimited, message).retry_after(seconds)
}

impl Tenants {
    /// Counts a `tools/list` against the rate: it has no record, but costs as much as a call.
    ///
    /// # Errors
    /// A refusal if the rate of the key or tenant is reached.
    pub fn admit_list(&self, caller: &Caller) -> Result<(), Refusal> {
        self.limits.admit(caller, Instant::now()).inspect_err(|_| {
            self.limits.count_shed(caller, Shed::List, clock::now());
        })
    }

    /// Counts a call of a management tool against the rate.
    ///
    /// # Errors
    /// A refusal if the rate of the key or tenant is reached.
    pub fn admit_management(&self, caller: &Caller) -> Result<(), Refusal> {
        self.limits.admit(caller, Instant::now()).inspect_err(|_| {
            self.limits.count_shed(caller, Shed::Call, clock::now());
        })
    }
}

#[cfg(test)]
mod tests;
