//! What a deleted tenant leaves behind is taken away in batches, off everybody's path. As the owner, whose policies let
//! it delete what is a deleted tenant's and nothing else. Its row in `tenants` stays: an id is never used again.

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::tx::{Access, Lane};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;
/// A deleted tenant's calls may still end for a while, and replicas still ask for its revisions, in seconds.
const LATE_S: f64 = 3600.0;

/// Tables of tenants, each before those that it refers to. Without the log, which is emptied by time, and `revisions`,
/// which tell every replica that the tenant is gone and so go last.
pub const PURGED_TABLES: [&str; 10] = [
    "tool_embeddings",
    "server_logs",
    "server_secrets",
    "tool_names",
    "tools",
    "servers",
    "settings",
    "api_keys",
    "response_cache",
    "data_keys",
];

impl Store {
    /// Deleted tenants of which not everything may be gone.
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

    /// Deletes a batch of a deleted tenant's rows of one of [`PURGED_TABLES`]; gives whether there may be more.
    pub async fn purge_rows(&self, tenant: TenantId, table: &'static str) -> Result<bool, StoreError> {
        let statement = format!(
            "delete from {table} where tenant_id = $1 and ctid = any (array(
                 select ctid from {table} where tenant_id = $1 limit $2))"
        );
        let mut tx = self.begin(Lane::Upkeep, Access::Owner).await?;
        // the text is made of names in this file
        let deleted =
            sqlx::query(AssertSqlSafe(statement)).bind(tenant.0).bind(BATCH).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }

    /// Notes that nothing is left of a deleted tenant, once nothing can come any more.
    pub async fn tenant_purged(&self, tenant: TenantId) -> Result<(), StoreError> {
        if !self.is_over(tenant).await? {
            return Ok(());
        }
        self.purge_rows(tenant, "revisions").await?;
        let mut tx = self.begin(Lane::Upkeep, Access::System).await?;
        sqlx::query("update tenants set purged_at = now() where tenant_id = $1 and deleted_at is not null")
            .bind(tenant.0)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    async fn is_over(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, Access::System).await?;
        let is_over = sqlx::query_scalar(
            "select deleted_at < now() - make_interval(secs => $2)
                and not exists (select from activity_open o where o.tenant_id = $1)
             from tenants where tenant_id = $1 and deleted_at is not null",
        )
        .bind(tenant.0)
        .bind(LATE_S)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(is_over.unwrap_or(false))
    }
}
