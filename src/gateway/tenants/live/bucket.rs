//! Token buckets of rate limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::domain::id::KeyId;

pub(in crate::gateway::tenants) const MINUTE_NS: u64 = 60_000_000_000;
pub(in crate::gateway::tenants) const SECOND_NS: u64 = 1_000_000_000;
/// Most replicas among which a limit is divided.
const REPLICAS_MAX: u32 = 1_000_000;
/// Share of a limit that one replica admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway::tenants) struct RateShare {
    /// Capacity of the bucket, in tokens: the share rounded up, so that every replica admits at least one attempt.
    pub(in crate::gateway::tenants) tokens: u64,
    /// Time in which one token returns, in nanoseconds, rounded up.
    pub(in crate::gateway::tenants) interval_ns: u64,
}

impl RateShare {
    pub(in crate::gateway::tenants) fn of(per_minute: u32, replicas: u32) -> RateShare {
        let (limit, replicas) = (u64::from(per_minute.max(1)), u64::from(replicas.clamp(1, REPLICAS_MAX)));
        RateShare { tokens: limit.div_ceil(replicas), interval_ns: (MINUTE_NS * replicas).div_ceil(limit) }
    }

    /// Returns the time in which an empty bucket fills, in nanoseconds.
    fn whole_ns(self) -> u64 {
        self.tokens.saturating_mul(self.interval_ns)
    }
}

/// A token bucket in one word: the time at which it is full again, in nanoseconds on the clock of the rate limits.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Bucket(AtomicU64);

impl Bucket {
    /// Takes a token. The error is the time until one is available, in nanoseconds.
    pub(in crate::gateway::tenants) fn take(&self, share: RateShare, now_ns: u64) -> Result<(), u64> {
        let mut full_at = self.0.load(Ordering::Relaxed);
        loop {
            let emptiest = now_ns.saturating_add(share.whole_ns());
            // only a former limit can have left a later time: under this one the bucket counts as empty
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

    pub(in crate::gateway::tenants) fn give_back(&self, share: RateShare) {
        // never below zero: a limit that changed meanwhile may have left less than one interval
        let less = |full_at: u64| Some(full_at.saturating_sub(share.interval_ns));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

/// Buckets of people who log in, which outlive their tokens. Those that no caller holds go when there are too many.
#[derive(Debug, Default)]
pub(in crate::gateway) struct PeopleBuckets(Mutex<HashMap<KeyId, Arc<Bucket>>>);

/// Number of people of a tenant above which idle buckets go.
const IDLE_BUCKETS_MAX: usize = 10_000;

impl PeopleBuckets {
    /// Returns the bucket of a person.
    pub(in crate::gateway::tenants) fn of(&self, principal: KeyId) -> Arc<Bucket> {
        let mut buckets = self.0.lock();
        if buckets.len() >= IDLE_BUCKETS_MAX && !buckets.contains_key(&principal) {
            buckets.retain(|_, bucket| Arc::strong_count(bucket) > 1);
        }
        Arc::clone(buckets.entry(principal).or_default())
    }
}
