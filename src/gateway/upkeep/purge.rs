//! Deletion of deleted tenants' rows, on the one replica that holds the lease for it. Rows go in small batches, and each
//! pass repeats until no more can arrive, so a replica may die at any point.

use std::time::Duration;

use super::Upkeep;
use super::retention::go_on;
use crate::domain::id::TenantId;
use crate::gateway::servers::OWN_LIMITS;
use crate::store::{Deleted, PURGED_TABLES, StoreError};

/// Longest interval between passes over deleted tenants.
pub(super) const PURGE: Duration = Duration::from_secs(30);
/// Bound on a clock that is ahead: records stamped later than this are not deleted.
const CLOCK_AHEAD_MAX: chrono::TimeDelta = chrono::TimeDelta::days(3650);
/// Deleted tenants per page.
const PAGE: i64 = 500;
/// Longest delay between the end of a call and the write of its record.
const RECORD_LATE: Duration = Duration::from_secs(3600);

impl Upkeep {
    /// Runs one pass over all deleted tenants.
    pub(super) async fn purge_deleted(&self) {
        match self.store.take_lease("purge", self.replica).await {
            Ok(None) => {}
            Ok(Some(_)) => self.report_once("deleted tenants", self.purge_all().await),
            Err(error) => self.report_once("deleted tenants", Err(error)),
        }
    }

    async fn purge_all(&self) -> Result<(), StoreError> {
        self.purge_pages(Deleted::Unpurged).await
    }

    /// Deletes rows that arrived after a tenant counted as purged, from replicas cut off for longer than any call takes.
    pub(super) async fn purge_again(&self) -> Result<(), StoreError> {
        self.purge_pages(Deleted::Purged).await
    }

    async fn purge_pages(&self, which: Deleted) -> Result<(), StoreError> {
        let (mut outcome, mut after) = (Ok(()), TenantId::PLATFORM);
        loop {
            let tenants = self.store.tenants_to_purge(which, after, PAGE).await?;
            let Some(last) = tenants.last() else { return outcome };
            after = *last;
            for tenant in tenants {
                go_on(&mut outcome, self.purge(tenant).await)?;
            }
        }
    }

    async fn purge(&self, tenant: TenantId) -> Result<(), StoreError> {
        for table in PURGED_TABLES {
            if !self.batches(|| self.store.purge_rows(tenant, table)).await? {
                return Ok(());
            }
        }
        // includes records of a replica whose clock is ahead
        let until = self.store.database_time().await? + CLOCK_AHEAD_MAX;
        if self.delete_until(tenant, until).await? {
            self.store.tenant_purged(tenant, self.late()).await?;
        }
        Ok(())
    }

    /// Returns how long after a tenant's deletion its rows may still arrive: its last call waits in the queue, runs, and is
    /// recorded. A read has no row before it ends.
    fn late(&self) -> Duration {
        let deployment = &self.options.upstream;
        let longest = |own: &str, deployment: Duration| {
            let own = OWN_LIMITS.iter().find(|(name, _)| *name == own).map_or(0, |(_, seconds)| *seconds);
            Duration::from_secs(own).max(deployment)
        };
        longest("queue_wait_s", deployment.queue_wait)
            + longest("call_timeout_s", deployment.call_timeout)
            + RECORD_LATE
    }
}
