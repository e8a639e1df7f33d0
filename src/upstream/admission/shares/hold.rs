//! Memory held for one request or answer, until it is dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use uuid::Uuid;

use super::TenantShare;
use super::memory::{HeldPart, MemoryLevel, MemoryPurpose};

/// Size up to which a request or an answer counts against no share, in bytes. Most are no larger.
pub const FREE_BYTES_MAX: usize = 8 * 1024;
/// Longest wait for memory, in all, of one request or answer.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Smallest step in which memory is taken, in bytes. A step is an eighth of what is needed, at most
/// [`STEP_BYTES_MAX`].
const STEP_BYTES_MIN: usize = 8 * 1024;
const STEP_BYTES_MAX: usize = 1024 * 1024;

/// Error of a hold for which no memory was given back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShort;

/// Memory of one request or answer. It counts against the shares of an API key, its tenant and the replica.
#[derive(Debug)]
pub struct MemoryHold {
    tenant: Arc<TenantShare>,
    key: Option<Uuid>,
    purpose: MemoryPurpose,
    bytes: usize,
    wait_left: Duration,
    /// Memory held; `None` while no byte counts.
    held: Option<Box<HeldMemory>>,
}

#[derive(Debug, Default)]
struct HeldMemory {
    key_level: Option<Arc<MemoryLevel>>,
    of_key: HeldPart,
    of_tenant: HeldPart,
    of_replica: HeldPart,
    /// The right to grow beyond the shares of key and tenant.
    beyond_tenant: Option<OwnedSemaphorePermit>,
    /// The right to grow beyond the replica's budget.
    beyond_replica: Option<OwnedSemaphorePermit>,
}

impl MemoryHold {
    pub(super) fn new(
        tenant: Arc<TenantShare>,
        key: Option<Uuid>,
        purpose: MemoryPurpose,
        wait: Duration,
    ) -> Self {
        Self { tenant, key, purpose, bytes: 0, wait_left: wait, held: None }
    }

    /// Sets the longest time that the hold waits for memory, in all.
    #[must_use]
    pub fn waiting(self, wait_max: Duration) -> Self {
        Self { wait_left: wait_max, ..self }
    }

    /// Ensures memory for `bytes` in all. Waits until other requests and answers of the key, the tenant or
    /// the replica give memory back.
    ///
    /// # Errors
    /// [`MemoryShort`] if no memory is given back in time. Memory that was held before is still held.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), MemoryShort> {
        if bytes <= FREE_BYTES_MAX || bytes <= self.bytes {
            return Ok(());
        }
        let target = rounded(bytes);
        let began = tokio::time::Instant::now();
        // boxed: rare and large, it must not be part of every answer's future
        let taken = timeout(self.wait_left, Box::pin(self.take(target))).await;
        self.wait_left = self.wait_left.saturating_sub(began.elapsed());
        match taken {
            Ok(Some(())) => {
                self.bytes = target;
                Ok(())
            }
            _ => {
                self.tenant.replica.refused(self.purpose);
                Err(MemoryShort)
            }
        }
    }

    async fn take(&mut self, target: usize) -> Option<()> {
        let (grows, purpose) = (self.bytes > 0, self.purpose);
        let (tenant, key) = (&self.tenant, self.key);
        let held = self.held.get_or_insert_with(|| {
            let key_level = key.map(|key| tenant.key_level(key));
            Box::new(HeldMemory { key_level, ..HeldMemory::default() })
        });
        let HeldMemory { key_level, of_key, of_tenant, of_replica, beyond_tenant, beyond_replica } =
            &mut **held;
        if beyond_tenant.is_none() {
            let own = async {
                let mut of_both = target;
                if let Some(level) = key_level {
                    of_key.grow(level, purpose, target).await?;
                    // one that is larger than the key's share leaves the other keys theirs
                    of_both = target.min(level.bytes_max(purpose));
                }
                of_tenant.grow(&tenant.memory, purpose, of_both).await
            };
            tokio::select! {
                biased;
                taken = own => taken?,
                beyond = tenant.memory.overdraft(purpose).acquire_owned(), if grows => {
                    *beyond_tenant = Some(beyond.ok()?);
                }
            }
        }
        let replica = &tenant.replica.level;
        if beyond_replica.is_none() {
            tokio::select! {
                biased;
                taken = of_replica.grow(replica, purpose, target) => taken?,
                beyond = replica.overdraft(purpose).acquire_owned(), if grows => {
                    *beyond_replica = Some(beyond.ok()?);
                }
            }
        }
        Some(())
    }

    /// Gives back all but what `bytes` need.
    pub fn shrink(&mut self, bytes: usize) {
        if bytes <= FREE_BYTES_MAX {
            (self.held, self.bytes) = (None, 0);
            return;
        }
        let target = rounded(bytes).min(self.bytes);
        if let Some(held) = &mut self.held {
            for part in [&mut held.of_key, &mut held.of_tenant, &mut held.of_replica] {
                part.shrink(target);
            }
        }
        self.bytes = target;
    }

    /// Returns whether any memory is held.
    pub fn is_held(&self) -> bool {
        self.bytes > 0
    }

    /// Returns `bytes`, which hold this memory for as long as a slice of them is in use.
    pub fn keep(self, bytes: Bytes) -> Bytes {
        if !self.is_held() {
            return bytes;
        }
        Bytes::from_owner(Kept { bytes, _hold: self })
    }
}

/// Bytes with the memory that they hold.
struct Kept {
    bytes: Bytes,
    _hold: MemoryHold,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes / 8).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX))
}
