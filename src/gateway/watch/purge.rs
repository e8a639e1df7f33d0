//! Taking away what deleted tenants leave behind, on the one replica that holds the lease for it: rows in batches, so
//! that nobody waits, and again at every pass until nothing can come any more, so that it does not matter where a
//! replica dies.

use std::time::Duration;

use super::Gateway;
use super::retention::go_on;
use crate::domain::id::TenantId;
use crate::gateway::clock;
use crate::store::{PURGED_TABLES, StoreError};

/// How often it is looked whether a tenant was deleted, at most.
pub(super) const PURGE: Duration = Duration::from_secs(30);
/// Records of a clock that is further ahead than this stay.
const CLOCK_AHEAD_MAX: chrono::TimeDelta = chrono::TimeDelta::days(3650);
/// Deleted tenants looked at in one pass.
const PURGES_MAX: i64 = 1000;

impl Gateway {
    /// One pass over all deleted tenants.
    pub(super) async fn purge_deleted(&self) {
        match self.store.take_lease("purge", self.replica).await {
            Ok(None) => {}
            Ok(Some(_)) => self.report_once("deleted tenants", self.purge_all().await),
            Err(error) => self.report_once("deleted tenants", Err(error)),
        }
    }

    async fn purge_all(&self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for tenant in self.store.tenants_to_purge(PURGES_MAX).await? {
            go_on(&mut outcome, self.purge(tenant).await)?;
        }
        outcome
    }

    async fn purge(&self, tenant: TenantId) -> Result<(), StoreError> {
        for table in PURGED_TABLES {
            if !self.batches(|| self.store.purge_rows(tenant, table)).await? {
                return Ok(());
            }
        }
        // also what a clock ahead of ours wrote
        if self.delete_until(tenant, clock::now() + CLOCK_AHEAD_MAX).await? {
            self.store.tenant_purged(tenant).await?;
        }
        Ok(())
    }
}
