//! Quotas of tenants, and how much of them is used.

use serde_json::{Map, Value};

use super::offer_pins::offer_bytes;
use super::revisions::{self, RevisionKind};
use super::tools::stored_bytes;
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::TenantId;
use crate::domain::quota::{OwnQuotas, Quotas};

/// SQL for the number of keys that count in the quota: those that are neither revoked nor expired.
macro_rules! counted_keys {
    () => {
        "select count(*) from api_keys
         where tenant_id = $1 and revoked_at is null and (expires_at is null or expires_at > now())"
    };
}
pub(super) use counted_keys;

/// Usage of the deployment by one tenant. Streams are missing: each replica counts its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Usage {
    /// Number of servers.
    pub servers: i64,
    /// Number of tools of all servers.
    pub tools: i64,
    /// Bytes of the definitions of tools, prompts, resources and templates.
    pub definition_bytes: i64,
    /// Number of API keys that are neither revoked nor expired.
    pub keys: i64,
}

impl Store {
    /// Changes the quotas that the platform sets for a tenant. `null` removes a quota; names that are absent stay as
    /// stored. The caller has checked the patch.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn update_quotas(
        &self,
        tenant: TenantId,
        patch: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let (set, unset) = super::patches::split(patch);
        sqlx::query("update tenants set quotas = (quotas || $2) - $3 where tenant_id = $1")
            .bind(tenant.0)
            .bind(set)
            .bind(unset)
            .execute(&mut *tx)
            .await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await.map(drop)
    }

    /// Returns the usage of a tenant.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn usage(&self, tenant: TenantId) -> Result<Usage, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let usage = sqlx::query_as(concat!(
            "select (select count(*) from servers where tenant_id = $1 and removed_at is null) as servers,
                 (",
            counted_keys!(),
            ") as keys, count(*) as tools, ",
            stored_bytes!(),
            " + ",
            offer_bytes!(""),
            " as definition_bytes from tools where tenant_id = $1 and removed_at is null"
        ))
        .bind(tenant.0)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(usage)
    }
}

/// Returns the quotas that the platform has set for a tenant; [`StoreError::NotFound`] if the tenant is deleted.
pub(super) async fn own(tx: &mut Unit, tenant: TenantId) -> Result<OwnQuotas, StoreError> {
    let row: Option<String> =
        sqlx::query_scalar("select quotas::text from tenants where tenant_id = $1 and deleted_at is null")
            .bind(tenant.0)
            .fetch_optional(&mut **tx)
            .await?;
    row.map(OwnQuotas::from).ok_or(StoreError::NotFound)
}

/// Returns the effective quotas of a tenant: those set for it, and else the deployment's.
pub(super) async fn of(tx: &mut Unit, tenant: TenantId, deployment: &Quotas) -> Result<Quotas, StoreError> {
    Ok(own(tx, tenant).await?.resolve(deployment))
}

/// Refuses one more item if there are `max` already.
pub(super) fn check(count: i64, max: i64, what: &'static str) -> Result<(), StoreError> {
    if count < max { Ok(()) } else { Err(StoreError::Quota { what, max }) }
}
