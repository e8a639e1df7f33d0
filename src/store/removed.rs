//! Deletion, in batches and in the background, of what live tenants have removed: revoked keys, servers, and versions of
//! policies. It runs as the owner, whose policies allow to delete only such rows.

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

/// Most revoked keys kept per tenant, the newest.
const REVOKED_KEYS_MAX: i64 = 1000;
/// Days for which revoked keys are kept.
const REVOKED_KEYS_DAYS: i32 = 30;
/// Most replaced versions that are kept of each policy, the newest.
const POLICY_VERSIONS_MAX: i64 = 100;
/// Most removed servers returned by one pass.
const SERVERS_MAX: i64 = 10_000;
/// Tables with rows of a removed server, in the order of deletion; the server's own row is last.
pub const TABLES_OF_SERVERS: [&str; 11] = [
    "server_logs",
    "server_secrets",
    "connect_flows",
    "connections",
    "server_oauth",
    "prompt_names",
    "offer_pins",
    "offers",
    "tool_names",
    "tools",
    "servers",
];
/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;

impl Store {
    /// Returns tenants with more, or older, revoked keys than are kept.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_with_old_keys(&self) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let rows: Vec<Uuid> = sqlx::query_scalar(
            "select tenant_id from api_keys where revoked_at is not null group by tenant_id
             having count(*) > $1 or min(revoked_at) < now() - make_interval(days => $2)",
        )
        .bind(REVOKED_KEYS_MAX)
        .bind(REVOKED_KEYS_DAYS)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(TenantId).collect())
    }

    /// Deletes a batch of a tenant's revoked keys that are not kept any more, with their settings and policies.
    /// Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_old_keys(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        let deleted: i64 = sqlx::query_scalar(
            "with kept as (
                 select revoked_at, key_id from api_keys where tenant_id = $1 and revoked_at is not null
                 order by revoked_at desc, key_id desc offset $2 - 1 limit 1),
             gone as (
                 delete from api_keys where tenant_id = $1 and key_id in (
                     select key_id from api_keys
                     where tenant_id = $1 and revoked_at is not null
                        and (revoked_at < now() - make_interval(days => $3)
                            or (revoked_at, key_id) < (select revoked_at, key_id from kept))
                     order by revoked_at, key_id limit $4)
                 returning key_id),
             unsaid as (delete from settings where tenant_id = $1 and scope_id in (select key_id from gone)),
             unruled as (delete from policies where tenant_id = $1 and scope_id in (select key_id from gone))
             select count(*) from gone",
        )
        .bind(tenant.0)
        .bind(REVOKED_KEYS_MAX)
        .bind(REVOKED_KEYS_DAYS)
        .bind(BATCH)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted == BATCH)
    }

    /// Returns tenants with versions of policies that were replaced more than a day ago, over the number that is kept.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_with_old_policies(&self) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let rows: Vec<Uuid> = sqlx::query_scalar(
            "select distinct tenant_id from policies where replaced_at < now() - interval '1 day'
             group by tenant_id, scope_id having count(*) > $1",
        )
        .bind(POLICY_VERSIONS_MAX)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(TenantId).collect())
    }

    /// Deletes a batch of a tenant's versions of policies that are not kept any more. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_old_policies(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        // the owner sees only versions that may go
        let deleted = sqlx::query(
            "delete from policies p where p.tenant_id = $1 and (p.scope_id, p.version) in (
                 select scope_id, version from (
                     select scope_id, version, row_number() over (partition by scope_id order by version desc) as place
                     from policies where tenant_id = $1 and replaced_at < now() - interval '1 day') old
                 where place > $2 limit $3)",
        )
        .bind(tenant.0)
        .bind(POLICY_VERSIONS_MAX)
        .bind(BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }

    /// Returns servers that were removed and still have a row, at most 10 000.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn removed_servers(&self) -> Result<Vec<(TenantId, ServerId)>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let rows: Vec<(Uuid, Uuid)> =
            sqlx::query_as("select tenant_id, server_id from servers where removed_at is not null limit $1")
                .bind(SERVERS_MAX)
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|(tenant, server)| (TenantId(tenant), ServerId(server))).collect())
    }

    /// Deletes a batch of a removed server's rows from one of [`TABLES_OF_SERVERS`]. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_of_server(
        &self,
        (tenant, server): (TenantId, ServerId),
        table: &'static str,
    ) -> Result<bool, StoreError> {
        let statement = format!(
            "delete from {table} where tenant_id = $1 and server_id = $2 and ctid = any (array(
                 select ctid from {table} where tenant_id = $1 and server_id = $2 limit $3))"
        );
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        // the statement is built only from names in this file
        let deleted = sqlx::query(AssertSqlSafe(statement))
            .bind(tenant.0)
            .bind(server.0)
            .bind(BATCH)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }
}
