//! Policies of tenants and keys, as versions whose content never changes.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::FromRow;
use uuid::Uuid;

use super::revisions::{self, RevisionKind};
use super::settings::{self, scope_id};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::policy::PolicyMode;

/// Most versions of one policy. Upkeep deletes the oldest of those that were replaced more than a day ago.
const VERSIONS_MAX: i64 = 1000;
/// Most bytes of a tenant's policies in force, those of its keys included: every replica keeps them compiled.
const BYTES_MAX: i64 = 1024 * 1024;

/// Version of a policy, as stored.
#[derive(Clone, Debug, FromRow)]
pub struct PolicyVersion {
    /// Number of the version, from 1.
    pub version: i64,
    /// Value of `policy_mode` that was set along with the rules; `None` if the setting was left alone.
    pub mode: Option<String>,
    /// Rules as they were written, a JSON array.
    pub rules: String,
    /// Key that made the version; `None` for the bootstrap key.
    pub created_by: Option<Uuid>,
    /// Time of the change.
    pub created_at: DateTime<Utc>,
}

/// Policy to be stored as the next version.
#[derive(Clone, Debug)]
pub struct NewPolicy {
    /// Version that it replaces; 0 for the first.
    pub replaces: i64,
    /// Value of `policy_mode` to set as well.
    pub mode: Option<PolicyMode>,
    /// Rules, a JSON array that was checked.
    pub rules: String,
    /// Key that makes the change; `None` for the bootstrap key.
    pub created_by: Option<KeyId>,
}

/// Policy in force of a tenant or of one of its live keys.
#[derive(Clone, Debug)]
pub struct PolicyInForce {
    /// Key of the policy; `None` for the tenant's own.
    pub key: Option<KeyId>,
    /// Number of the version.
    pub version: i64,
    /// Rules of the version; `None` if the caller said that it has them.
    pub rules: Option<String>,
}

impl Store {
    /// Returns the policy in force of a key, or of the tenant if `key` is `None`; `None` if there never was one.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn get_policy(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
    ) -> Result<Option<PolicyVersion>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let row = sqlx::query_as(
            "select version, mode, rules, created_by, created_at from policies
             where tenant_id = $1 and scope_id = $2 and replaced_at is null",
        )
        .bind(tenant.0)
        .bind(scope_id(key))
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(row)
    }

    /// Returns versions of the policy of a key, or of the tenant if `key` is `None`, that are older than `before`, the
    /// newest first. The page ends with the version that makes its rules larger than `bytes_max`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_policies(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        before: i64,
        limit: i64,
        bytes_max: i64,
    ) -> Result<Vec<PolicyVersion>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(
            "select version, mode, rules, created_by, created_at from policies
             where tenant_id = $1 and scope_id = $2 and version in (
                 select version from (
                     select version, sum(bytes) over (order by version desc) - bytes as newer from (
                         select version, octet_length(rules) as bytes from policies
                         where tenant_id = $1 and scope_id = $2 and version < $3
                         order by version desc limit $4) sized
                 ) summed where newer < $5)
             order by version desc",
        )
        .bind(tenant.0)
        .bind(scope_id(key))
        .bind(before)
        .bind(limit)
        .bind(bytes_max)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Stores the next version of a policy, which is in force from then on. Returns its number.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another version than the named one is in force, [`StoreError::NotFound`] if the key is
    /// revoked or the tenant deleted, [`StoreError::Limit`] if the policies are too many or too large. Other errors come
    /// from the database.
    pub async fn put_policy(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        new: &NewPolicy,
    ) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        if let Some(key) = key {
            check_key(&mut tx, tenant, key).await?;
        }
        let scope = scope_id(key);
        // the revision's row lock makes this read current
        let replaced: Option<i64> = sqlx::query_scalar(
            "update policies set replaced_at = now()
             where tenant_id = $1 and scope_id = $2 and replaced_at is null returning version",
        )
        .bind(tenant.0)
        .bind(scope)
        .fetch_optional(&mut *tx)
        .await?;
        if replaced.unwrap_or(0) != new.replaces {
            return Err(StoreError::Conflict("the policy changed since that version"));
        }
        let version = new.replaces + 1;
        sqlx::query(
            "insert into policies (tenant_id, scope_id, version, mode, rules, created_by, rev)
             values ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(tenant.0)
        .bind(scope)
        .bind(version)
        .bind(new.mode.map(PolicyMode::as_str))
        .bind(&new.rules)
        .bind(new.created_by.map(|key| key.0))
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        check_bounds(&mut tx, tenant, scope).await?;
        if let Some(mode) = new.mode {
            let patch = Map::from_iter([("policy_mode".to_owned(), Value::from(mode.as_str()))]);
            settings::put(&mut tx, tenant, scope, &patch, rev).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(version)
    }
}

/// Copies the policy in force of a key, if it has one, to another key, as the first version.
pub(super) async fn copy(
    tx: &mut Unit,
    tenant: TenantId,
    (from, to): (KeyId, KeyId),
    rev: i64,
) -> Result<(), StoreError> {
    let copied = sqlx::query(
        "insert into policies (tenant_id, scope_id, version, mode, rules, created_by, rev)
         select tenant_id, $3, 1, mode, rules, created_by, $4 from policies
         where tenant_id = $1 and scope_id = $2 and replaced_at is null",
    )
    .bind(tenant.0)
    .bind(from.0)
    .bind(to.0)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    if copied.rows_affected() == 0 {
        return Ok(());
    }
    check_bounds(tx, tenant, to.0).await
}

async fn check_key(tx: &mut Unit, tenant: TenantId, key: KeyId) -> Result<(), StoreError> {
    let live: Option<i32> = sqlx::query_scalar(
        "select 1 from api_keys where tenant_id = $1 and key_id = $2 and revoked_at is null",
    )
    .bind(tenant.0)
    .bind(key.0)
    .fetch_optional(&mut **tx)
    .await?;
    live.map(drop).ok_or(StoreError::NotFound)
}

async fn check_bounds(tx: &mut Unit, tenant: TenantId, scope: Uuid) -> Result<(), StoreError> {
    let (versions, bytes): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where scope_id = $2),
            coalesce(sum(octet_length(rules)) filter (where replaced_at is null), 0)::bigint
         from policies where tenant_id = $1 and (scope_id = $2 or replaced_at is null)",
    )
    .bind(tenant.0)
    .bind(scope)
    .fetch_one(&mut **tx)
    .await?;
    if versions > VERSIONS_MAX {
        return Err(StoreError::Limit("versions of one policy; the oldest go after a day"));
    }
    if bytes > BYTES_MAX {
        return Err(StoreError::Limit("1 MiB for all rules of a tenant and its keys"));
    }
    Ok(())
}

/// Returns the policies in force of a tenant and its live keys, within a snapshot. Rules of versions that are `known` are
/// left out.
pub(super) async fn in_force(
    tx: &mut Unit,
    tenant: TenantId,
    known: &HashMap<Option<KeyId>, i64>,
) -> Result<Vec<PolicyInForce>, StoreError> {
    let (scopes, versions): (Vec<Uuid>, Vec<i64>) =
        known.iter().map(|(key, version)| (scope_id(*key), *version)).unzip();
    let rows: Vec<(Uuid, i64, Option<String>)> = sqlx::query_as(
        "select p.scope_id, p.version, case when k.version is null then p.rules end
         from policies p
         left join unnest($3::uuid[], $4::bigint[]) as k (scope_id, version)
             on k.scope_id = p.scope_id and k.version = p.version
         where p.tenant_id = $1 and p.replaced_at is null and (p.scope_id = $2 or exists (
             select from api_keys a
             where a.tenant_id = $1 and a.key_id = p.scope_id and a.revoked_at is null))",
    )
    .bind(tenant.0)
    .bind(scope_id(None))
    .bind(scopes)
    .bind(versions)
    .fetch_all(&mut **tx)
    .await?;
    let of = |(scope, version, rules): (Uuid, i64, Option<String>)| PolicyInForce {
        key: Some(KeyId(scope)).filter(|_| !scope.is_nil()),
        version,
        rules,
    };
    Ok(rows.into_iter().map(of).collect())
}
