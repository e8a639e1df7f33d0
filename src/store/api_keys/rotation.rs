//! Rotation: a key gets a successor with the same rights, and ends.

use chrono::{DateTime, Utc};
use serde_json::Map;
use uuid::Uuid;

use super::{ApiKey, KeyOrigin, KeyRow, NewApiKey, find, insert};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::quota::Quotas;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, consent, policies, settings};

/// Most keys that may have created keys of one line of rotations.
const LINE_CREATORS_MAX: usize = 100;

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
        // an expiry that somebody has set since the rotation holds; the release before does not mark the end of a rotation
        let is_end_of_rotation = old.rotation_end.is_none_or(|end| old.expires_at == Some(end));
        let expires_at = match before.filter(|_| is_end_of_rotation) {
            Some(successor) => successor.expires_at,
            None => old.expires_at,
        };
        if old.has_ended(self.now) || expires_at.is_some_and(|at| at <= self.now) {
            return Err(StoreError::Conflict("the key is revoked or has expired: make a new one"));
        }
        let creators = creators(old.line_creators.clone(), old.created_by)?;
        Ok(NewApiKey {
            id: KeyId(Uuid::now_v7()),
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
            origin: Some(KeyOrigin { predecessor: old.id, root: old.root(), creators }),
            quotas: self.quotas,
        })
    }
}

/// Adds the creator of a key to those of the keys before it in its line.
fn creators(
    mut before: Vec<Option<KeyId>>,
    creator: Option<KeyId>,
) -> Result<Vec<Option<KeyId>>, StoreError> {
    if !before.contains(&creator) {
        before.push(creator);
    }
    match before.len() <= LINE_CREATORS_MAX {
        true => Ok(before),
        false => Err(StoreError::Conflict("the key was rotated by too many different keys: make a new one")),
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
        end(&mut tx, tenant, keys, ends_at, rev).await?;
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

/// Sets the end of a key, and the key that replaces it.
async fn end(
    tx: &mut Unit,
    tenant: TenantId,
    (key, successor): (KeyId, KeyId),
    at: DateTime<Utc>,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update api_keys set expires_at = $3, rotation_end = $3, successor = $5, version = version + 1, rev = $4
         where tenant_id = $1 and key_id = $2",
    )
    .bind(tenant.0)
    .bind(key.0)
    .bind(at)
    .bind(rev)
    .bind(successor.0)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn creators_of_a_line_are_counted_once_and_bounded() {
        let key = |n| Some(KeyId(Uuid::from_u128(n)));
        assert_eq!(creators(Vec::new(), None).unwrap(), [None]);
        assert_eq!(creators(vec![None, key(1)], None).unwrap(), [None, key(1)]);
        assert_eq!(creators(vec![None], key(1)).unwrap(), [None, key(1)]);
        let full: Vec<_> = (0..100).map(key).collect();
        assert_eq!(creators(full.clone(), key(99)).unwrap(), full);
        assert!(matches!(creators(full, None), Err(StoreError::Conflict(_))));
    }
}
