//! Settings per tenant and per key.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::settings::Settings;

/// Settings of one scope, with the version that guards their next change.
#[derive(Clone, Debug, Default)]
pub struct StoredSettings {
    /// Settings of the scope.
    pub settings: Settings,
    /// Version of the settings; 0 if none were ever set.
    pub version: i64,
}

/// Returns the id of a scope: the key's id, or the nil UUID for the tenant.
pub(super) fn scope_id(key: Option<KeyId>) -> Uuid {
    key.map_or(Uuid::nil(), |key| key.0)
}

impl Store {
    /// Returns the settings of a key, or of the tenant if `key` is `None`. A scope without settings is empty, not
    /// missing.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn get_settings(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
    ) -> Result<StoredSettings, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let row: Option<(String, i64)> = sqlx::query_as(
            "select value::text, version from settings where tenant_id = $1 and scope_id = $2",
        )
        .bind(tenant.0)
        .bind(scope_id(key))
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(row.map_or_else(StoredSettings::default, |(stored, version)| StoredSettings {
            settings: Settings::read(&stored).0,
            version,
        }))
    }

    /// Changes the settings of a scope that is still at `version`, and returns the new version. `null` removes a
    /// setting; names that are absent stay as stored. The caller has checked the patch, and that the key exists.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the settings have another version, [`StoreError::NotFound`] if the tenant is
    /// deleted. Other errors come from the database.
    pub async fn patch_settings(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        patch: &Map<String, Value>,
        version: i64,
    ) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        // the revision's row lock makes this read current
        let at: Option<i64> =
            sqlx::query_scalar("select version from settings where tenant_id = $1 and scope_id = $2")
                .bind(tenant.0)
                .bind(scope_id(key))
                .fetch_optional(&mut *tx)
                .await?;
        if at.unwrap_or(0) != version {
            return Err(StoreError::Conflict("the settings changed since that version"));
        }
        put(&mut tx, tenant, scope_id(key), patch, rev).await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(version + 1)
    }
}

/// Writes settings of a scope in a transaction that has taken the revision `rev`.
pub(super) async fn put(
    tx: &mut Unit,
    tenant: TenantId,
    scope: Uuid,
    patch: &Map<String, Value>,
    rev: i64,
) -> Result<(), StoreError> {
    let (set, unset) = super::patches::split(patch);
    sqlx::query(
        "insert into settings (tenant_id, scope_id, value, rev) values ($1, $2, $3, $4)
         on conflict (tenant_id, scope_id) do update set value = (settings.value || excluded.value) - $5,
             version = settings.version + 1, rev = excluded.rev",
    )
    .bind(tenant.0)
    .bind(scope)
    .bind(set)
    .bind(rev)
    .bind(unset)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Copies the settings of a key, those of a newer release included, to another key that has none.
pub(super) async fn copy(
    tx: &mut Unit,
    tenant: TenantId,
    (from, to): (KeyId, KeyId),
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into settings (tenant_id, scope_id, value, rev)
         select tenant_id, $3, value, $4 from settings where tenant_id = $1 and scope_id = $2",
    )
    .bind(tenant.0)
    .bind(from.0)
    .bind(to.0)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes the settings of a revoked key.
pub(super) async fn remove_of(tx: &mut Unit, tenant: TenantId, key: KeyId) -> Result<(), StoreError> {
    sqlx::query("delete from settings where tenant_id = $1 and scope_id = $2")
        .bind(tenant.0)
        .bind(scope_id(Some(key)))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Returns the settings of a tenant and of its live keys, within a snapshot.
pub(super) async fn all(tx: &mut Unit, tenant: TenantId) -> Result<Vec<(Uuid, Settings)>, StoreError> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "select s.scope_id, s.value::text from settings s where s.tenant_id = $1 and s.scope_id = $2
             union all
             select s.scope_id, s.value::text from api_keys k
             join settings s on s.tenant_id = k.tenant_id and s.scope_id = k.key_id
             where k.tenant_id = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())",
    )
    .bind(tenant.0)
    .bind(scope_id(None))
    .fetch_all(&mut **tx)
    .await?;
    let read = |(scope, stored): (Uuid, String)| {
        let (settings, unknown) = Settings::read(&stored);
        if !unknown.is_empty() {
            tracing::warn!(%tenant, %scope, ?unknown, "settings of another release are read as strictly as can be");
        }
        (scope, settings)
    };
    Ok(rows.into_iter().map(read).collect())
}
