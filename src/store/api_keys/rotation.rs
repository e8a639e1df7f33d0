//! Rotation: a key gets a successor with the same rights, and ends.

use chrono::{DateTime, Utc};
use serde_json::Map;

use super::{ApiKey, KeyRow, NewApiKey, find, insert};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::quota::Quotas;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, consent, policies, settings};

/// Rotation of a key: the secret of its successor, and its own end.
#[derive(Clone, Debug)]
pub struct KeyRotation {
    /// Visible start of the successor's secret.
    pub prefix: String,
    /// SHA-256 of the successor's secret.
    pub hash: [u8; 32],
    /// Time of the rotation.
    pub now: DateTime<Utc>,
    /// Time when the old key ends.
    pub ends_at: DateTime<Utc>,
    /// Root of the key that rotates; `None` for the bootstrap key.
    pub created_by: Option<KeyId>,
    /// Default quotas, for a tenant without its own.
    pub quotas: Quotas,
}

/// Result of a rotation.
#[derive(Clone, Debug)]
pub struct RotatedKey {
    /// New key.
    pub successor: ApiKey,
    /// Time when the old key ends.
    pub ends_at: DateTime<Utc>,
    /// Number of remembered decisions about calls of other keys that end with the old key, which gave them.
    pub grants_ended: i64,
}

impl KeyRotation {
    /// Returns the successor of `old`, whose settings are copied later. `before` is the latest successor that `old` has had:
    /// it tells the expiry that `old` had before its rotation.
    fn successor_of(&self, old: &ApiKey, before: Option<&ApiKey>) -> Result<NewApiKey, StoreError> {
        if let Some(successor) = before.filter(|successor| successor.revoked_at.is_none()) {
            return Err(match old.has_ended(self.now) {
                // to revoke the successor and rotate the old one again, as is right before its end, would leave no key
                true => StoreError::Conflict("the key has ended and has a successor: rotate that one"),
                false => StoreError::Rotated(successor.id),
            });
        }
        let expires_at = before.map_or(old.expires_at, |successor| successor.expires_at);
        if old.has_ended(self.now) || expires_at.is_some_and(|at| at <= self.now) {
            return Err(StoreError::Conflict("the key is revoked or has expired: make a new one"));
        }
        Ok(NewApiKey {
            role: old.role,
            name: old.name.clone(),
            owner: old.owner.clone(),
            owner_given: old.owner_given,
            identity_id: old.identity_id,
            prefix: self.prefix.clone(),
            hash: self.hash,
            settings: Map::new(),
            expires_at,
            created_by: self.created_by,
            rotated_root: Some(old.root()),
            quotas: self.quotas,
        })
    }
}

impl Store {
    /// Creates the successor of a key, with its role, name, owner, expiry, settings, policy and the remembered decisions about
    /// its calls. The key itself ends at `rotation.ends_at`, or when it was to expire anyway.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such key, or the tenant is deleted. [`StoreError::Rotated`] if the key has a
    /// successor that is not revoked. [`StoreError::Conflict`] if the key is revoked or has expired. [`StoreError::Quota`] if
    /// the tenant's quota of keys is used up. Other errors come from the database.
    pub async fn rotate_key(
        &self,
        tenant: TenantId,
        key: KeyId,
        rotation: &KeyRotation,
    ) -> Result<RotatedKey, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // its row lock makes the reads below current
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let old = find(&mut tx, tenant, key).await?;
        let before = latest_successor(&mut tx, tenant, &old).await?;
        let successor = insert(&mut tx, tenant, &rotation.successor_of(&old, before.as_ref())?, rev).await?;
        let keys = (key, successor.id);
        settings::copy(&mut tx, tenant, keys, rev).await?;
        policies::copy(&mut tx, tenant, keys, rev).await?;
        consent::copy_grants(&mut tx, tenant, keys, rev).await?;
        let grants_ended = consent::count_grants_to_others(&mut tx, tenant, key).await?;
        let ends_at = old.expires_at.map_or(rotation.ends_at, |at| at.min(rotation.ends_at));
        end(&mut tx, tenant, key, ends_at, rev).await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(RotatedKey { successor, ends_at, grants_ended })
    }
}

/// Returns the latest later key of the same line of rotations; a revoked one only if all are revoked.
async fn latest_successor(
    tx: &mut Unit,
    tenant: TenantId,
    old: &ApiKey,
) -> Result<Option<ApiKey>, StoreError> {
    let row: Option<KeyRow> = sqlx::query_as(concat!(
        "select ",
        key_columns!(),
        " from api_keys where tenant_id = $1 and rotated_root = $2 and created_at > $3
         order by revoked_at is not null, created_at desc limit 1"
    ))
    .bind(tenant.0)
    .bind(old.root().0)
    .bind(old.created_at)
    .fetch_optional(&mut **tx)
    .await?;
    row.map(ApiKey::try_from).transpose()
}

/// Sets the end of a key.
async fn end(
    tx: &mut Unit,
    tenant: TenantId,
    key: KeyId,
    at: DateTime<Utc>,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update api_keys set expires_at = $3, version = version + 1, rev = $4
         where tenant_id = $1 and key_id = $2",
    )
    .bind(tenant.0)
    .bind(key.0)
    .bind(at)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
