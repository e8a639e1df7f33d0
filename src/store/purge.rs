//! Deletion, in batches and in the background, of what a deleted tenant leaves behind. It runs as the owner, whose
//! policies allow to delete only rows of deleted tenants. The row in `tenants` stays: an id is never used again.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;
/// Days for which a purged tenant is checked again: a replica that was cut off writes what it had kept once it is back.
const AGAIN_DAYS: i32 = 2;

/// Tables of tenants, each before those that it refers to. The log is missing, because retention empties it.
/// `revisions` are missing too: they notify every replica of the deletion, and so are purged last.
pub const PURGED_TABLES: [&str; 29] = [
    "connect_flows",
    "connections",
    "server_oauth",
    "web_cookies",
    "web_drafts",
    "web_provenance",
    "webhook_events",
    "consent_webhooks",
    "client_replies",
    "client_sessions",
    "consent_fences",
    "consent_grants",
    "consent_requests",
    "tool_embeddings",
    "server_logs",
    "server_secrets",
    "prompt_names",
    "offer_pins",
    "offers",
    "tool_names",
    "tools",
    "servers",
    "settings",
    "policies",
    "identity_rules",
    "identities",
    "api_keys",
    "response_cache",
    "data_keys",
];

/// State of a deleted tenant's purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Rows of the tenant may be left.
    Unpurged,
    /// The purge was completed not long ago.
    Purged,
}

impl Store {
    /// Returns deleted tenants after `after`, by id, that may have rows left.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_to_purge(
        &self,
        which: Deleted,
        after: TenantId,
        limit: i64,
    ) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<Uuid> = sqlx::query_scalar(
            "select tenant_id from tenants where deleted_at is not null and tenant_id > $1
                 and case when $2 then purged_at > now() - make_interval(days => $3) else purged_at is null end
             order by tenant_id limit $4",
        )
        .bind(after.0)
        .bind(which == Deleted::Purged)
        .bind(AGAIN_DAYS)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(TenantId).collect())
    }

    /// Deletes a batch of a deleted tenant's rows from one of [`PURGED_TABLES`]. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn purge_rows(&self, tenant: TenantId, table: &'static str) -> Result<bool, StoreError> {
        let statement = format!(
            "delete from {table} where tenant_id = $1 and ctid = any (array(
                 select ctid from {table} where tenant_id = $1 limit $2))"
        );
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        // the statement is built only from names in this file
        let deleted =
            sqlx::query(AssertSqlSafe(statement)).bind(tenant.0).bind(BATCH).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }

    /// Marks a deleted tenant as purged, and deletes its revisions, once nothing new can arrive. Requests under way at
    /// the deletion end within `late`. Does nothing before that.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenant_purged(&self, tenant: TenantId, late: Duration) -> Result<(), StoreError> {
        if !self.is_over(tenant, late).await? {
            return Ok(());
        }
        self.purge_rows(tenant, "revisions").await?;
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        sqlx::query(
            "update tenants set purged_at = now()
             where tenant_id = $1 and deleted_at is not null and purged_at is null",
        )
        .bind(tenant.0)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    async fn is_over(&self, tenant: TenantId, late: Duration) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let is_over = sqlx::query_scalar(
            "select deleted_at < now() - make_interval(secs => $2)
                and not exists (select from activity_open o where o.tenant_id = $1)
             from tenants where tenant_id = $1 and deleted_at is not null",
        )
        .bind(tenant.0)
        .bind(late.as_secs_f64())
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(is_over.unwrap_or(false))
    }
}
