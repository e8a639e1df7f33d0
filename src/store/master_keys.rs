//! The canary and the data keys of all tenants, which the deployment's master keys wrap. Runs as `mcpproxy_system`.

use sqlx::FromRow;
use uuid::Uuid;

use super::secrets::DataKey;
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Lock timeout of a start while another replica settles the canary: 10 s.
const CANARY_LOCK: &str = "select set_config('lock_timeout', '10000', true)";

/// A canary: a value that only one master key opens.
#[derive(Clone, Debug, FromRow)]
pub struct Canary {
    /// Id of the master key that seals the canary.
    pub master_id: String,
    /// Envelope of the canary.
    pub sealed: Vec<u8>,
}

#[derive(FromRow)]
struct WrappedRow {
    tenant_id: Uuid,
    #[sqlx(flatten)]
    key: DataKey,
}

impl Store {
    /// Lets `decide` inspect the canaries and return one to add, while no other replica does the same. Then deletes the
    /// canaries of master keys outside `known` that are older than the canary of the first of `known`, which seals. A
    /// younger one belongs to a key that other replicas are rotating to. Nothing changes if `decide` fails.
    ///
    /// # Errors
    /// The error of `decide`, or the [`StoreError`] of the database.
    pub async fn settle_canary<E: From<StoreError>>(
        &self,
        known: &[&str],
        decide: impl FnOnce(&[Canary]) -> Result<Option<Canary>, E>,
    ) -> Result<(), E> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let failed = |error: sqlx::Error| E::from(StoreError::from(error));
        sqlx::query(CANARY_LOCK).execute(&mut *tx).await.map_err(failed)?;
        sqlx::query("lock table secret_canary in share row exclusive mode")
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        let found: Vec<Canary> =
            sqlx::query_as("select master_id, sealed from secret_canary order by created_at")
                .fetch_all(&mut *tx)
                .await
                .map_err(failed)?;
        if let Some(canary) = decide(&found)? {
            // not the beginning of the transaction: after a wait for the lock, this canary must still be the youngest
            sqlx::query(
                "insert into secret_canary (master_id, sealed, created_at) values ($1, $2, clock_timestamp())",
            )
                .bind(&canary.master_id)
                .bind(&canary.sealed)
                .execute(&mut *tx)
                .await
                .map_err(failed)?;
        }
        sqlx::query(
            "delete from secret_canary where master_id <> all($1)
                and created_at < (select created_at from secret_canary where master_id = $2)",
        )
        .bind(known)
        .bind(known.first())
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
        tx.commit_change().await.map_err(E::from)
    }

    /// Returns wrapped data keys after `after` that one of `known` wraps, but the first of `known` does not yet.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn data_keys_to_rewrap(
        &self,
        known: &[&str],
        after: &(TenantId, DataKey),
        limit: i64,
    ) -> Result<Vec<(TenantId, DataKey)>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<WrappedRow> = sqlx::query_as(
            "select d.tenant_id, d.key_id, d.master_id, d.wrapped from data_keys d
             where d.master_id = any($1) and (d.tenant_id, d.key_id, d.master_id) > ($3, $4, $5)
                and not exists (
                    select from data_keys f
                    where f.tenant_id = d.tenant_id and f.key_id = d.key_id and f.master_id = $2)
             order by d.tenant_id, d.key_id, d.master_id limit $6",
        )
        .bind(known)
        .bind(known.first())
        .bind(after.0.0)
        .bind(after.1.key_id)
        .bind(&after.1.master_id)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|row| (TenantId(row.tenant_id), row.key)).collect())
    }

    /// Adds wrappings of data keys that still exist. A wrapping that another replica has added stays, and deleted
    /// tenants are skipped.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn add_wrappings(&self, wrapped: &[(TenantId, DataKey)]) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        sqlx::query(
            "insert into data_keys (tenant_id, key_id, master_id, wrapped)
             select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[])
                 as w (tenant_id, key_id, master_id, wrapped)
             where exists (
                 select from data_keys d where d.tenant_id = w.tenant_id and d.key_id = w.key_id)
             on conflict do nothing",
        )
        .bind(wrapped.iter().map(|(tenant, _)| tenant.0).collect::<Vec<_>>())
        .bind(wrapped.iter().map(|(_, key)| key.key_id).collect::<Vec<_>>())
        .bind(wrapped.iter().map(|(_, key)| key.master_id.as_str()).collect::<Vec<_>>())
        .bind(wrapped.iter().map(|(_, key)| key.wrapped.as_slice()).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        tx.commit_change().await
    }

    /// Deletes wrappings by master keys outside `known`, where the first of `known` wraps the same data key. Returns
    /// how many. A master key whose canary is younger than that of the first keeps its wrappings: other replicas are
    /// rotating to it.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn forget_wrappings(&self, known: &[&str]) -> Result<u64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let done = sqlx::query(
            "delete from data_keys d where d.master_id <> all($1) and exists (
                 select from data_keys f
                 where f.tenant_id = d.tenant_id and f.key_id = d.key_id and f.master_id = $2)
             and not exists (
                 select from secret_canary c join secret_canary own on own.master_id = $2
                 where c.master_id = d.master_id and c.created_at >= own.created_at)",
        )
        .bind(known)
        .bind(known.first())
        .execute(&mut *tx)
        .await?;
        tx.commit_change().await?;
        Ok(done.rows_affected())
    }

    /// Returns the number of data keys that no key of `known` wraps, and the ids of the master keys that wrap them.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn data_keys_out_of_reach(&self, known: &[&str]) -> Result<(i64, Vec<String>), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let found = sqlx::query_as(
            "select count(distinct (d.tenant_id, d.key_id)), coalesce(array_agg(distinct d.master_id), '{}')
             from data_keys d where not exists (
                 select from data_keys f
                 where f.tenant_id = d.tenant_id and f.key_id = d.key_id and f.master_id = any($1))",
        )
        .bind(known)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(found)
    }
}
