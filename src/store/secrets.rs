//! Sealed credentials of servers, and the data keys that seal them. Nothing here can decrypt them.

use sqlx::FromRow;
use uuid::Uuid;

use super::revisions;
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

/// Most wrapped data keys of a tenant that are read, the newest. A tenant has few: one, and more only after master keys
/// were rotated or lost.
const DATA_KEYS_MAX: i64 = 100;

/// Data key of a tenant, wrapped by a master key.
#[derive(Clone, Debug, Default, FromRow)]
pub struct DataKey {
    /// Id of the data key.
    pub key_id: Uuid,
    /// Id of the master key that wraps the data key.
    pub master_id: String,
    /// Envelope of the data key.
    pub wrapped: Vec<u8>,
}

/// Sealed headers of a server.
#[derive(Clone, Debug, FromRow)]
pub struct ServerSecret {
    /// Id of the server.
    pub server_id: Uuid,
    /// Id of the secret; each change makes a new one.
    pub secret_id: Uuid,
    /// Id of the data key that seals the headers.
    pub key_id: Uuid,
    /// URL that the headers were given for, without its query; `None` where the server had none.
    pub place: Option<String>,
    /// Envelope of the headers.
    pub sealed: Vec<u8>,
}

/// Sealed headers to be stored.
#[derive(Clone, Debug)]
pub struct SealedHeaders {
    /// Names of the headers, which may be shown.
    pub names: Vec<String>,
    /// Id of the data key that seals the headers.
    pub key_id: Uuid,
    /// URL that the headers are given for, without its query.
    pub place: String,
    /// Envelope of the headers.
    pub sealed: Vec<u8>,
}

/// Change of a server's headers.
#[derive(Clone, Debug)]
pub enum HeadersPatch {
    /// Removes all headers.
    Clear,
    /// Replaces all headers by these.
    Set(SealedHeaders),
}

impl HeadersPatch {
    /// Returns the headers for a new server; `None` for no headers.
    pub fn into_headers(self) -> Option<SealedHeaders> {
        match self {
            HeadersPatch::Clear => None,
            HeadersPatch::Set(headers) => Some(headers),
        }
    }

    /// Returns the names of the headers after the change.
    pub(super) fn names(&self) -> &[String] {
        match self {
            HeadersPatch::Clear => &[],
            HeadersPatch::Set(headers) => &headers.names,
        }
    }
}

/// Sealed credentials, and the wrapped keys that open them.
#[derive(Clone, Debug, Default)]
pub struct SecretRows {
    /// Sealed headers, at most one entry for each server.
    pub secrets: Vec<ServerSecret>,
    /// Wrapped data keys of the tenant, the newest first.
    pub keys: Vec<DataKey>,
}

impl Store {
    /// Returns the tenant's wrapped data keys, the newest first.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn data_keys(&self, tenant: TenantId) -> Result<Vec<DataKey>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let keys = keys(&mut tx, tenant).await?;
        tx.commit().await?;
        Ok(keys)
    }

    /// Adds a data key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn add_data_key(&self, tenant: TenantId, key: &DataKey) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        revisions::hold(&mut tx, tenant).await?;
        sqlx::query("insert into data_keys (tenant_id, key_id, master_id, wrapped) values ($1, $2, $3, $4)")
            .bind(tenant.0)
            .bind(key.key_id)
            .bind(&key.master_id)
            .bind(&key.wrapped)
            .execute(&mut *tx)
            .await?;
        tx.commit_change().await
    }

    /// Returns the sealed headers of one server, with the tenant's data keys.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn server_secrets(&self, tenant: TenantId, server: ServerId) -> Result<SecretRows, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let rows = load(&mut tx, tenant, Some(server)).await?;
        tx.commit().await?;
        Ok(rows)
    }
}

/// Returns the sealed headers of one server or of all, as far as they are not a single principal's, with the data keys.
pub(super) async fn load(
    tx: &mut Unit,
    tenant: TenantId,
    server: Option<ServerId>,
) -> Result<SecretRows, StoreError> {
    let secrets = sqlx::query_as(
        "select server_id, secret_id, key_id, place, sealed from server_secrets
         where tenant_id = $1 and principal_id is null and ($2::uuid is null or server_id = $2)",
    )
    .bind(tenant.0)
    .bind(server.map(|server| server.0))
    .fetch_all(&mut **tx)
    .await?;
    Ok(SecretRows { secrets, keys: keys(tx, tenant).await? })
}

/// Returns the wrapped data keys, the newest first.
pub(super) async fn keys(tx: &mut Unit, tenant: TenantId) -> Result<Vec<DataKey>, StoreError> {
    let keys = sqlx::query_as(
        "select key_id, master_id, wrapped from data_keys where tenant_id = $1
         order by created_at desc, key_id desc limit $2",
    )
    .bind(tenant.0)
    .bind(DATA_KEYS_MAX)
    .fetch_all(&mut **tx)
    .await?;
    Ok(keys)
}

/// Deletes the sealed headers of a server.
pub(super) async fn remove(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from server_secrets where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Updates the spelling of the URL that a server's headers were given for, unless they were given for another URL.
pub(super) async fn respell(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    place: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "update server_secrets set place = $3
         where tenant_id = $1 and server_id = $2 and place = (
             select split_part(s.url, '?', 1) from servers s where s.tenant_id = $1 and s.server_id = $2)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(place)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Stores a server's headers; there must be none.
pub(super) async fn insert(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    headers: &SealedHeaders,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into server_secrets (tenant_id, secret_id, server_id, key_id, sealed, place)
         values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(tenant.0)
    .bind(Uuid::now_v7())
    .bind(server.0)
    .bind(headers.key_id)
    .bind(&headers.sealed)
    .bind(&headers.place)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes a deleted tenant's credentials, webhook, cached texts, cookies and data keys at once: no copy of the rows can be decrypted
/// again.
pub(super) async fn remove_all(tx: &mut Unit, tenant: TenantId) -> Result<(), StoreError> {
    for statement in [
        "delete from server_secrets where tenant_id = $1",
        "delete from consent_webhooks where tenant_id = $1",
        "delete from response_cache where tenant_id = $1",
        "delete from web_cookies where tenant_id = $1",
        "delete from connect_flows where tenant_id = $1",
        "delete from connections where tenant_id = $1",
        "delete from server_oauth where tenant_id = $1",
        "delete from data_keys where tenant_id = $1",
    ] {
        sqlx::query(statement).bind(tenant.0).execute(&mut **tx).await?;
    }
    Ok(())
}
