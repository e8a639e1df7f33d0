//! Turns of changes that are stored: few at the same time, and one per tenant, so that a tenant whose rows are locked takes
//! no other's turn for long.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::domain::id::TenantId;

/// Turns of all tenants.
#[derive(Debug)]
pub(super) struct WriteTurns {
    all: Semaphore,
    by_tenant: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// Turn of one change, which ends when it is dropped.
pub(super) struct WriteTurn<'a> {
    _all: Option<SemaphorePermit<'a>>,
    _of_tenant: TenantTurn<'a>,
}

/// Place in the line of a tenant.
struct TenantTurn<'a> {
    turns: &'a WriteTurns,
    tenant: TenantId,
    line: Option<Arc<Semaphore>>,
    turn: Option<OwnedSemaphorePermit>,
}

impl WriteTurns {
    /// Returns the turns of so many changes at the same time.
    pub(super) fn new(at_once: usize) -> WriteTurns {
        WriteTurns { all: Semaphore::new(at_once), by_tenant: Mutex::default() }
    }

    /// Waits for a turn, behind the tenant's own changes first.
    pub(super) async fn take(&self, tenant: TenantId) -> WriteTurn<'_> {
        let line = {
            let mut lines = self.by_tenant.lock();
            Arc::clone(lines.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let mut place = TenantTurn { turns: self, tenant, line: Some(Arc::clone(&line)), turn: None };
        // neither is ever closed
        place.turn = line.acquire_owned().await.ok();
        WriteTurn { _all: self.all.acquire().await.ok(), _of_tenant: place }
    }
}

impl Drop for TenantTurn<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.by_tenant.lock();
        drop((self.turn.take(), self.line.take()));
        // the line of a tenant goes with its last change
        if lines.get(&self.tenant).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_tenant_has_one_turn_however_many_wait() {
        let turns = WriteTurns::new(2);
        let [ours, others, third] = [1, 2, 3].map(|n| TenantId(Uuid::from_u128(n)));
        let first = turns.take(ours).await;
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(turns.take(ours))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        let second = turns.take(others).now_or_never().expect("the other turn is free");
        assert!(turns.take(third).now_or_never().is_none(), "two at the same time");
        drop(first);
        let next = turns.take(third).now_or_never().expect("a turn");
        drop((next, second));
        drop(waiting);
        assert!(turns.by_tenant.lock().is_empty(), "nothing is kept");
    }
}
