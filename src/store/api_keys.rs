//! API keys. The secret is never stored: only its SHA-256 and a visible prefix.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::FromRow;
use uuid::Uuid;

use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{BarredIdentity, GrantInForce, PolicyInForce, Store, StoreError, StoredRules, quotas};
use crate::domain::id::{IdentityId, KeyId, TenantId};
use crate::domain::quota::{OwnQuotas, Quotas};
use crate::domain::settings::Settings;
use crate::domain::tenant::Role;

/// An API key as stored.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Id of the API key.
    pub id: KeyId,
    /// Role of the key.
    pub role: Role,
    /// Name of the key, for people.
    pub name: String,
    /// Owner: the person or robot that holds the key.
    pub owner: String,
    /// True if somebody named the owner; if not, the owner is the key's original name or role.
    pub owner_given: bool,
    /// Identity of the person who holds the key; `None` if nobody named one.
    pub identity_id: Option<IdentityId>,
    /// Root of the key that created this one; `None` for the bootstrap key.
    pub created_by: Option<KeyId>,
    /// First key of the line of rotations that the key belongs to; `None` if the key is no rotation.
    pub rotated_root: Option<KeyId>,
    /// Key whose rotation made this one; `None` if the key is no rotation.
    pub predecessor: Option<KeyId>,
    /// Key that the last rotation of this one made; `None` if it was not rotated.
    pub successor: Option<KeyId>,
    /// Expiry that the last rotation of the key gave it; `None` if it was not rotated.
    pub rotation_end: Option<DateTime<Utc>>,
    /// Roots of the keys that created the keys before this one in its line; `None` for the bootstrap key.
    pub line_creators: Vec<Option<KeyId>>,
    /// Visible start of the secret.
    pub prefix: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Expiry of the key; `None` if it does not expire.
    pub expires_at: Option<DateTime<Utc>>,
    /// Time of revocation; `None` if the key was not revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// Time of the last use, written at most once a minute; `None` if the key was never used.
    pub last_used_at: Option<DateTime<Utc>>,
    /// Number of changes, for optimistic updates.
    pub version: i64,
}

impl ApiKey {
    /// Returns the first key of the line of rotations that the key belongs to: the key itself if it is no rotation.
    pub fn root(&self) -> KeyId {
        self.rotated_root.unwrap_or(self.id)
    }

    /// Returns whether the key is revoked, or has expired at `now`.
    fn has_ended(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_some() || self.expires_at.is_some_and(|at| at <= now)
    }
}

/// An API key to be created.
#[derive(Clone, Debug)]
pub struct NewApiKey {
    /// Id of the key, by its age (UUIDv7).
    pub id: KeyId,
    /// Role of the key.
    pub role: Role,
    /// Name of the key, for people.
    pub name: String,
    /// Owner: the person or robot that holds the key.
    pub owner: String,
    /// True if somebody named the owner.
    pub owner_given: bool,
    /// Identity of the person who holds the key; `None` for none.
    pub identity_id: Option<IdentityId>,
    /// Visible start of the secret.
    pub prefix: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Settings of the key itself.
    pub settings: Map<String, Value>,
    /// Expiry of the key; `None` if it does not expire.
    pub expires_at: Option<DateTime<Utc>>,
    /// Root of the key that creates this one; `None` for the bootstrap key.
    pub created_by: Option<KeyId>,
    /// Rotation that creates the key; `None` if none does.
    pub origin: Option<KeyOrigin>,
    /// Default quotas, for a tenant without its own.
    pub quotas: Quotas,
}

/// Rotation that creates a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOrigin {
    /// Key that is rotated.
    pub predecessor: KeyId,
    /// First key of the line of rotations.
    pub root: KeyId,
    /// Roots of the keys that created the keys of the line so far; `None` for the bootstrap key.
    pub creators: Vec<Option<KeyId>>,
}

/// Columns of a [`KeyRow`]. The previous release does not record whether an owner was named. Such an owner
/// counts as named if it is neither the key's name nor its role.
macro_rules! key_columns {
    () => {
        "key_id, role, name, owner, coalesce(owner_given, owner <> name and owner <> role) as owner_given,
             identity_id, created_by, rotated_root, predecessor, successor, rotation_end, line_creators, prefix, hash, created_at,
             expires_at, revoked_at, last_used_at, version"
    };
}

mod rotation;

pub use rotation::{KeyRotation, RotatedKey};

#[derive(FromRow)]
pub(super) struct KeyRow {
    key_id: Uuid,
    role: String,
    name: String,
    owner: String,
    owner_given: bool,
    identity_id: Option<Uuid>,
    created_by: Option<Uuid>,
    rotated_root: Option<Uuid>,
    predecessor: Option<Uuid>,
    successor: Option<Uuid>,
    rotation_end: Option<DateTime<Utc>>,
    line_creators: Option<Vec<Option<Uuid>>>,
    prefix: String,
    hash: Vec<u8>,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
    version: i64,
}

impl TryFrom<KeyRow> for ApiKey {
    type Error = StoreError;

    fn try_from(row: KeyRow) -> Result<ApiKey, StoreError> {
        let wrong = |column, value| StoreError::Inconsistent { table: "api_keys", column, value };
        let Some(role) = Role::parse(&row.role) else { return Err(wrong("role", row.role)) };
        let hash = row.hash.try_into().map_err(|_| wrong("hash", row.prefix.clone()))?;
        Ok(ApiKey {
            id: KeyId(row.key_id),
            role,
            name: row.name,
            owner: row.owner,
            owner_given: row.owner_given,
            identity_id: row.identity_id.map(IdentityId),
            created_by: row.created_by.map(KeyId),
            rotated_root: row.rotated_root.map(KeyId),
            predecessor: row.predecessor.map(KeyId),
            successor: row.successor.map(KeyId),
            rotation_end: row.rotation_end,
            line_creators: row
                .line_creators
                .into_iter()
                .flatten()
                .map(|creator| creator.map(KeyId))
                .collect(),
            prefix: row.prefix,
            hash,
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
            last_used_at: row.last_used_at,
            version: row.version,
        })
    }
}

impl Store {
    /// Creates a key with its settings.
    ///
    /// # Errors
    /// [`StoreError::Quota`] if the tenant's quota of keys is used up, [`StoreError::NotFound`] if the tenant is
    /// deleted, [`StoreError::Conflict`] if it has a key with this id. Other errors come from the database.
    pub async fn create_key(&self, tenant: TenantId, new: &NewApiKey) -> Result<ApiKey, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let key = insert(&mut tx, tenant, new, rev).await?;
        super::settings::put(&mut tx, tenant, key.id.0, &new.settings, rev).await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(key)
    }

    /// Returns keys after `after` by id, which is by age; revoked keys are included.
    ///
    /// # Errors
    /// [`StoreError::Inconsistent`] if a key has a role that this version does not know. Other errors come from the
    /// database.
    pub async fn list_keys(
        &self,
        tenant: TenantId,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows: Vec<KeyRow> = sqlx::query_as(concat!(
            "select ",
            key_columns!(),
            " from api_keys where tenant_id = $1 and key_id > $2 order by key_id limit $3"
        ))
        .bind(tenant.0)
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter().map(ApiKey::try_from).collect()
    }

    /// Returns one key, revoked or not.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant has no such key. Other errors come from the database.
    pub async fn get_key(&self, tenant: TenantId, key: KeyId) -> Result<ApiKey, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found = find(&mut tx, tenant, key).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Changes name, owner, identity or expiry of a key; fields that are `None` stay as they are. With another owner or identity, the
    /// key's kept cookies and drafts are deleted: they are of the person before.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the key has another version than the patch names, or its expiry is changed and it has
    /// expired. [`StoreError::NotFound`] if there
    /// is no such key, or the tenant is deleted. Other errors come from the database.
    pub async fn update_key(
        &self,
        tenant: TenantId,
        key: KeyId,
        patch: &KeyPatch,
    ) -> Result<ApiKey, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let changes_hands = changes_hands(&mut tx, (tenant, key), patch).await?;
        let row: Option<KeyRow> = sqlx::query_as(concat!(
            "update api_keys set name = coalesce($3, name), owner = coalesce($4, owner),
                 owner_given = $4 is not null or coalesce(owner_given, owner <> name and owner <> role),
                 expires_at = case when $5 then $6 else expires_at end,
                 identity_id = case when $9 then $10 else identity_id end,
                 version = version + 1, rev = $7
             where tenant_id = $1 and key_id = $2 and ($8::bigint is null or version = $8)
               and (not $5 or expires_at is null or expires_at > now()) returning ",
            key_columns!()
        ))
        .bind(tenant.0)
        .bind(key.0)
        .bind(&patch.name)
        .bind(&patch.owner)
        .bind(patch.expires_at.is_some())
        .bind(patch.expires_at.flatten())
        .bind(rev)
        .bind(patch.version)
        .bind(patch.identity_id.is_some())
        .bind(patch.identity_id.flatten().map(|identity| identity.0))
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else {
            drop(tx);
            let found = self.get_key(tenant, key).await?;
            let why = match found.has_ended(Utc::now()) && patch.expires_at.is_some() {
                // it does not count in the quota any more
                true => "the key has ended and cannot be prolonged: make a new one",
                false => "the key changed since that version",
            };
            return Err(StoreError::Conflict(why));
        };
        if changes_hands {
            super::web_drafts::remove_of(&mut tx, tenant, key).await?;
            super::web_cookies::remove_of(&mut tx, tenant, key).await?;
            super::connected::remove_of(&mut tx, tenant, key).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        row.try_into()
    }

    /// Revokes a key for good, and deletes its settings and cached texts. Revoking a key again is no error.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such key, or the tenant is deleted. Other errors come from the database.
    pub async fn revoke_key(&self, tenant: TenantId, key: KeyId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let done = sqlx::query(
            "update api_keys set revoked_at = coalesce(revoked_at, now()), version = version + 1, rev = $3
             where tenant_id = $1 and key_id = $2",
        )
        .bind(tenant.0)
        .bind(key.0)
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::NotFound);
        }
        super::settings::remove_of(&mut tx, tenant, key).await?;
        super::response_cache::remove_of(&mut tx, tenant, key).await?;
        super::web_drafts::remove_of(&mut tx, tenant, key).await?;
        super::web_cookies::remove_of(&mut tx, tenant, key).await?;
        super::connected::remove_of(&mut tx, tenant, key).await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await.map(drop)
    }

    /// Returns all that decides access to a tenant, in one consistent snapshot: live keys, settings by scope, policies, and
    /// the revision. Rules of policies whose version is `known` are left out.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn load_access(
        &self,
        tenant: TenantId,
        known: &HashMap<Option<KeyId>, i64>,
    ) -> Result<AccessRows, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let row: Option<(String, String, bool)> = sqlx::query_as(
            "select name, quotas::text, suspended_at is not null from tenants
             where tenant_id = $1 and deleted_at is null",
        )
        .bind(tenant.0)
        .fetch_optional(&mut *tx)
        .await?;
        let (tenant_name, quotas, is_suspended) = row.ok_or(StoreError::NotFound)?;
        let quotas = OwnQuotas::from(quotas);
        let rev = revisions::current(&mut tx, tenant, RevisionKind::Access).await?;
        let keys: Vec<KeyRow> = sqlx::query_as(concat!(
            "select ",
            key_columns!(),
            " from api_keys where tenant_id = $1 and revoked_at is null
                 and (expires_at is null or expires_at > now())"
        ))
        .bind(tenant.0)
        .fetch_all(&mut *tx)
        .await?;
        let settings = super::settings::all(&mut tx, tenant).await?;
        let policies = super::policies::in_force(&mut tx, tenant, known).await?;
        let grants = super::consent::grants_in_force(&mut tx, tenant).await?;
        let rules = super::identity::in_force(&mut tx, tenant).await?;
        let barred = super::identity::barred(&mut tx, tenant).await?;
        tx.commit().await?;
        let keys = readable(keys);
        Ok(AccessRows {
            tenant_name,
            rev,
            is_suspended,
            quotas,
            keys,
            settings,
            policies,
            grants,
            rules,
            barred,
        })
    }
}

/// Returns one key, revoked or not; [`StoreError::NotFound`] if the tenant has no such key.
async fn find(tx: &mut Unit, tenant: TenantId, key: KeyId) -> Result<ApiKey, StoreError> {
    let row: Option<KeyRow> = sqlx::query_as(concat!(
        "select ",
        key_columns!(),
        " from api_keys where tenant_id = $1 and key_id = $2"
    ))
    .bind(tenant.0)
    .bind(key.0)
    .fetch_optional(&mut **tx)
    .await?;
    row.ok_or(StoreError::NotFound)?.try_into()
}

/// Inserts a key, without its settings, if the tenant's quota has room for it.
async fn insert(tx: &mut Unit, tenant: TenantId, new: &NewApiKey, rev: i64) -> Result<ApiKey, StoreError> {
    let count: i64 = sqlx::query_scalar(quotas::counted_keys!()).bind(tenant.0).fetch_one(&mut **tx).await?;
    let quotas = quotas::of(tx, tenant, &new.quotas).await?;
    quotas::check(count, quotas.keys, "keys")?;
    let origin = new.origin.as_ref();
    let creators: Option<Vec<Option<Uuid>>> =
        origin.map(|origin| origin.creators.iter().map(|creator| creator.map(|key| key.0)).collect());
    let row: Option<KeyRow> = sqlx::query_as(concat!(
        "insert into api_keys
             (tenant_id, key_id, role, name, owner, prefix, hash, expires_at, created_by, rev, owner_given,
              identity_id, rotated_root, predecessor, line_creators)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         on conflict (tenant_id, key_id) do nothing returning ",
        key_columns!()
    ))
    .bind(tenant.0)
    .bind(new.id.0)
    .bind(new.role.as_str())
    .bind(&new.name)
    .bind(&new.owner)
    .bind(&new.prefix)
    .bind(new.hash.as_slice())
    .bind(new.expires_at)
    .bind(new.created_by.map(|key| key.0))
    .bind(rev)
    .bind(new.owner_given)
    .bind(new.identity_id.map(|identity| identity.0))
    .bind(origin.map(|origin| origin.root.0))
    .bind(origin.map(|origin| origin.predecessor.0))
    .bind(creators)
    .fetch_optional(&mut **tx)
    .await?;
    row.ok_or(StoreError::Conflict("this key was made already"))?.try_into()
}

/// Returns whether a patch gives a key another owner or identity.
async fn changes_hands(
    tx: &mut Unit,
    (tenant, key): (TenantId, KeyId),
    patch: &KeyPatch,
) -> Result<bool, StoreError> {
    let changes: Option<bool> = sqlx::query_scalar(
        "select coalesce(owner <> $3, false) or ($4 and identity_id is distinct from $5)
         from api_keys where tenant_id = $1 and key_id = $2 for update",
    )
    .bind(tenant.0)
    .bind(key.0)
    .bind(&patch.owner)
    .bind(patch.identity_id.is_some())
    .bind(patch.identity_id.flatten().map(|identity| identity.0))
    .fetch_optional(&mut **tx)
    .await?;
    Ok(changes.unwrap_or(false))
}

/// Returns the keys that this version understands. A key with a role of a newer release does not work here; the others
/// do.
fn readable(rows: Vec<KeyRow>) -> Vec<ApiKey> {
    let read = |row| match ApiKey::try_from(row) {
        Ok(key) => Some(key),
        Err(error) => {
            tracing::warn!(%error, "a key is left out");
            None
        }
    };
    rows.into_iter().filter_map(read).collect()
}

/// A change to a key; `None` leaves a field, `Some(None)` removes it.
#[derive(Clone, Debug, Default)]
pub struct KeyPatch {
    /// New name.
    pub name: Option<String>,
    /// New owner.
    pub owner: Option<String>,
    /// New identity of the person who holds the key; `Some(None)` for none.
    pub identity_id: Option<Option<IdentityId>>,
    /// New expiry; `Some(None)` for a key that does not expire.
    pub expires_at: Option<Option<DateTime<Utc>>>,
    /// Version that the key must still have; `None` for any.
    pub version: Option<i64>,
}

/// Access data of a tenant, as returned by [`Store::load_access`].
#[derive(Clone, Debug)]
pub struct AccessRows {
    /// Name of the tenant.
    pub tenant_name: String,
    /// Revision of this snapshot.
    pub rev: i64,
    /// True if the tenant is suspended: nothing is served to it.
    pub is_suspended: bool,
    /// Quotas that the platform has set for the tenant.
    pub quotas: OwnQuotas,
    /// Keys that are neither revoked nor expired, as the quota counts them; the reader checks their expiry from then on.
    pub keys: Vec<ApiKey>,
    /// Settings by scope: the id of a key, or the nil UUID for the tenant.
    pub settings: Vec<(Uuid, Settings)>,
    /// Policies in force of the tenant and its keys.
    pub policies: Vec<PolicyInForce>,
    /// Grants that hold.
    pub grants: Vec<GrantInForce>,
    /// Rules that map claims of tokens to a role.
    pub rules: StoredRules,
    /// People who are blocked, or some of whose tokens are refused.
    pub barred: Vec<BarredIdentity>,
}
