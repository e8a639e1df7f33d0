//! Shares of this replica's memory: one for the replica, one per tenant, one per API key.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::measure::Count;
use crate::domain::shares::TENANT_PART;

/// Default for the memory that all requests and answers of a replica may hold, in bytes.
const REPLICA_BYTES_MAX: usize = 614 * 1024 * 1024;
/// Default for the memory that requests and answers of one tenant may hold, in bytes.
const TENANT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Divisor of a tenant's share for one API key, which may hold a half of it.
const KEY_PART: usize = 2;
/// Divisor of a share for requests, which may hold a half of it. The rest is left for answers, with which requests
/// end.
const REQUEST_PART: usize = 2;

/// Purpose of held memory: a request or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPurpose {
    /// The body of a request, from its first bytes until it has been answered.
    Request,
    /// An answer or a list, until its last byte has been written.
    Answer,
}

/// Bounds on the memory of requests and answers, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Most memory of all tenants together, in bytes.
    pub replica_bytes_max: usize,
    /// Most memory of one tenant, in bytes; at most a quarter of `replica_bytes_max` counts.
    pub tenant_bytes_max: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { replica_bytes_max: REPLICA_BYTES_MAX, tenant_bytes_max: TENANT_BYTES_MAX }
    }
}

impl MemoryLimits {
    fn tenant(&self) -> usize {
        self.tenant_bytes_max.min(self.replica_bytes_max / TENANT_PART)
    }

    pub(super) fn tenant_level(&self) -> MemoryLevel {
        MemoryLevel::new(self.tenant())
    }

    pub(super) fn key_level(&self) -> MemoryLevel {
        MemoryLevel::new(self.tenant() / KEY_PART)
    }
}

/// State of the replica's memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryVitals {
    /// Budget, in bytes.
    pub bytes_max: usize,
    /// Memory held by requests, in bytes.
    pub request_bytes: usize,
    /// Memory held by answers and lists, in bytes.
    pub answer_bytes: usize,
    /// Requests refused for want of memory, since the start.
    pub refused_requests: u64,
    /// Answers refused for want of memory, since the start.
    pub refused_answers: u64,
}

/// Memory budget of the replica.
#[derive(Debug)]
pub(super) struct ReplicaMemory {
    pub(super) limits: MemoryLimits,
    pub(super) level: MemoryLevel,
    refused_requests: Count,
    refused_answers: Count,
}

impl ReplicaMemory {
    pub(super) fn new(limits: MemoryLimits) -> Self {
        let level = MemoryLevel::new(limits.replica_bytes_max);
        Self { limits, level, refused_requests: Count::default(), refused_answers: Count::default() }
    }

    /// Counts a refusal.
    pub(super) fn refused(&self, purpose: MemoryPurpose) {
        match purpose {
            MemoryPurpose::Request => self.refused_requests.one(),
            MemoryPurpose::Answer => self.refused_answers.one(),
        }
    }

    pub(super) fn vitals(&self) -> MemoryVitals {
        let level = &self.level;
        let held = level.bytes_max.saturating_sub(level.all.available_permits());
        let request_bytes = level.request_bytes_max.saturating_sub(level.requests.available_permits());
        MemoryVitals {
            bytes_max: level.bytes_max,
            request_bytes,
            answer_bytes: held.saturating_sub(request_bytes),
            refused_requests: self.refused_requests.get(),
            refused_answers: self.refused_answers.get(),
        }
    }
}

/// Memory share of the replica, a tenant or an API key. A permit is a byte.
#[derive(Debug)]
pub(super) struct MemoryLevel {
    bytes_max: usize,
    all: Arc<Semaphore>,
    request_bytes_max: usize,
    requests: Arc<Semaphore>,
    /// Rights to grow beyond the share: one for a single request, one for a single answer at a time. Without
    /// them, holders that each have a part and wait for more could deadlock.
    overdrafts: [Arc<Semaphore>; 2],
}

impl MemoryLevel {
    fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.clamp(REQUEST_PART, Semaphore::MAX_PERMITS);
        let request_bytes_max = bytes_max / REQUEST_PART;
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            bytes_max,
            all: semaphore(bytes_max),
            request_bytes_max,
            requests: semaphore(request_bytes_max),
            overdrafts: [semaphore(1), semaphore(1)],
        }
    }

    /// Returns the most that requests, or answers, may hold of this share, in bytes.
    pub(super) fn bytes_max(&self, purpose: MemoryPurpose) -> usize {
        match purpose {
            MemoryPurpose::Request => self.request_bytes_max,
            MemoryPurpose::Answer => self.bytes_max,
        }
    }

    pub(super) fn overdraft(&self, purpose: MemoryPurpose) -> Arc<Semaphore> {
        let [request, answer] = &self.overdrafts;
        Arc::clone(match purpose {
            MemoryPurpose::Request => request,
            MemoryPurpose::Answer => answer,
        })
    }

    async fn take(&self, purpose: MemoryPurpose, bytes: u32) -> Option<Taken> {
        let request = match purpose {
            MemoryPurpose::Request => Some(Arc::clone(&self.requests).acquire_many_owned(bytes).await.ok()?),
            MemoryPurpose::Answer => None,
        };
        let all = Arc::clone(&self.all).acquire_many_owned(bytes).await.ok()?;
        Some(Taken { all, request })
    }
}

/// Bytes taken from a share.
struct Taken {
    all: OwnedSemaphorePermit,
    request: Option<OwnedSemaphorePermit>,
}

/// Part of one share that one holder has.
#[derive(Debug, Default)]
pub(super) struct HeldPart {
    bytes: usize,
    all: Option<OwnedSemaphorePermit>,
    request: Option<OwnedSemaphorePermit>,
}

impl HeldPart {
    /// Takes memory until the part has `target` bytes, waiting for others to give memory back. A target above
    /// the whole share takes the whole share.
    pub(super) async fn grow(
        &mut self,
        level: &MemoryLevel,
        purpose: MemoryPurpose,
        target: usize,
    ) -> Option<()> {
        let target = target.min(level.bytes_max(purpose));
        let Some(more) = target.checked_sub(self.bytes).filter(|more| *more > 0) else { return Some(()) };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Taken { all, request } = level.take(purpose, more).await?;
        merge(&mut self.all, Some(all));
        merge(&mut self.request, request);
        self.bytes = target;
        Some(())
    }

    /// Gives back all but `target` bytes.
    pub(super) fn shrink(&mut self, target: usize) {
        let extra = self.bytes.saturating_sub(target);
        for held in [&mut self.all, &mut self.request] {
            drop(held.as_mut().and_then(|held| held.split(extra)));
        }
        self.bytes -= extra;
    }
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (held.as_mut(), more) {
        (Some(held), Some(more)) => held.merge(more),
        (None, more) => *held = more,
        (Some(_), None) => {}
    }
}
