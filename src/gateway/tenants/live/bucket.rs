//! Token buckets of rate limits.

use std::sync::atomic::{AtomicU64, Ordering};

pub(in crate::gateway::tenants) const MINUTE_NS: u64 = 60_000_000_000;
pub(in crate::gateway::tenants) const SECOND_NS: u64 = 1_000_000_000;
/// More replicas than this are not told apart.
const REPLICAS_MAX: u32 = 1_000_000;
/// What one replica may let through of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway::tenants) struct RateShare {
    /// What the bucket holds: the share rounded up, so that every replica lets something through.
    pub(in crate::gateway::tenants) tokens: u64,
    /// The time in which one token comes back; exact but for its rounding up.
    pub(in crate::gateway::tenants) interval_ns: u64,
}

impl RateShare {
    pub(in crate::gateway::tenants) fn of(per_minute: u32, replicas: u32) -> RateShare {
        let (limit, replicas) = (u64::from(per_minute.max(1)), u64::from(replicas.clamp(1, REPLICAS_MAX)));
        RateShare { tokens: limit.div_ceil(replicas), interval_ns: (MINUTE_NS * replicas).div_ceil(limit) }
    }

    /// The time in which an empty bucket fills.
    fn whole_ns(self) -> u64 {
        self.tokens.saturating_mul(self.interval_ns)
    }
}

/// A token bucket in one word: the moment at which it is full again, on the clock of the rate limits.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Bucket(AtomicU64);

impl Bucket {
    /// Takes a token, or gives the nanoseconds until there is one.
    pub(in crate::gateway::tenants) fn take(&self, share: RateShare, now_ns: u64) -> Result<(), u64> {
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

    pub(in crate::gateway::tenants) fn give_back(&self, share: RateShare) {
        // never below zero: a limit that changed meanwhile may have left less than this
        let less = |full_at: u64| Some(full_at.saturating_sub(share.interval_ns));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}
