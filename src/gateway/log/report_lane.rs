//! Concurrency limit of reports on the activity log, per tenant: no tenant can take all connections for reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::id::TenantId;
use crate::gateway::error::GatewayError;

/// Longest wait of a report for its tenant's slot.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most reports of one tenant under way or waiting; more are refused at once.
const WAITING_MAX: usize = 100;

#[derive(Debug)]
struct Turns {
    free: Arc<Semaphore>,
    /// Reports under way or waiting.
    users: usize,
}

/// Slots of reports by tenant. Only tenants with reports under way or waiting have an entry.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct ReportLane {
    per_tenant: usize,
    tenants: Arc<Mutex<HashMap<TenantId, Turns>>>,
}

/// A report's slot; given back when dropped.
#[derive(Debug)]
pub(in crate::gateway) struct ReportTurn {
    // dropped first: the semaphore must be free before the entry below is counted out
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

#[derive(Debug)]
struct Place {
    lane: ReportLane,
    tenant: TenantId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut tenants = self.lane.tenants.lock();
        if let Some(turns) = tenants.get_mut(&self.tenant) {
            turns.users -= 1;
            if turns.users == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

impl ReportLane {
    pub(in crate::gateway) fn new(per_tenant: usize) -> ReportLane {
        ReportLane { per_tenant: per_tenant.max(1), tenants: Arc::default() }
    }

    /// Waits for a slot, up to [`WAIT_MAX`].
    pub(in crate::gateway) async fn enter(&self, tenant: TenantId) -> Result<ReportTurn, GatewayError> {
        let busy = || {
            GatewayError::Busy(
                "too many reports of this tenant are under way; try again in a few seconds, or ask for a shorter \
                 window",
            )
        };
        let (free, place) = {
            let mut tenants = self.tenants.lock();
            let fresh = || Turns { free: Arc::new(Semaphore::new(self.per_tenant)), users: 0 };
            let turns = tenants.entry(tenant).or_insert_with(fresh);
            if turns.users >= WAITING_MAX {
                return Err(busy());
            }
            turns.users += 1;
            (Arc::clone(&turns.free), Place { lane: self.clone(), tenant })
        };
        match tokio::time::timeout(WAIT_MAX, free.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ReportTurn { _permit: permit, _place: place }),
            _ => Err(busy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tenant_waits_for_itself_only() {
        let lane = ReportLane::new(2);
        let (one, other) = (TenantId(uuid::Uuid::now_v7()), TenantId(uuid::Uuid::now_v7()));
        let first = lane.enter(one).await.unwrap();
        let _second = lane.enter(one).await.unwrap();
        lane.enter(other).await.unwrap();
        let third = tokio::spawn({
            let lane = lane.clone();
            async move { lane.enter(one).await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        third.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_is_gone_is_forgotten() {
        let lane = ReportLane::new(1);
        let tenant = TenantId(uuid::Uuid::now_v7());
        let turn = lane.enter(tenant).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(5), lane.enter(tenant)).await;
        assert!(waiting.is_err());
        drop(turn);
        assert!(lane.tenants.lock().is_empty());
    }

    #[tokio::test]
    async fn a_crowd_is_refused_at_once() {
        let lane = ReportLane::new(1);
        let tenant = TenantId(uuid::Uuid::now_v7());
        let _turn = lane.enter(tenant).await.unwrap();
        let crowd: Vec<_> = (0..WAITING_MAX + 5)
            .map(|_| {
                let lane = lane.clone();
                tokio::spawn(async move { lane.enter(tenant).await.is_err() })
            })
            .collect();
        let mut refused = 0;
        for _ in 0..2 * WAITING_MAX {
            tokio::task::yield_now().await;
        }
        for one in crowd {
            refused += usize::from(one.is_finished());
            one.abort();
        }
        assert_eq!(refused, 6);
    }
}
