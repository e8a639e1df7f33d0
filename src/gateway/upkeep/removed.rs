//! Deletion of tenants' revoked keys, removed servers, replaced policies and old permission requests, on the one replica
//! that holds the lease for retention.

use super::Upkeep;
use super::retention::{BATCH_PAUSE, BATCHES_MAX, go_on};
use crate::domain::id::{ServerId, TenantId};
use crate::gateway::life::sleep_or_stop;
use crate::store::{OLD_CONSENT_TABLES, StoreError, TABLES_OF_SERVERS};

impl Upkeep {
    /// Deletes revoked keys whose retention has ended.
    pub(super) async fn delete_old_keys(&self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for tenant in self.store.tenants_with_old_keys().await? {
            let deleted = self.batches(|| self.store.delete_old_keys(tenant)).await;
            go_on(&mut outcome, deleted.map(drop))?;
        }
        outcome
    }

    /// Deletes people who have not been seen for long.
    pub(super) async fn delete_old_people(&self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for tenant in self.store.tenants_with_old_people().await? {
            let deleted = self.batches(|| self.store.delete_old_people(tenant)).await;
            go_on(&mut outcome, deleted.map(drop))?;
        }
        outcome
    }

    /// Deletes replaced versions of policies, but for the newest.
    pub(super) async fn delete_old_policies(&self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for tenant in self.store.tenants_with_old_policies().await? {
            let deleted = self.batches(|| self.store.delete_old_policies(tenant)).await;
            go_on(&mut outcome, deleted.map(drop))?;
        }
        outcome
    }

    /// Deletes permission requests, grants and fences some time after their end.
    pub(super) async fn delete_old_consent(&self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for table in OLD_CONSENT_TABLES {
            let deleted = self.batches(|| self.store.delete_old_consent(table)).await;
            go_on(&mut outcome, deleted.map(drop))?;
        }
        outcome
    }

    /// Deletes wishes of sessions that were not seen for a day.
    pub(super) async fn delete_old_sessions(&self) -> Result<(), StoreError> {
        self.batches(|| self.store.delete_old_sessions()).await.map(drop)
    }

    /// Deletes removed servers, with all their rows.
    pub(super) async fn delete_removed_servers(&self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for server in self.store.removed_servers().await? {
            go_on(&mut outcome, self.delete_server(server).await)?;
        }
        outcome
    }

    async fn delete_server(&self, server: (TenantId, ServerId)) -> Result<(), StoreError> {
        for table in TABLES_OF_SERVERS {
            if !self.batches(|| self.store.delete_of_server(server, table)).await? {
                break;
            }
        }
        Ok(())
    }

    /// Runs batches with pauses while there may be more rows. Returns `true` when none is left.
    pub(super) async fn batches<F>(&self, batch: impl Fn() -> F) -> Result<bool, StoreError>
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        for _ in 0..BATCHES_MAX {
            if !batch().await? {
                return Ok(true);
            }
            if sleep_or_stop(BATCH_PAUSE, &self.life.stop).await {
                return Ok(false);
            }
        }
        Ok(false)
    }
}
