//! What a tenant may take up of the deployment, and what it does.

use serde_json::{Map, Value};

use super::offer_pins::offer_bytes;
use super::revisions::{self, RevisionKind};
use super::tools::stored_bytes;
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::TenantId;
use crate::domain::quota::{OwnQuotas, Quotas};

/// What a tenant takes up; streams are each replica's own to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Usage {
    /// Servers.
    pub servers: i64,
    /// Tools of all servers.
    pub tools: i64,
    /// Bytes of their definitions.
    pub definition_bytes: i64,
    /// Keys that are not revoked.
    pub keys: i64,
}

impl Store {
    /// Changes what the platform says of a tenant: `null` takes a bound away, names that are absent stay as they are
    /// stored. The caller has checked the patch.
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

    /// What a tenant takes up.
    pub async fn usage(&self, tenant: TenantId) -> Result<Usage, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let usage = sqlx::query_as(concat!(
            "select (select count(*) from servers where tenant_id = $1 and removed_at is null) as servers,
                 (select count(*) from api_keys where tenant_id = $1 and revoked_at is null) as keys,
                 count(*) as tools, ",
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

/// What the platform says of a tenant.
pub(super) async fn own(tx: &mut Unit, tenant: TenantId) -> Result<OwnQuotas, StoreError> {
    let row: Option<String> =
        sqlx::query_scalar("select quotas::text from tenants where tenant_id = $1 and deleted_at is null")
            .bind(tenant.0)
            .fetch_optional(&mut **tx)
            .await?;
    row.map(OwnQuotas::from).ok_or(StoreError::NotFound)
}

/// The quotas that hold for a tenant.
pub(super) async fn of(tx: &mut Unit, tenant: TenantId, deployment: &Quotas) -> Result<Quotas, StoreError> {
    Ok(own(tx, tenant).await?.resolve(deployment))
}

/// Refuses one more of something of which there are `count` already.
pub(super) fn check(count: i64, max: i64, what: &'static str) -> Result<(), StoreError> {
    if count < max { Ok(()) } else { Err(StoreError::Quota { what, max }) }
}
