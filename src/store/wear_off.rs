//! Expiry of the state `connected` for servers without a recent sign of life.

use uuid::Uuid;

use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::{ReplicaLease, Store, StoreError};
use crate::domain::id::TenantId;

/// Time without a sign of life after which a server does not count as connected, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// Time for servers that are listed often.
    pub usual_s: f64,
    /// Time for web pages, which are fetched rarely.
    pub pages_s: f64,
}

impl Store {
    /// Marks a tenant's servers as disconnected that were last listed or pinged longer ago than `silence` allows. Returns the
    /// new revision; `None` if there are none.
    ///
    /// # Errors
    /// [`StoreError::LostLease`] if `lease` is no longer held, [`StoreError::NotFound`] if the tenant is deleted. Other
    /// errors come from the database.
    pub async fn wear_off(
        &self,
        tenant: TenantId,
        silence: Silence,
        lease: &ReplicaLease,
    ) -> Result<Option<i64>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // waits for a listing that is being stored, and sees its result
        let silent: Vec<Uuid> = sqlx::query_scalar(
            "select server_id from servers
             where tenant_id = $1 and connection = 'connected' and enabled and removed_at is null
               and last_ok_at < now() - make_interval(secs => case when kind = 'web_page' then $3 else $2 end)
             order by server_id for update",
        )
        .bind(tenant.0)
        .bind(silence.usual_s)
        .bind(silence.pages_s)
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
                 last_error = coalesce(last_error, 'no sign of life for '
                     || case when kind = 'web_page' then $5::bigint else $4::bigint end || ' s')
             where tenant_id = $1 and server_id = any($2)",
        )
        .bind(tenant.0)
        .bind(&silent)
        .bind(rev)
        .bind(silence.usual_s as i64)
        .bind(silence.pages_s as i64)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(Some)
    }
}
