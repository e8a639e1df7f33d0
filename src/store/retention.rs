//! Retention of single tenants: deletes their expired records in small batches. Whole days are dropped with their
//! partition.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;

impl Store {
    /// Returns the time of the database, which decides for all replicas what is too old. A replica whose clock is far
    /// ahead must not delete what is kept.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn database_time(&self) -> Result<DateTime<Utc>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let now = sqlx::query_scalar("select clock_timestamp()").fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(now)
    }

    /// Returns the retention of activity records that live tenants have set themselves, in days.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_retention(&self) -> Result<Vec<(TenantId, i64)>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<(Uuid, i64)> = sqlx::query_as(
            "select s.tenant_id, (s.value ->> 'activity_retention_days')::bigint
             from settings s join tenants t using (tenant_id)
             where t.deleted_at is null and s.scope_id = $1
                and jsonb_typeof(s.value -> 'activity_retention_days') = 'number'
                and s.value ->> 'activity_retention_days' ~ '^[0-9]{1,9}$'",
        )
        .bind(Uuid::nil())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|(tenant, days)| (TenantId(tenant), days)).collect())
    }

    /// Deletes a batch of a tenant's oldest records from before `until`. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_activity(&self, tenant: TenantId, until: DateTime<Utc>) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        let deleted = sqlx::query(
            "delete from activity where tenant_id = $1 and started_at < $2 and (started_at, id) in (
                 select started_at, id from activity where tenant_id = $1 and started_at < $2
                 order by started_at, id limit $3)",
        )
        .bind(tenant.0)
        .bind(until)
        .bind(BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }
}
