//! Expiry of the state `connected` for servers without a recent sign of life.

use uuid::Uuid;

use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::{ReplicaLease, Store, StoreError};
use crate::domain::id::TenantId;

impl Store {
    /// Marks a tenant's servers as disconnected that were last listed or pinged more than `silent_s` seconds ago.
    /// Returns the new revision; `None` if there are none.
    ///
    /// # Errors
    /// [`StoreError::LostLease`] if `lease` is no longer held, [`StoreError::NotFound`] if the tenant is deleted. Other
    /// errors come from the database.
    pub async fn wear_off(
        &self,
        tenant: TenantId,
        silent_s: f64,
        lease: &ReplicaLease,
    ) -> Result<Option<i64>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // waits for a listing that is being stored, and sees its result
        let silent: Vec<Uuid> = sqlx::query_scalar(
            "select server_id from servers
             where tenant_id = $1 and connection = 'connected' and enabled and removed_at is null
               and last_ok_at < now() - make_interval(secs => $2)
             order by server_id for update",
        )
        .bind(tenant.0)
        .bind(silent_s)
        .fetch_all(&mut *tx)
        .await?;
        if silent.is_empty() {
            tx.commit().await?;
            return Ok(None);
        }
        lease.check(&mut tx).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        sqlx::query(
            "update servers set connection = 'disconnected', rev = $3,
                 last_error = coalesce(last_error, 'no sign of life for ' || $4::bigint || ' s')
             where tenant_id = $1 and server_id = any($2)",
        )
        .bind(tenant.0)
        .bind(&silent)
        .bind(rev)
        .bind(silent_s as i64)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(Some)
    }
}
