//! What one tenant may have of what all tenants share: threads for name look-ups, memory for large answers, places
//! for lines of logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use uuid::Uuid;

use super::error::{Kind, UpstreamError};

/// Name look-ups of all tenants at the same time. Each occupies a thread, which also builds catalogues.
const LOOKUPS_MAX: usize = 256;
/// Name look-ups of one tenant at the same time.
const TENANT_LOOKUPS_MAX: usize = 32;
/// Name look-ups of one upstream at the same time.
const UPSTREAM_LOOKUPS_MAX: usize = 2;
/// Memory of one tenant's large answers where nothing else is said, in bytes.
pub(super) const ANSWERS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Lines of one tenant's programs that wait to be written: a quarter of all that may.
const TENANT_LOG_LINES_MAX: usize = 1024;
/// The unit in which memory is shared out, in bytes.
const PART_BYTES: usize = 1024 * 1024;
/// What an answer may have without asking, in bytes.
const FREE_BYTES_MAX: usize = 256 * 1024;
/// Longest wait of an answer for memory.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);

/// The shares of all tenants that have a connection.
#[derive(Debug)]
pub(super) struct Shares {
    lookups: Arc<Semaphore>,
    answers_bytes_max: usize,
    tenants: Mutex<HashMap<Uuid, Weak<TenantShare>>>,
}

#[derive(Debug)]
struct TenantShare {
    lookups: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    parts: usize,
    log_turns: Arc<Semaphore>,
    /// One answer may grow beyond the share: without it, answers that each hold a part and wait for more could
    /// wait for each other.
    overdraft: Arc<Semaphore>,
}

/// The share of one upstream in its tenant's.
#[derive(Clone, Debug)]
pub(super) struct Share {
    all_lookups: Arc<Semaphore>,
    own_lookups: Arc<Semaphore>,
    tenant: Arc<TenantShare>,
    /// Longest wait of an answer for memory.
    pub(super) room_wait_max: Duration,
}

impl Shares {
    /// Each tenant's large answers may have `answers_bytes_max` at the same time.
    pub(super) fn new(answers_bytes_max: usize) -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)), answers_bytes_max, tenants: Mutex::default() }
    }

    /// What all tenants' large answers have now, in bytes.
    pub(super) fn answers_bytes(&self) -> usize {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = |share: Arc<TenantShare>| share.parts.saturating_sub(share.answers.available_permits());
        tenants.values().filter_map(Weak::upgrade).map(taken).sum::<usize>() * PART_BYTES
    }

    /// The share of an upstream that is about to be connected to.
    pub(super) fn of(&self, tenant: Uuid) -> Share {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = match tenants.get(&tenant).and_then(Weak::upgrade) {
            Some(known) => known,
            None => {
                tenants.retain(|_, share| share.strong_count() > 0);
                let parts = (self.answers_bytes_max / PART_BYTES).clamp(1, Semaphore::MAX_PERMITS >> 4);
                let share = Arc::new(TenantShare {
                    lookups: Arc::new(Semaphore::new(TENANT_LOOKUPS_MAX)),
                    answers: Arc::new(Semaphore::new(parts)),
                    parts,
                    log_turns: Arc::new(Semaphore::new(TENANT_LOG_LINES_MAX)),
                    overdraft: Arc::new(Semaphore::new(1)),
                });
                tenants.insert(tenant, Arc::downgrade(&share));
                share
            }
        };
        Share {
            all_lookups: Arc::clone(&self.lookups),
            own_lookups: Arc::new(Semaphore::new(UPSTREAM_LOOKUPS_MAX)),
            tenant,
            room_wait_max: ROOM_WAIT_MAX,
        }
    }
}

impl Share {
    /// A turn to look up a name, to be kept until the look-up has really ended. The caller bounds the wait.
    pub(super) async fn lookup(&self) -> Option<[OwnedSemaphorePermit; 3]> {
        let own = Arc::clone(&self.own_lookups).acquire_owned().await.ok()?;
        let tenant = Arc::clone(&self.tenant.lookups).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all_lookups).acquire_owned().await.ok()?;
        Some([own, tenant, all])
    }

    /// Places for lines of logs that wait to be written.
    pub(super) fn log_turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.tenant.log_turns)
    }

    /// Memory for something else of this size that goes out to the tenant's clients, after a wait for answers and others
    /// that are under way; `None` if there is none in time.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<Reserved> {
        let parts = u32::try_from(bytes.div_ceil(PART_BYTES).clamp(1, self.tenant.parts)).unwrap_or(u32::MAX);
        let granted = Arc::clone(&self.tenant.answers).acquire_many_owned(parts);
        let held = timeout(self.room_wait_max, granted).await.ok()?.ok()?;
        Some(Reserved { _tenant: Arc::clone(&self.tenant), _held: held })
    }

    /// Memory for an answer that is about to be read.
    pub(super) fn room(&self) -> Room {
        Room {
            tenant: Arc::clone(&self.tenant),
            parts: 0,
            held: None,
            overdraft: None,
            wait_max: self.room_wait_max,
        }
    }
}

/// The memory of one answer.
pub(super) struct Room {
    tenant: Arc<TenantShare>,
    parts: usize,
    held: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
    wait_max: Duration,
}

impl Room {
    /// Makes sure of memory for `bytes` in all, waiting for other answers of the tenant to be handed on.
    ///
    /// # Errors
    /// [`Kind::Crowded`] if they are not in time.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), UpstreamError> {
        if bytes <= FREE_BYTES_MAX || self.overdraft.is_some() {
            return Ok(());
        }
        // one that is allowed at all gets its room, if need be alone
        let parts = bytes.div_ceil(PART_BYTES).min(self.tenant.parts);
        let Some(more) = parts.checked_sub(self.parts).filter(|more| *more > 0) else { return Ok(()) };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let (answers, overdraft) = (Arc::clone(&self.tenant.answers), Arc::clone(&self.tenant.overdraft));
        // whoever holds nothing keeps nobody waiting
        let grows = self.held.is_some();
        let granted = async {
            tokio::select! {
                biased;
                parts = answers.acquire_many_owned(more) => Granted::Parts(parts.ok()),
                beyond = overdraft.acquire_owned(), if grows => Granted::Beyond(beyond.ok()),
            }
        };
        match timeout(self.wait_max, granted).await {
            Ok(Granted::Parts(Some(granted))) => {
                match &mut self.held {
                    Some(held) => held.merge(granted),
                    None => self.held = Some(granted),
                }
                self.parts = parts;
            }
            Ok(Granted::Beyond(Some(beyond))) => self.overdraft = Some(beyond),
            _ => return Err(UpstreamError::sent(Kind::Crowded, "")),
        }
        Ok(())
    }

    /// Whether it has any memory of its tenant's.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some() || self.overdraft.is_some()
    }

    /// The answer, which keeps its memory for as long as a slice of it is in use.
    pub(super) fn keep(self, answer: Bytes) -> Bytes {
        if !self.is_held() {
            return answer;
        }
        Bytes::from_owner(Kept { answer, _held: (self.held, self.overdraft) })
    }
}

/// Part of a tenant's memory for answers, until it is dropped.
#[derive(Debug)]
pub struct Reserved {
    /// Without it the next connection would begin a share anew.
    _tenant: Arc<TenantShare>,
    _held: OwnedSemaphorePermit,
}

/// What an answer that grows is given.
enum Granted {
    Parts(Option<OwnedSemaphorePermit>),
    Beyond(Option<OwnedSemaphorePermit>),
}

struct Kept {
    answer: Bytes,
    _held: (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>),
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mib: usize) -> Share {
        Shares::new(mib * PART_BYTES).of(Uuid::nil())
    }

    #[tokio::test]
    async fn small_answers_ask_nobody() {
        let share = share(1);
        let mut large = share.room();
        large.grow(PART_BYTES).await.unwrap();
        let mut small = share.room();
        small.grow(FREE_BYTES_MAX).await.unwrap();
        assert!(small.keep(Bytes::from_static(b"x")).starts_with(b"x"));
    }

    #[tokio::test]
    async fn memory_is_free_again_when_the_last_slice_is_gone() {
        let share = share(4);
        let mut room = share.room();
        for bytes in [FREE_BYTES_MAX + 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES] {
            room.grow(bytes).await.unwrap();
        }
        assert_eq!(share.tenant.answers.available_permits(), 1);
        let slice = room.keep(Bytes::from(vec![b'x'; 3 * PART_BYTES])).slice(7..8);
        assert_eq!((&*slice, share.tenant.answers.available_permits()), (&b"x"[..], 1));
        drop(slice);
        assert_eq!(share.tenant.answers.available_permits(), 4);
    }

    #[tokio::test]
    async fn an_answer_larger_than_the_share_waits_for_all_of_it() {
        let share = share(2);
        let (mut first, mut second) = (share.room(), share.room());
        first.grow(PART_BYTES).await.unwrap();
        let mut grown = std::pin::pin!(second.grow(100 * PART_BYTES));
        assert!(futures_util::poll!(&mut grown).is_pending());
        drop(first);
        grown.await.unwrap();
    }

    #[tokio::test]
    async fn answers_that_grow_never_wait_for_each_other() {
        let share = share(3);
        let mut rooms = [share.room(), share.room(), share.room()];
        for room in &mut rooms {
            room.grow(PART_BYTES).await.unwrap();
        }
        let [mut first, mut second, _third] = rooms;
        // nothing is left: one goes on beyond the share, the other waits until that is done
        first.grow(100 * PART_BYTES).await.unwrap();
        let mut grown = std::pin::pin!(second.grow(2 * PART_BYTES));
        assert!(futures_util::poll!(&mut grown).is_pending());
        let first = first.keep(Bytes::from_static(b"first"));
        assert!(futures_util::poll!(&mut grown).is_pending(), "it is still in use");
        drop(first);
        grown.await.unwrap();
    }

    #[tokio::test]
    async fn what_else_goes_out_takes_from_the_same() {
        let share = share(3);
        let (small, large) = (share.reserve(1).await.unwrap(), share.reserve(2 * PART_BYTES).await.unwrap());
        let mut answer = share.room();
        let mut grown = Box::pin(answer.grow(PART_BYTES));
        assert!(futures_util::poll!(&mut grown).is_pending());
        drop(small);
        grown.await.unwrap();
        let mut all = Box::pin(share.reserve(100 * PART_BYTES));
        assert!(futures_util::poll!(&mut all).is_pending());
        drop((large, answer));
        assert!(all.await.is_some());
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let share = share(1);
        let (mut first, mut second) = (share.room(), share.room());
        first.grow(PART_BYTES).await.unwrap();
        second.wait_max = Duration::from_millis(20);
        assert_eq!(second.grow(PART_BYTES).await.unwrap_err().kind, Kind::Crowded);
        let hurried = Share { room_wait_max: Duration::from_millis(20), ..share.clone() };
        assert!(hurried.reserve(1).await.is_none());
    }

    #[tokio::test]
    async fn tenants_share_nothing_and_upstreams_little() {
        let shares = Shares::new(PART_BYTES);
        let (one, same, other) =
            (shares.of(Uuid::from_u128(1)), shares.of(Uuid::from_u128(1)), shares.of(Uuid::from_u128(2)));
        let _held = (one.lookup().await, one.lookup().await);
        let third = futures_util::poll!(std::pin::pin!(one.lookup()));
        assert!(third.is_pending(), "an upstream's own look-ups have a bound");
        assert!(same.lookup().await.is_some());
        let mut room = one.room();
        room.grow(PART_BYTES).await.unwrap();
        other.room().grow(PART_BYTES).await.unwrap();
        let mut waits = same.room();
        assert!(futures_util::poll!(std::pin::pin!(waits.grow(PART_BYTES))).is_pending());
        drop((one, same));
        assert_eq!(shares.tenants.lock().unwrap().len(), 2);
        drop(other);
        shares.of(Uuid::from_u128(3));
        assert!(shares.tenants.lock().unwrap().len() < 4);
    }
}
