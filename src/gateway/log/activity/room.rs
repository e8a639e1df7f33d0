//! Capacity of the log: bounds on unfinished and unwritten records, in number and bytes, and the queues for them. Each
//! waiter waits either for its tenant's share or for the total, and is woken alone when that frees up. A tenant at its share
//! therefore delays no other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::RecordUnavailable;
use crate::domain::id::TenantId;
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::gateway::options::ActivityLimits;

/// Longest wait of a call for capacity.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Calls of one tenant that may wait for capacity; more are refused at once.
const TENANT_WAITING_MAX: usize = 1024;

/// Capacity of the log, and its use by tenant.
#[derive(Debug)]
pub(super) struct LogRoom {
    capacity: Amount,
    attempt_bytes: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    records: Shares<TenantId>,
    /// Calls that wait for the total capacity.
    all: Queue,
    /// Calls that wait, by tenant.
    tenants: HashMap<TenantId, Queue>,
}

/// Queue for the total capacity or for a tenant's share.
#[derive(Debug, Default)]
struct Queue {
    /// Calls that wait in this queue.
    waiting: usize,
    /// Calls of the tenant that wait, for its share or for the total.
    callers: usize,
    turn: Arc<Notify>,
}

impl LogRoom {
    pub(super) fn new(limits: &ActivityLimits) -> LogRoom {
        LogRoom {
            capacity: Amount { items: limits.queue, bytes: limits.queue_bytes },
            attempt_bytes: limits.attempt_bytes,
            taken: Mutex::default(),
        }
    }

    /// Returns the number of attempts that hold a slot.
    pub(super) fn records(&self) -> usize {
        self.taken.lock().records.all().items
    }

    /// Returns the capacity in use, in records and in bytes.
    pub(super) fn taken_now(&self) -> (usize, usize) {
        let Amount { items, bytes } = self.taken.lock().records.all();
        (items, bytes)
    }

    /// Returns whether one more attempt fits into the capacity divided by `part`.
    fn fits(&self, used: Amount, part: usize) -> bool {
        // a tenant that holds nothing always gets one slot
        used.items == 0 || used.has_room(self.attempt(), self.capacity, part)
    }

    fn attempt(&self) -> Amount {
        Amount::one(self.attempt_bytes)
    }

    /// Takes capacity for one attempt. The error names the bound that is reached.
    fn take(&self, taken: &mut Taken, tenant: TenantId) -> Result<(), Full> {
        if !self.fits(taken.records.of(&tenant), TENANT_PART) {
            return Err(Full::Share);
        }
        if !self.fits(taken.records.all(), 1) {
            return Err(Full::Room);
        }
        taken.records.take(tenant, self.attempt());
        Ok(())
    }

    /// Wakes the next waiter in each queue that has capacity again.
    fn wake(&self, taken: &mut Taken, tenant: TenantId) {
        if taken.all.waiting > 0 && self.fits(taken.records.all(), 1) {
            taken.all.turn.notify_one();
        }
        let Some(theirs) = taken.tenants.get(&tenant) else { return };
        if theirs.waiting > 0 && self.fits(taken.records.of(&tenant), TENANT_PART) {
            theirs.turn.notify_one();
        }
        if theirs.callers == 0 {
            taken.tenants.remove(&tenant);
        }
    }
}

/// Bound that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// The total capacity.
    Room,
    /// The share of the tenant.
    Share,
}

/// Capacity for one attempt's record; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    room: Arc<LogRoom>,
    tenant: TenantId,
    bytes: usize,
}

impl Slot {
    /// Takes capacity for an attempt, or fails at once.
    pub(super) fn take(room: &Arc<LogRoom>, tenant: TenantId) -> Result<Slot, RecordUnavailable> {
        room.take(&mut room.taken.lock(), tenant).map_err(|_| RecordUnavailable)?;
        Ok(Slot { room: Arc::clone(room), tenant, bytes: room.attempt_bytes })
    }

    /// Takes capacity for an attempt, waiting up to [`WAIT_MAX`].
    pub(super) async fn wait(room: &Arc<LogRoom>, tenant: TenantId) -> Result<Slot, RecordUnavailable> {
        let mut deadline = None;
        let mut waited = None;
        while let Some(waiter) = Waiter::unless_taken(room, tenant)? {
            // the old queue entry is dropped only now, which wakes the next waiter if there is still capacity
            let waiter = waited.insert(waiter);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + WAIT_MAX);
            // a wake-up that came earlier is kept for this waiter
            if timeout_at(deadline, waiter.turn.notified()).await.is_err() {
                return Err(RecordUnavailable);
            }
        }
        Ok(Slot { room: Arc::clone(room), tenant, bytes: room.attempt_bytes })
    }

    /// Returns the size of the record, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the size of the record, now that it is complete.
    pub(super) fn resize(&mut self, bytes: usize) {
        let room = &*self.room;
        let mut taken = room.taken.lock();
        taken.records.resize(&self.tenant, self.bytes, bytes);
        room.wake(&mut taken, self.tenant);
        self.bytes = bytes;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let room = &*self.room;
        let mut taken = room.taken.lock();
        taken.records.give_back(&self.tenant, Amount::one(self.bytes));
        room.wake(&mut taken, self.tenant);
    }
}

/// Entry in one of the queues; removed when dropped.
struct Waiter<'a> {
    room: &'a LogRoom,
    tenant: TenantId,
    full: Full,
    turn: Arc<Notify>,
}

impl<'a> Waiter<'a> {
    /// Takes capacity for an attempt and returns `None`, or returns an entry in the queue.
    fn unless_taken(room: &'a LogRoom, tenant: TenantId) -> Result<Option<Waiter<'a>>, RecordUnavailable> {
        let mut taken = room.taken.lock();
        let full = match room.take(&mut taken, tenant) {
            Ok(()) => return Ok(None),
            Err(full) => full,
        };
        let Taken { all, tenants, .. } = &mut *taken;
        let theirs = tenants.entry(tenant).or_default();
        if theirs.callers >= TENANT_WAITING_MAX {
            return Err(RecordUnavailable);
        }
        theirs.callers += 1;
        let queue = if full == Full::Room { all } else { theirs };
        queue.waiting += 1;
        Ok(Some(Waiter { room, tenant, full, turn: Arc::clone(&queue.turn) }))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let room = self.room;
        let mut taken = room.taken.lock();
        let Taken { all, tenants, .. } = &mut *taken;
        if let Some(theirs) = tenants.get_mut(&self.tenant) {
            theirs.callers = theirs.callers.saturating_sub(1);
            let queue = if self.full == Full::Room { all } else { theirs };
            queue.waiting = queue.waiting.saturating_sub(1);
        }
        // a wake-up that this waiter did not use goes to the next one
        room.wake(&mut taken, self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use uuid::Uuid;

    use super::*;

    const ONE: TenantId = TenantId(Uuid::from_u128(1));
    const OTHER: TenantId = TenantId(Uuid::from_u128(2));

    /// Creates a log capacity of eight attempts of 10 bytes, two per tenant.
    fn room() -> Arc<LogRoom> {
        let capacity = Amount { items: 8, bytes: 80 };
        Arc::new(LogRoom { capacity, attempt_bytes: 10, taken: Mutex::default() })
    }

    fn tenant(number: u128) -> TenantId {
        TenantId(Uuid::from_u128(number))
    }

    #[tokio::test]
    async fn a_tenant_at_its_share_waits_for_its_own() {
        let room = room();
        let mine = [Slot::take(&room, ONE).unwrap(), Slot::take(&room, ONE).unwrap()];
        let theirs = Slot::take(&room, OTHER).unwrap();
        let (mut first, mut second) = (pin!(Slot::wait(&room, ONE)), pin!(Slot::wait(&room, ONE)));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        drop(theirs);
        assert!(poll!(&mut first).is_pending());
        drop(mine);
        // both wake-ups reach a waiter, although the first came before any of them polled
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        drop((first, second));
        let taken = room.taken.lock();
        assert_eq!((taken.records.all(), taken.tenants.len()), (Amount::default(), 0));
    }

    #[tokio::test]
    async fn who_gives_up_hands_its_turn_on() {
        let room = room();
        let mine = [Slot::take(&room, ONE).unwrap(), Slot::take(&room, ONE).unwrap()];
        let mut second = pin!(Slot::wait(&room, ONE));
        {
            let mut first = pin!(Slot::wait(&room, ONE));
            assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
            drop(mine);
        }
        second.await.unwrap();
    }

    #[tokio::test]
    async fn the_whole_room_is_everybodys() {
        let room = room();
        let mut slots: Vec<Slot> = (0..8).map(|n| Slot::take(&room, tenant(n / 2 + 10)).unwrap()).collect();
        let mut waits = pin!(Slot::wait(&room, ONE));
        assert!(poll!(&mut waits).is_pending());
        // a record that turns out small frees capacity as well: in bytes, not yet in records
        slots[0].resize(1);
        assert!(poll!(&mut waits).is_pending());
        slots.pop();
        waits.await.unwrap();
    }

    #[tokio::test]
    async fn large_records_use_up_a_share() {
        let room = room();
        let mut large = Slot::take(&room, ONE).unwrap();
        large.resize(15);
        assert!(Slot::take(&room, ONE).is_err());
        assert!(Slot::take(&room, OTHER).is_ok());
        large.resize(10);
        assert!(Slot::take(&room, ONE).is_ok());
    }

    #[tokio::test]
    async fn waiting_has_bounds() {
        let room = room();
        let _mine = [Slot::take(&room, ONE).unwrap(), Slot::take(&room, ONE).unwrap()];
        let mut waiting: Vec<_> = (0..TENANT_WAITING_MAX).map(|_| Box::pin(Slot::wait(&room, ONE))).collect();
        for waits in &mut waiting {
            assert!(poll!(waits).is_pending());
        }
        assert!(matches!(poll!(pin!(Slot::wait(&room, ONE))), std::task::Poll::Ready(Err(_))));
        waiting.pop();
        assert!(poll!(pin!(Slot::wait(&room, ONE))).is_pending(), "a place that was left is free");
    }
}
