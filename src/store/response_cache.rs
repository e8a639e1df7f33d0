//! Texts that were cut off results, sealed. Nothing here can decrypt them.

use sqlx::FromRow;
use uuid::Uuid;

use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};

/// Class of the advisory locks that serialize the writers of a tenant.
const KEEPING: i32 = 0x6361_6368;

/// Cut texts of one result, to be stored.
#[derive(Debug)]
pub struct NewCachedTexts<'a> {
    /// Key that made the call; `None` for the bootstrap key.
    pub principal: Option<KeyId>,
    /// Id of the data key that seals the texts.
    pub data_key: Uuid,
    /// Id of the call's activity record.
    pub call: Uuid,
    /// Server that was called; `None` if the record names none.
    pub server: Option<&'a str>,
    /// Tool that was called; `None` if the record names none.
    pub tool: Option<&'a str>,
    /// Hash of the key that a text is read with, and the envelope of the text.
    pub texts: Vec<([u8; 32], Vec<u8>)>,
    /// Lifetime of the texts, in seconds.
    pub keep_s: u32,
}

/// Quota of a tenant in the response cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheQuota {
    /// Most sealed bytes.
    pub bytes: i64,
    /// Most texts.
    pub entries: i64,
}

/// A stored text, sealed.
#[derive(Clone, Debug)]
pub struct CachedText {
    /// Id of the data key that seals the text.
    pub data_key: Uuid,
    /// Envelope of the text.
    pub sealed: Vec<u8>,
    /// Id of the call's activity record.
    pub call: Uuid,
    /// Server that was called; `None` if the record names none.
    pub server: Option<String>,
    /// Tool that was called; `None` if the record names none.
    pub tool: Option<String>,
    /// Wrapped data keys of the tenant, the newest first.
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
    /// Stores texts, and deletes the tenant's oldest ones above its quota.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn keep_texts(
        &self,
        tenant: TenantId,
        new: &NewCachedTexts<'_>,
        quota: CacheQuota,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Cache, TxAccess::Tenant(tenant)).await?;
        // concurrent writers must see each other's rows, or the quota would be exceeded
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

    /// Returns a stored text until it expires, and only to the principal whose call it was.
    ///
    /// # Errors
    /// The database is out of reach or fails.
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

    /// Deletes a batch of expired texts. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_expired_texts(&self) -> Result<bool, StoreError> {
        let expired = sqlx::query(
            "delete from response_cache where (tenant_id, key_hash) in (
                 select tenant_id, key_hash from response_cache where expires_at < now()
                 order by expires_at limit $1)",
        );
        self.delete_expired(expired).await
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

/// Deletes the texts of a revoked key.
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
