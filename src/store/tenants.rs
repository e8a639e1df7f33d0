//! Tenants: creation, suspension, deletion.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::revisions::{self, Change, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;
use crate::domain::quota::OwnQuotas;

/// A tenant as stored.
#[derive(Clone, Debug, FromRow)]
pub struct Tenant {
    /// Id of the tenant, never used again.
    #[sqlx(rename = "tenant_id")]
    pub id: Uuid,
    /// Name of the tenant, free again once the tenant is deleted.
    pub name: String,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Start of the suspension; `None` if the tenant is not suspended.
    pub suspended_at: Option<DateTime<Utc>>,
    /// Quotas that the platform has set for the tenant.
    #[sqlx(try_from = "String")]
    pub quotas: OwnQuotas,
}

/// Change of a tenant's suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspend {
    /// Suspends the tenant: nothing is served to it.
    Yes,
    /// Ends the suspension.
    No,
}

macro_rules! tenant_columns {
    () => {
        "tenant_id, name, created_at, suspended_at, quotas::text as quotas"
    };
}

impl Tenant {
    /// Returns the typed id.
    pub fn tenant_id(&self) -> TenantId {
        TenantId(self.id)
    }
}

impl Store {
    /// Creates a tenant with its revisions.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the name is taken, [`StoreError::Limit`] if there are `tenants_max` tenants already.
    /// Other errors come from the database.
    pub async fn create_tenant(&self, name: &str, tenants_max: i64) -> Result<Tenant, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        // serializes creations, so that each counts the tenant of the one before
        sqlx::query("select from tenants where tenant_id = $1 for no key update")
            .bind(TenantId::PLATFORM.0)
            .execute(&mut *tx)
            .await?;
        let count: i64 =
            sqlx::query_scalar("select count(*) from tenants where deleted_at is null and tenant_id <> $1")
                .bind(TenantId::PLATFORM.0)
                .fetch_one(&mut *tx)
                .await?;
        if count >= tenants_max {
            return Err(StoreError::Limit("tenants"));
        }
        let tenant: Tenant = sqlx::query_as(concat!(
            "insert into tenants (tenant_id, name) values ($1, $2) returning ",
            tenant_columns!()
        ))
        .bind(Uuid::now_v7())
        .bind(name)
        .fetch_one(&mut *tx)
        .await
        .map_err(|error| StoreError::from_insert(error, "tenants_name", "a tenant of this name exists"))?;
        sqlx::query(
            "insert into revisions (tenant_id, kind) values ($1, 'catalogue'), ($1, 'access'), ($1, 'policy')",
        )
        .bind(tenant.id)
        .execute(&mut *tx)
        .await?;
        tx.commit_change().await?;
        Ok(tenant)
    }

    /// Returns live tenants after `after` by name, at most `limit`, without the reserved tenant.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_tenants(&self, after: &str, limit: i64) -> Result<Vec<Tenant>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows = sqlx::query_as(concat!(
            "select ",
            tenant_columns!(),
            " from tenants where deleted_at is null and tenant_id <> $3 and name > $1 order by name limit $2"
        ))
        .bind(after)
        .bind(limit)
        .bind(TenantId::PLATFORM.0)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Returns a live tenant by name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no live tenant has this name. Other errors come from the database.
    pub async fn find_tenant(&self, name: &str) -> Result<Tenant, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let row = sqlx::query_as(concat!(
            "select ",
            tenant_columns!(),
            " from tenants where deleted_at is null and tenant_id <> $2 and name = $1"
        ))
        .bind(name)
        .bind(TenantId::PLATFORM.0)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        row.ok_or(StoreError::NotFound)
    }

    /// Returns whether a tenant is served: neither deleted nor suspended.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn is_served(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let is_served = sqlx::query_scalar(
            "select exists (select from tenants where tenant_id = $1 and deleted_at is null and suspended_at is null)",
        )
        .bind(tenant.0)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(is_served)
    }

    /// Returns the tenants among `tenants` that are deleted or suspended.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn unserved(&self, tenants: &[TenantId]) -> Result<Vec<TenantId>, StoreError> {
        let ids: Vec<Uuid> = tenants.iter().map(|tenant| tenant.0).collect();
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let unserved: Vec<Uuid> = sqlx::query_scalar(
            "select tenant_id from tenants
             where tenant_id = any($1) and (deleted_at is not null or suspended_at is not null)",
        )
        .bind(ids)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(unserved.into_iter().map(TenantId).collect())
    }

    /// Suspends a tenant or ends its suspension; repeating it changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn suspend_tenant(&self, tenant: TenantId, suspend: Suspend) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let access = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        // replicas that only list the tenant's servers have to stop, or begin, as well
        let catalogue = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let changed = sqlx::query(
            "update tenants set suspended_at = case when $2 then now() end
             where tenant_id = $1 and (suspended_at is null) = $2",
        )
        .bind(tenant.0)
        .bind(suspend == Suspend::Yes)
        .execute(&mut *tx)
        .await?;
        if changed.rows_affected() == 0 {
            return Ok(());
        }
        revisions::notify(&mut tx, Change { tenant, kind: RevisionKind::Access, rev: access }).await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, catalogue).await.map(drop)
    }

    /// Deletes a tenant: its keys stop working on every replica, and its credentials are deleted for good. All other
    /// rows are deleted in the background ([`super::purge`]).
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted already. Other errors come from the database.
    pub async fn delete_tenant(&self, tenant: TenantId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let access = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        // replicas that only list the tenant's servers have to stop as well
        let catalogue = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let done =
            sqlx::query("update tenants set deleted_at = now() where tenant_id = $1 and deleted_at is null")
                .bind(tenant.0)
                .execute(&mut *tx)
                .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::NotFound);
        }
        super::secrets::remove_all(&mut tx, tenant).await?;
        super::tool_embeddings::remove_all(&mut tx, tenant).await?;
        revisions::notify(&mut tx, Change { tenant, kind: RevisionKind::Access, rev: access }).await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, catalogue).await.map(drop)
    }
}
