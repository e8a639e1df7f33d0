//! What was cut off results, sealed. Nothing here can open anything.

use sqlx::FromRow;
use uuid::Uuid;

use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};

/// Expired rows deleted in one transaction.
const EXPIRED_BATCH: i64 = 500;
/// The class of advisory locks that let one keeper of a tenant at a time through.
const KEEPING: i32 = 0x6361_6368;

/// Texts of one result to be kept.
#[derive(Debug)]
pub struct NewCachedTexts<'a> {
    /// Whose call it was; `None` for the bootstrap key.
    pub principal: Option<KeyId>,
    /// Which data key seals them.
    pub data_key: Uuid,
    /// The call's record.
    pub call: Uuid,
    /// The server that was called.
    pub server: Option<&'a str>,
    /// The tool that was called.
    pub tool: Option<&'a str>,
    /// Hash of the key that each is read with, and its envelope.
    pub texts: Vec<([u8; 32], Vec<u8>)>,
    /// How long they are kept, in seconds.
    pub keep_s: u32,
}

/// What a tenant may have at the same time.
#[derive(Clone, Copy, Debug)]
pub struct CacheQuota {
    /// Sealed bytes.
    pub bytes: i64,
    /// Texts.
    pub entries: i64,
}

/// A kept text.
#[derive(Clone, Debug)]
pub struct CachedText {
    /// Which data key seals it.
    pub data_key: Uuid,
    /// The envelope.
    pub sealed: Vec<u8>,
    /// The call's record.
    pub call: Uuid,
    /// The server that was called.
    pub server: Option<String>,
    /// The tool that was called.
    pub tool: Option<String>,
    /// The tenant's data keys, newest first.
    pub keys: Vec<DataKey>,
}

#[derive(FromRow)]
struct Row {
    data_key_id: Uuid,
    sealed: Vec<u8>,
    call_id: Uuid,
    server: Option<String>,
    tool: Option<String>,
}

impl Store {
    /// Keeps texts, and lets go of the tenant's oldest for as long as it has more than its quota.
    pub async fn keep_texts(
        &self,
        tenant: TenantId,
        new: &NewCachedTexts<'_>,
        quota: CacheQuota,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Cache, TxAccess::Tenant(tenant)).await?;
        // each must see what the other has added, or both would stay
        sqlx::query("select pg_advisory_xact_lock($1, hashtext($2))")
            .bind(KEEPING)
            .bind(tenant.to_string())
            .execute(&mut *tx)
            .await?;
        for (hash, sealed) in &new.texts {
            sqlx::query(
                "insert into response_cache (tenant_id, key_hash, principal_id, data_key_id, sealed, bytes, call_id,
                     server, tool, expires_at)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9, now() + make_interval(secs => $10))",
            )
            .bind(tenant.0)
            .bind(hash.as_slice())
            .bind(principal_id(new.principal))
            .bind(new.data_key)
            .bind(sealed)
            .bind(i64::try_from(sealed.len()).unwrap_or(i64::MAX))
            .bind(new.call)
            .bind(new.server)
            .bind(new.tool)
            .bind(f64::from(new.keep_s))
            .execute(&mut *tx)
            .await?;
        }
        evict(&mut tx, tenant, quota).await?;
        Ok(tx.commit().await?)
    }

    /// A kept text: only for whose call it was, and for as long as it is kept.
    pub async fn cached_text(
        &self,
        tenant: TenantId,
        principal: Option<KeyId>,
        hash: &[u8; 32],
    ) -> Result<Option<CachedText>, StoreError> {
        let mut tx = self.begin(Lane::Cache, TxAccess::TenantSnapshot(tenant)).await?;
        let row: Option<Row> = sqlx::query_as(
            "select data_key_id, sealed, call_id, server, tool from response_cache
             where tenant_id = $1 and key_hash = $2 and principal_id = $3 and expires_at > now()",
        )
        .bind(tenant.0)
        .bind(hash.as_slice())
        .bind(principal_id(principal))
        .fetch_optional(&mut *tx)
        .await?;
        let keys = if row.is_some() { secrets::keys(&mut tx, tenant).await? } else { Vec::new() };
        tx.commit().await?;
        Ok(row.map(|row| CachedText {
            data_key: row.data_key_id,
            sealed: row.sealed,
            call: row.call_id,
            server: row.server,
            tool: row.tool,
            keys,
        }))
    }

    /// Deletes a batch of what nobody can read any more; gives whether there may be more.
    pub async fn delete_expired_texts(&self) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let deleted = sqlx::query(
            "delete from response_cache where (tenant_id, key_hash) in (
                 select tenant_id, key_hash from response_cache where expires_at < now()
                 order by expires_at limit $1)",
        )
        .bind(EXPIRED_BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == EXPIRED_BATCH as u64)
    }
}

async fn evict(tx: &mut Unit, tenant: TenantId, quota: CacheQuota) -> Result<(), StoreError> {
    sqlx::query(
        "delete from response_cache c using (
             select key_hash, row_number() over newest as entries, sum(bytes) over newest as bytes
             from response_cache where tenant_id = $1
             window newest as (order by created_at desc, key_hash)) as used
         where c.tenant_id = $1 and c.key_hash = used.key_hash and (used.entries > $2 or used.bytes > $3)",
    )
    .bind(tenant.0)
    .bind(quota.entries)
    .bind(quota.bytes)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// An ended key's texts go with it.
pub(super) async fn remove_of(tx: &mut Unit, tenant: TenantId, principal: KeyId) -> Result<(), StoreError> {
    sqlx::query("delete from response_cache where tenant_id = $1 and principal_id = $2")
        .bind(tenant.0)
        .bind(principal.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

fn principal_id(principal: Option<KeyId>) -> Uuid {
    principal.map_or(Uuid::nil(), |key| key.0)
}
