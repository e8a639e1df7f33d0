//! The room of the log: how much may be unfinished or unwritten, in records and in bytes, and who waits for some.
//!
//! Whoever waits is woken by what comes back of what it waits for, one at a time: a tenant that has used up its
//! share costs the others nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::RecordUnavailable;
use crate::domain::id::TenantId;
use crate::gateway::options::ActivityLimits;

/// One tenant holds at most this part of the room: a quarter.
const TENANT_SHARE: usize = 4;
/// How long a call waits for room.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Calls of one tenant that may wait; more are refused at once.
const TENANT_WAITING_MAX: usize = 1024;

/// The room and who has what of it.
#[derive(Debug)]
pub(super) struct LogRoom {
    queue: usize,
    queue_bytes: usize,
    attempt_bytes: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: Place,
    tenants: HashMap<TenantId, Place>,
}

/// What is taken of the room, or of a tenant's share in it, and who waits for more.
#[derive(Debug, Default)]
struct Place {
    records: usize,
    bytes: usize,
    /// Calls that wait for this very place.
    waiting: usize,
    /// Calls of the tenant that wait, be it for its share or for the room.
    callers: usize,
    turn: Arc<Notify>,
}

impl Place {
    fn give_back(&mut self, bytes: usize) {
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn resize(&mut self, from: usize, to: usize) {
        self.bytes = self.bytes.saturating_sub(from) + to;
    }
}

impl LogRoom {
    pub(super) fn new(limits: &ActivityLimits) -> LogRoom {
        LogRoom {
            queue: limits.queue,
            queue_bytes: limits.queue_bytes,
            attempt_bytes: limits.attempt_bytes,
            taken: Mutex::default(),
        }
    }

    /// Attempts that hold a slot now.
    pub(super) fn records(&self) -> usize {
        self.taken().all.records
    }

    /// What is taken now, in records and in bytes.
    pub(super) fn taken_now(&self) -> (usize, usize) {
        let taken = self.taken();
        (taken.all.records, taken.all.bytes)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more attempt fits into this part of the room.
    fn fits(&self, place: &Place, part: usize) -> bool {
        place.records < (self.queue / part).max(1)
            // whoever holds nothing always finds room for one
            && (place.records == 0 || place.bytes + self.attempt_bytes <= self.queue_bytes / part)
    }

    /// Takes room for one attempt; says what has none.
    fn take(&self, taken: &mut Taken, tenant: TenantId) -> Result<(), Full> {
        let theirs = taken.tenants.entry(tenant).or_default();
        if !self.fits(theirs, TENANT_SHARE) {
            return Err(Full::Share);
        }
        if !self.fits(&taken.all, 1) {
            return Err(Full::Room);
        }
        for place in [&mut taken.all, theirs] {
            place.records += 1;
            place.bytes += self.attempt_bytes;
        }
        Ok(())
    }

    /// Gives the next in each queue its turn, if there is room for it.
    fn wake(&self, taken: &mut Taken, tenant: TenantId) {
        if taken.all.waiting > 0 && self.fits(&taken.all, 1) {
            taken.all.turn.notify_one();
        }
        let Some(theirs) = taken.tenants.get(&tenant) else { return };
        if theirs.waiting > 0 && self.fits(theirs, TENANT_SHARE) {
            theirs.turn.notify_one();
        }
        if theirs.records == 0 && theirs.callers == 0 {
            taken.tenants.remove(&tenant);
        }
    }
}

/// What is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// The whole room.
    Room,
    /// The tenant's share.
    Share,
}

/// Room for one attempt's record; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    room: Arc<LogRoom>,
    tenant: TenantId,
    bytes: usize,
}

impl Slot {
    /// Takes room for an attempt.
    pub(super) fn take(room: &Arc<LogRoom>, tenant: TenantId) -> Result<Slot, RecordUnavailable> {
        room.take(&mut room.taken(), tenant).map_err(|_| RecordUnavailable)?;
        Ok(Slot { room: Arc::clone(room), tenant, bytes: room.attempt_bytes })
    }

    /// The same, waiting for room a little.
    pub(super) async fn wait(room: &Arc<LogRoom>, tenant: TenantId) -> Result<Slot, RecordUnavailable> {
        let mut deadline = None;
        let mut waited = None;
        while let Some(waiter) = Waiter::unless_taken(room, tenant)? {
            // the place before is left only now: leaving gives the next one its turn, if there is still room
            let waiter = waited.insert(waiter);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + WAIT_MAX);
            // a turn that comes before this is kept for it
            if timeout_at(deadline, waiter.turn.notified()).await.is_err() {
                return Err(RecordUnavailable);
            }
        }
        Ok(Slot { room: Arc::clone(room), tenant, bytes: room.attempt_bytes })
    }

    /// What its record takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The record is complete, and takes this much.
    pub(super) fn resize(&mut self, bytes: usize) {
        let room = &*self.room;
        let mut taken = room.taken();
        taken.all.resize(self.bytes, bytes);
        if let Some(theirs) = taken.tenants.get_mut(&self.tenant) {
            theirs.resize(self.bytes, bytes);
        }
        room.wake(&mut taken, self.tenant);
        self.bytes = bytes;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let room = &*self.room;
        let mut taken = room.taken();
        taken.all.give_back(self.bytes);
        if let Some(theirs) = taken.tenants.get_mut(&self.tenant) {
            theirs.give_back(self.bytes);
        }
        room.wake(&mut taken, self.tenant);
    }
}

/// A place in one of the queues; left when dropped.
struct Waiter<'a> {
    room: &'a LogRoom,
    tenant: TenantId,
    full: Full,
    turn: Arc<Notify>,
}

impl<'a> Waiter<'a> {
    /// Takes room for an attempt (`None`), or a place in the queue for it.
    fn unless_taken(room: &'a LogRoom, tenant: TenantId) -> Result<Option<Waiter<'a>>, RecordUnavailable> {
        let mut taken = room.taken();
        let full = match room.take(&mut taken, tenant) {
            Ok(()) => return Ok(None),
            Err(full) => full,
        };
        let Taken { all, tenants } = &mut *taken;
        let theirs = tenants.entry(tenant).or_default();
        if theirs.callers >= TENANT_WAITING_MAX {
            return Err(RecordUnavailable);
        }
        theirs.callers += 1;
        let place = if full == Full::Room { all } else { theirs };
        place.waiting += 1;
        Ok(Some(Waiter { room, tenant, full, turn: Arc::clone(&place.turn) }))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let room = self.room;
        let mut taken = room.taken();
        let Taken { all, tenants } = &mut *taken;
        if let Some(theirs) = tenants.get_mut(&self.tenant) {
            theirs.callers = theirs.callers.saturating_sub(1);
            let place = if self.full == Full::Room { all } else { theirs };
            place.waiting = place.waiting.saturating_sub(1);
        }
        // a turn that was given to this one and not used is the next one's
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

    /// Room for eight attempts of 10 bytes, two of each tenant.
    fn room() -> Arc<LogRoom> {
        let (queue, queue_bytes, attempt_bytes) = (8, 80, 10);
        Arc::new(LogRoom { queue, queue_bytes, attempt_bytes, taken: Mutex::default() })
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
        // both turns reach somebody, although the first was given before anybody looked
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        drop((first, second));
        assert!(room.taken().tenants.is_empty());
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
        // one that turns out small makes room as well: by bytes, not yet by records
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
