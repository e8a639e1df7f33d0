//! Deleting what single tenants keep no longer, in small batches. Whole days go with their partition.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::tx::{Access, Lane};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;
/// A deleted tenant's calls may still end for a while, in seconds.
const LATE_RECORDS_S: f64 = 3600.0;

impl Store {
    /// What live tenants say themselves about how long they keep their records, in days.
    pub async fn tenants_retention(&self) -> Result<Vec<(TenantId, i64)>, StoreError> {
        let mut tx = self.begin(Lane::Control, Access::System).await?;
        let rows: Vec<(Uuid, i64)> = sqlx::query_as(
            "select s.tenant_id, (s.value ->> 'activity_retention_days')::bigint
             from settings s join tenants t using (tenant_id)
             where t.deleted_at is null and s.scope_id = $1
                and jsonb_typeof(s.value -> 'activity_retention_days') = 'number'",
        )
        .bind(Uuid::nil())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|(tenant, days)| (TenantId(tenant), days)).collect())
    }

    /// Deleted tenants whose records may not all be gone.
    pub async fn tenants_to_purge(&self, limit: i64) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Control, Access::System).await?;
        let rows: Vec<Uuid> = sqlx::query_scalar(
            "select tenant_id from tenants where deleted_at is not null and purged_at is null
             order by tenant_id limit $1",
        )
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(TenantId).collect())
    }

    /// Deletes a batch of a tenant's oldest records from before `until`; gives whether there may be more.
    pub async fn delete_activity(&self, tenant: TenantId, until: DateTime<Utc>) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, Access::Owner).await?;
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

    /// Notes that a deleted tenant has no records any more, once none can come. Takes away the credentials that a
    /// request stored while the tenant was being deleted.
    pub async fn tenant_purged(&self, tenant: TenantId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, Access::System).await?;
        super::secrets::remove_all(&mut tx, tenant).await?;
        super::tool_embeddings::remove_all(&mut tx, tenant).await?;
        sqlx::query(
            "update tenants set purged_at = now() where tenant_id = $1 and purged_at is null
                and deleted_at < now() - make_interval(secs => $2)
                and not exists (select from activity_open o where o.tenant_id = $1)",
        )
        .bind(tenant.0)
        .bind(LATE_RECORDS_S)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }
}
