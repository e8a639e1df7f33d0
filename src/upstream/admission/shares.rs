//! Shares of one tenant in the resources that all tenants use: threads for name look-ups, memory, processor time for
//! answers, queued log lines.

mod hold;
mod memory;
mod reading;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

pub use hold::{FREE_BYTES_MAX, MemoryHold, MemoryShort};
pub use memory::{MemoryLimits, MemoryPurpose, MemoryVitals};

pub(in crate::upstream) use reading::INLINE_BYTES_MAX;
pub use reading::lower_priority;

use self::reading::ReadingShare;
use memory::{MemoryLevel, ReplicaMemory};

/// Most name look-ups of all tenants at the same time. Each occupies a thread of those that also build catalogues.
const LOOKUPS_MAX: usize = 256;
/// Most name look-ups of one tenant at the same time.
const TENANT_LOOKUPS_MAX: usize = 32;
/// Most name look-ups of one upstream at the same time.
const UPSTREAM_LOOKUPS_MAX: usize = 2;
/// Most lines of one tenant's programs that wait to be written: a quarter of all that may wait.
const TENANT_LOG_LINES_MAX: usize = 1024;

/// Shares of all tenants that have a connection or hold memory.
#[derive(Debug)]
pub(in crate::upstream) struct TenantShares {
    lookups: Arc<Semaphore>,
    /// Permits for long work of all tenants: at most half of the processors are taken from short work.
    places: Arc<Semaphore>,
    memory: Arc<ReplicaMemory>,
    tenants: Mutex<HashMap<Uuid, Weak<TenantShare>>>,
}

#[derive(Debug)]
struct TenantShare {
    lookups: Arc<Semaphore>,
    log_turns: Arc<Semaphore>,
    reading: ReadingShare,
    memory: MemoryLevel,
    keys: Mutex<HashMap<Uuid, Weak<MemoryLevel>>>,
    replica: Arc<ReplicaMemory>,
}

impl TenantShare {
    /// Returns the memory share of an API key, which lives as long as the key holds any memory.
    fn key_level(&self, key: Uuid) -> Arc<MemoryLevel> {
        let mut keys = self.keys.lock();
        if let Some(known) = keys.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        keys.retain(|_, level| level.strong_count() > 0);
        let level = Arc::new(self.replica.limits.key_level());
        keys.insert(key, Arc::downgrade(&level));
        level
    }
}

/// Share of one upstream in the resources of its tenant.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Share {
    all_lookups: Arc<Semaphore>,
    own_lookups: Arc<Semaphore>,
    tenant: Arc<TenantShare>,
    /// Longest wait of an answer for memory, in all.
    pub(in crate::upstream) memory_wait_max: Duration,
}

impl TenantShares {
    /// Creates the shares; `limits` bounds the memory of requests and answers.
    pub(in crate::upstream) fn new(limits: MemoryLimits) -> Self {
        let places = available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            places: Arc::new(Semaphore::new(places)),
            memory: Arc::new(ReplicaMemory::new(limits)),
            tenants: Mutex::default(),
        }
    }

    /// Returns the state of the memory budget of requests and answers.
    pub(in crate::upstream) fn memory_vitals(&self) -> MemoryVitals {
        self.memory.vitals()
    }

    /// Returns the share of an upstream that is about to be connected to.
    pub(in crate::upstream) fn of(&self, tenant: Uuid) -> Share {
        Share {
            all_lookups: Arc::clone(&self.lookups),
            own_lookups: Arc::new(Semaphore::new(UPSTREAM_LOOKUPS_MAX)),
            tenant: self.tenant(tenant),
            memory_wait_max: hold::WAIT_MAX,
        }
    }

    /// Returns a hold for the memory of a request or an answer of this key; nothing is held yet.
    pub(in crate::upstream) fn memory(
        &self,
        tenant: Uuid,
        key: Option<Uuid>,
        purpose: MemoryPurpose,
    ) -> MemoryHold {
        MemoryHold::new(self.tenant(tenant), key, purpose, hold::WAIT_MAX)
    }

    fn tenant(&self, tenant: Uuid) -> Arc<TenantShare> {
        let mut tenants = self.tenants.lock();
        if let Some(known) = tenants.get(&tenant).and_then(Weak::upgrade) {
            return known;
        }
        tenants.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(TenantShare {
            lookups: Arc::new(Semaphore::new(TENANT_LOOKUPS_MAX)),
            log_turns: Arc::new(Semaphore::new(TENANT_LOG_LINES_MAX)),
            reading: ReadingShare::new(Arc::clone(&self.places)),
            memory: self.memory.limits.tenant_level(),
            keys: Mutex::default(),
            replica: Arc::clone(&self.memory),
        });
        tenants.insert(tenant, Arc::downgrade(&share));
        share
    }
}

impl Share {
    /// Waits for the permits to resolve a name, to be held until the look-up has really ended. The caller bounds the
    /// wait.
    pub(in crate::upstream) async fn lookup(&self) -> Option<[OwnedSemaphorePermit; 3]> {
        let own = Arc::clone(&self.own_lookups).acquire_owned().await.ok()?;
        let tenant = Arc::clone(&self.tenant.lookups).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all_lookups).acquire_owned().await.ok()?;
        Some([own, tenant, all])
    }

    /// Counts `bytes` of an answer against the tenant's read rate; returns how long to wait before reading more.
    pub(in crate::upstream) fn read(&self, bytes: usize) -> Duration {
        self.tenant.reading.take(bytes)
    }

    /// Runs work whose time grows with `bytes`: at once if they are few, else as [`Self::in_turn`] does.
    pub(in crate::upstream) async fn aside<T: Send>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        self.tenant.reading.aside(bytes, work).await
    }

    /// Runs long work at a low priority, one piece of the tenant at a time.
    pub(in crate::upstream) async fn in_turn<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.tenant.reading.in_turn(work).await
    }

    /// Returns the permits for log lines of the tenant that wait to be written.
    pub(in crate::upstream) fn log_turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.tenant.log_turns)
    }

    /// Returns a hold for the memory of an answer to `key`, or of the tenant alone without one. It holds nothing yet.
    pub(in crate::upstream) fn answer(&self, key: Option<Uuid>) -> MemoryHold {
        MemoryHold::new(Arc::clone(&self.tenant), key, MemoryPurpose::Answer, self.memory_wait_max)
    }
}

#[cfg(test)]
mod tests;
