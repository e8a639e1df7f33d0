//! The few jobs that work across tenants. Everything here runs as `mcpproxy_system`, whose policies allow exactly this.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{AssertSqlSafe, FromRow};
use uuid::Uuid;

use super::activity_columns::columns_but;
use super::tx::{Lane, TxAccess};
use super::wear_off::Silence;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};

/// A key found by its hash alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundKey {
    /// Tenant of the key.
    pub tenant: TenantId,
    /// Id of the key.
    pub key: KeyId,
}

/// A server that is due for a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueServer {
    /// Tenant of the server.
    pub tenant: TenantId,
    /// Id of the server.
    pub server: ServerId,
    /// Name of the server in its tenant.
    pub name: String,
    /// Version of the server's row.
    pub version: i64,
    /// True if the server is connected.
    pub is_connected: bool,
    /// True if the server is of web pages, which are listed rarely.
    pub is_pages: bool,
}

#[derive(FromRow)]
struct DueRow {
    tenant_id: Uuid,
    server_id: Uuid,
    name: String,
    version: i64,
    is_connected: bool,
    is_pages: bool,
}

/// SQL for open records whose replica is dead or that are orphans, the oldest first.
macro_rules! dead {
    () => {
        "activity_open a left join replicas r using (replica_id)
         where a.id = any($2) or r.replica_id is null or r.stopped_at is not null
            or r.heartbeat_at < now() - make_interval(secs => $1)
         order by a.started_at limit $3"
    };
}

impl Store {
    /// Looks up keys by their digests that no snapshot of this replica knows; one index probe each. Returns the valid
    /// ones.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn find_keys(&self, hashes: &[&[u8]]) -> Result<Vec<([u8; 32], FoundKey)>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<(Vec<u8>, Uuid, Uuid)> = sqlx::query_as(
            "select k.hash, k.tenant_id, k.key_id from api_keys k join tenants t using (tenant_id)
             where k.hash = any($1) and k.revoked_at is null and t.deleted_at is null
               and (k.expires_at is null or k.expires_at > now())",
        )
        .bind(hashes)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let found = rows.into_iter().filter_map(|(hash, tenant, key)| {
            Some((hash.try_into().ok()?, FoundKey { tenant: TenantId(tenant), key: KeyId(key) }))
        });
        Ok(found.collect())
    }

    /// Records when keys were last used, with one statement for many.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn touch_keys(&self, used: &[(TenantId, KeyId, DateTime<Utc>)]) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        sqlx::query(
            "update api_keys k set last_used_at = greatest(k.last_used_at, u.at)
             from (select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) as u (tenant_id, key_id, at)
                   order by 1, 2) as u
             where k.tenant_id = u.tenant_id and k.key_id = u.key_id",
        )
        .bind(used.iter().map(|(tenant, _, _)| tenant.0).collect::<Vec<_>>())
        .bind(used.iter().map(|(_, key, _)| key.0).collect::<Vec<_>>())
        .bind(used.iter().map(|(_, _, at)| *at).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Returns enabled servers of served tenants after `after`, by id, for the one replica that lists them again.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn enabled_servers(&self, after: ServerId, limit: i64) -> Result<Vec<DueServer>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<DueRow> = sqlx::query_as(
            "select s.tenant_id, s.server_id, s.name, s.version, s.connection = 'connected' as is_connected,
                 s.kind = 'web_page' as is_pages
             from servers s join tenants t using (tenant_id)
             where s.enabled and s.removed_at is null and t.deleted_at is null and t.suspended_at is null
               and s.server_id > $1
             order by s.server_id limit $2",
        )
        .bind(after.0)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let due = |row: DueRow| DueServer {
            tenant: TenantId(row.tenant_id),
            server: ServerId(row.server_id),
            name: row.name,
            version: row.version,
            is_connected: row.is_connected,
            is_pages: row.is_pages,
        };
        Ok(rows.into_iter().map(due).collect())
    }

    /// Returns tenants with a connected server that has given no sign of life for longer than `silence` allows.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_to_wear_off(
        &self,
        silence: Silence,
        limit: i64,
    ) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let tenants: Vec<Uuid> = sqlx::query_scalar(
            "select distinct s.tenant_id from servers s join tenants t using (tenant_id)
             where s.connection = 'connected' and s.enabled and s.removed_at is null and t.deleted_at is null
               and t.suspended_at is null
               and s.last_ok_at < now() - make_interval(secs => case when s.kind = 'web_page' then $2 else $1 end)
             limit $3",
        )
        .bind(silence.usual_s)
        .bind(silence.pages_s)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(tenants.into_iter().map(TenantId).collect())
    }

    /// Closes open records as `unknown`: those whose replica has been silent for `silent_s` seconds, and `orphans`,
    /// which this replica no longer works on. Returns how many.
    ///
    /// # Errors
    /// The database is out of reach or fails, or has no partition for a day ([`StoreError::is_missing_partition`]).
    pub async fn close_dead(&self, silent_s: f64, orphans: &[Uuid], limit: i64) -> Result<usize, StoreError> {
        let mut tx = self.begin(Lane::Commit, TxAccess::System).await?;
        let kept = columns_but(&["status", "error_code", "error_message"]);
        let closed = sqlx::query(AssertSqlSafe(format!(
            "with dead as (
                 delete from activity_open o where (o.tenant_id, o.started_at, o.id) in (
                     select a.tenant_id, a.started_at, a.id from {})
                 returning *)
             insert into activity ({kept}, status, error_code, error_message)
             select {kept}, 'unknown', 'unknown',
                 'the gateway replica that ran this call died before its end: it may have run'
             from dead on conflict do nothing",
            dead!()
        )))
        .bind(silent_s)
        .bind(orphans)
        .bind(limit)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(closed.rows_affected() as usize)
    }

    /// Returns the days of the records that [`Store::close_dead`] would close.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn dead_days(
        &self,
        silent_s: f64,
        orphans: &[Uuid],
        limit: i64,
    ) -> Result<BTreeSet<NaiveDate>, StoreError> {
        let mut tx = self.begin(Lane::Commit, TxAccess::System).await?;
        let started: Vec<DateTime<Utc>> = sqlx::query_scalar(concat!("select a.started_at from ", dead!()))
            .bind(silent_s)
            .bind(orphans)
            .bind(limit)
            .fetch_all(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(started.into_iter().map(|at| at.date_naive()).collect())
    }

    /// Returns the ids of a replica's open records that are older than `older_than_s` seconds, at most 10 000.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn open_records(&self, replica: Uuid, older_than_s: f64) -> Result<Vec<Uuid>, StoreError> {
        let mut tx = self.begin(Lane::Commit, TxAccess::System).await?;
        let ids = sqlx::query_scalar(
            "select id from activity_open
             where replica_id = $1 and started_at < now() - make_interval(secs => $2) limit 10000",
        )
        .bind(replica)
        .bind(older_than_s)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(ids)
    }
}
