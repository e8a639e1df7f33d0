//! Taking away what deleted tenants leave behind, on the one replica that holds the lease for it: rows in batches, so
//! that nobody waits, and again at every pass until nothing can come any more, so that it does not matter where a
//! replica dies.

use std::time::Duration;

use super::Upkeep;
use super::retention::go_on;
use crate::domain::id::TenantId;
use crate::gateway::servers::OWN_LIMITS;
use crate::store::{Deleted, PURGED_TABLES, StoreError};

/// How often it is looked whether a tenant was deleted, at most.
pub(super) const PURGE: Duration = Duration::from_secs(30);
/// Records of a clock that is further ahead than this stay.
const CLOCK_AHEAD_MAX: chrono::TimeDelta = chrono::TimeDelta::days(3650);
/// Deleted tenants that are read at once.
const PAGE: i64 = 500;
/// What is between the end of a call and its record, beyond the time that the call itself may take.
const RECORD_LATE: Duration = Duration::from_secs(3600);

impl Upkeep {
    /// One pass over all deleted tenants.
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

    /// What came after a tenant was noted as gone: from replicas that were cut off for longer than any call takes.
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
        // also what a replica whose clock is ahead wrote
        let until = self.store.database_time().await? + CLOCK_AHEAD_MAX;
        if self.delete_until(tenant, until).await? {
            self.store.tenant_purged(tenant, self.late()).await?;
        }
        Ok(())
    }

    /// How long after a tenant's deletion something of it may still come: its last call waits for a place, is under
    /// way, and is recorded; a read is noted nowhere before.
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
