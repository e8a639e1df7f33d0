//! Replies of clients on their way to the replica that waits for them, sealed. Nothing here can read them.

use uuid::Uuid;

use super::revisions::{self, ReplyNotice};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::{ReplicaId, TenantId};

/// Most replies of one tenant that are on their way; more are lost, as if the client had not replied.
const REPLIES_PER_TENANT_MAX: i64 = 1000;

/// Reply on its way.
#[derive(Debug)]
pub struct NewReply {
    /// Id of whoever waits for the reply.
    pub id: Uuid,
    /// Replica on which it waits.
    pub replica: ReplicaId,
    /// Envelope of the reply.
    pub sealed: Vec<u8>,
    /// Time for which the reply is kept, in seconds.
    pub keep_s: f64,
}

impl Store {
    /// Stores a reply, and tells its replica. Returns `false` if there is one for the same id, or if the tenant has too many.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn keep_reply(&self, tenant: TenantId, reply: &NewReply) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let kept = sqlx::query(
            "insert into client_replies (tenant_id, id, replica_id, sealed, expires_at)
             select $1, $2, $3, $4, now() + make_interval(secs => $5)
             where (select count(*) from client_replies where tenant_id = $1) < $6
             on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(reply.id)
        .bind(reply.replica.0)
        .bind(&reply.sealed)
        .bind(reply.keep_s)
        .bind(REPLIES_PER_TENANT_MAX)
        .execute(&mut *tx)
        .await?;
        let is_new = kept.rows_affected() == 1;
        if is_new {
            revisions::tell_reply(&mut tx, &ReplyNotice::kept(tenant, reply.replica, reply.id)).await?;
        }
        tx.commit().await?;
        Ok(is_new)
    }

    /// Takes a reply away and returns its envelope; `None` if there is none.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn take_reply(&self, tenant: TenantId, id: Uuid) -> Result<Option<Vec<u8>>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let sealed: Option<Vec<u8>> = sqlx::query_scalar(
            "delete from client_replies where tenant_id = $1 and id = $2 returning sealed",
        )
        .bind(tenant.0)
        .bind(id)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(sealed)
    }

    /// Returns the replies for a replica, at most `limit`, with their tenants.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn replies_for(
        &self,
        replica: ReplicaId,
        limit: i64,
    ) -> Result<Vec<(TenantId, Uuid)>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let rows: Vec<(Uuid, Uuid)> =
            sqlx::query_as("select tenant_id, id from client_replies where replica_id = $1 limit $2")
                .bind(replica.0)
                .bind(limit)
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|(tenant, id)| (TenantId(tenant), id)).collect())
    }

    /// Tells every replica that a client has ended its session.
    ///
    /// # Errors
    /// [`StoreError::Down`] while too many commits are unconfirmed. Other errors come from the database.
    pub async fn notify_session_end(&self, notice: &ReplyNotice) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(notice.tenant)).await?;
        revisions::tell_reply(&mut tx, notice).await?;
        Ok(tx.commit().await?)
    }
}
