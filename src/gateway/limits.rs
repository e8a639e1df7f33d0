//! Rate limits: attempts per minute of one key, and of all keys of a tenant together (behaviour, section 3).
//!
//! Each replica counts for itself and lets its share through: the limit divided by the replicas that live. A bucket
//! holds a minute's share and fills evenly, so that an idle key may use its whole minute at once; no minute sees more
//! than twice the limit (and two more per replica, where it does not divide evenly), and no longer time more than the
//! limit and one bucket. What is refused takes nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, Utc};

use super::Gateway;
use super::access::Caller;
use crate::domain::activity::{Kind, Record, Source, Status};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;
use crate::domain::refusal::{Code, Refusal};

const MINUTE_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// More replicas than this are not told apart.
const REPLICAS_MAX: u32 = 1_000_000;
/// Keys whose refused attempts are counted apart between two writes.
const SHED_KEYS_MAX: usize = 100_000;

/// What one replica may let through of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// What the bucket holds: the share rounded up, so that every replica lets something through.
    tokens: u64,
    /// The time in which one token comes back; exact but for its rounding up.
    interval_ns: u64,
}

impl Share {
    fn of(per_minute: u32, replicas: u32) -> Share {
        let (limit, replicas) = (u64::from(per_minute.max(1)), u64::from(replicas.clamp(1, REPLICAS_MAX)));
        Share { tokens: limit.div_ceil(replicas), interval_ns: (MINUTE_NS * replicas).div_ceil(limit) }
    }

    /// The time in which an empty bucket fills.
    fn whole_ns(self) -> u64 {
        self.tokens.saturating_mul(self.interval_ns)
    }
}

/// A token bucket in one word: the moment at which it is full again, on the clock of [`Limits`].
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    /// Takes a token, or gives the nanoseconds until there is one.
    fn take(&self, share: Share, now_ns: u64) -> Result<(), u64> {
        let mut full_at = self.0.load(Ordering::Relaxed);
        loop {
            let emptiest = now_ns.saturating_add(share.whole_ns());
            // only another limit can have left so much: under this one the bucket is empty, no worse
            if full_at > emptiest.saturating_add(SECOND_NS) {
                full_at = self.swap(full_at, emptiest).map_or_else(|moved| moved, |()| emptiest);
                continue;
            }
            let owed_ns = full_at.saturating_sub(now_ns) + share.interval_ns;
            if owed_ns > share.whole_ns() {
                return Err(owed_ns - share.whole_ns());
            }
            match self.swap(full_at, now_ns + owed_ns) {
                Ok(()) => return Ok(()),
                Err(moved) => full_at = moved,
            }
        }
    }

    fn swap(&self, from: u64, to: u64) -> Result<(), u64> {
        self.0.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed).map(drop)
    }

    fn give_back(&self, share: Share) {
        // never below zero: a limit that changed meanwhile may have left less than this
        let less = |full_at: u64| Some(full_at.saturating_sub(share.interval_ns));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

/// Attempts over the rate limit that a check refused and that keep a record of their own, per key and minute. Further ones
/// are counted.
const EVIDENCE_MAX: u32 = 10;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shed {
    /// A `call_tool_*`.
    Call,
    /// A search.
    Search,
    /// A `read_cache`.
    Read,
    /// A `tools/list`.
    List,
}

/// Refused attempts of one key since the last record of them.
#[derive(Debug)]
struct Sheds {
    tenant: TenantId,
    owner: String,
    first: DateTime<Utc>,
    /// Attempts that have a record of their own.
    evidence: u32,
    calls: u64,
    searches: u64,
    reads: u64,
    lists: u64,
}

impl Sheds {
    fn of(&mut self, what: Shed) -> &mut u64 {
        match what {
            Shed::Call => &mut self.calls,
            Shed::Search => &mut self.searches,
            Shed::Read => &mut self.reads,
            Shed::List => &mut self.lists,
        }
    }
}

/// The limits of this replica.
#[derive(Debug)]
pub(super) struct Limits {
    /// Where the clock of all buckets begins.
    epoch: Instant,
    replicas: AtomicU32,
    sheds: Mutex<HashMap<KeyId, Sheds>>,
    /// All of them, since the start.
    pub(super) shed: Count,
}

impl Limits {
    pub(super) fn new(epoch: Instant) -> Limits {
        Limits { epoch, replicas: AtomicU32::new(1), sheds: Mutex::default(), shed: Count::default() }
    }

    /// Takes over how many replicas live.
    pub(super) fn share_among(&self, replicas: u32) {
        self.replicas.store(replicas, Ordering::Relaxed);
    }

    /// How many replicas live, this one included.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// Counts an attempt. One that is too much counts for nothing, and its refusal says when the next may come.
    pub(super) fn admit(&self, caller: &Caller, now: Instant) -> Result<(), Refusal> {
        let rates = caller.rates;
        if rates.key.is_none() && rates.tenant.is_none() {
            return Ok(());
        }
        let now_ns = u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        let replicas = self.replicas.load(Ordering::Relaxed);
        let own = rates.key.map(|limit| Share::of(limit, replicas));
        if let (Some(share), Some(limit)) = (own, rates.key) {
            caller.bucket.take(share, now_ns).map_err(|wait_ns| too_many("key", limit, wait_ns))?;
        }
        if let (Some(limit), Some(tenant)) = (rates.tenant, &caller.tenant)
            && let Err(wait_ns) = tenant.bucket.take(Share::of(limit, replicas), now_ns)
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
    pub(super) fn note(&self, caller: &Caller, what: Shed, at: DateTime<Utc>, now: Instant) -> bool {
        self.admit(caller, now).is_ok() || self.keeps_record(caller, what, at)
    }

    /// Returns whether an attempt over the limit that was refused for a reason of its own keeps a record of its own. If
    /// not, it is counted for the record of this key's minute.
    pub(super) fn keeps_record(&self, caller: &Caller, what: Shed, at: DateTime<Utc>) -> bool {
        let is_kept = self.with_sheds(caller, at, |sheds| {
            let has_room = sheds.evidence < EVIDENCE_MAX;
            sheds.evidence += u32::from(has_room);
            has_room
        });
        let is_kept = is_kept.unwrap_or_default();
        if !is_kept {
            self.count_shed(caller, what, at);
        }
        is_kept
    }

    /// Counts a refused attempt, for the record of this key's minute.
    pub(super) fn count_shed(&self, caller: &Caller, what: Shed, at: DateTime<Utc>) {
        self.shed.one();
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
            calls: 0,
            searches: 0,
            reads: 0,
            lists: 0,
        })))
    }

    fn take_sheds(&self) -> HashMap<KeyId, Sheds> {
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

impl Gateway {
    /// Counts a `tools/list`, which is no attempt of the log's but costs like one.
    pub fn admit_list(&self, caller: &Caller) -> Result<(), Refusal> {
        self.limits.admit(caller, Instant::now()).inspect_err(|_| {
            self.limits.count_shed(caller, Shed::List, super::clock::now());
        })
    }

    /// Counts a call of a management tool.
    pub fn admit_management(&self, caller: &Caller) -> Result<(), Refusal> {
        self.limits.admit(caller, Instant::now()).inspect_err(|_| {
            self.limits.count_shed(caller, Shed::Call, super::clock::now());
        })
    }

    /// Writes what was refused since the last time, one record per key.
    pub(super) fn record_sheds(&self) {
        for (key, sheds) in self.limits.take_sheds() {
            let Sheds { calls, searches, reads, lists, .. } = sheds;
            let count = calls + searches + reads + lists;
            if count == 0 {
                continue;
            }
            let mut record = Record::start(sheds.tenant, Kind::System, Source::System, sheds.first);
            record.key = Some(key);
            record.owner = Some(sheds.owner);
            record.status = Status::Rejected;
            record.error_code = Some(Code::RateLimited.as_str().to_owned());
            record.error_message =
                Some(format!("{count} attempts over the rate limit were refused within a minute"));
            record.arguments = Some(format!(
                r#"{{"count":{count},"calls":{calls},"searches":{searches},"reads":{reads},"lists":{lists}}}"#
            ));
            self.write(record);
        }
    }
}

#[cfg(test)]
mod tests;
