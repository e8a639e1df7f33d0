//! Signs of life between listings, and listings that failed.

use sqlx::FromRow;

use super::{Right, Tally};
use crate::domain::id::{ServerId, TenantId};
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::{ReplicaLease, Store, StoreError};

/// What became of a listing that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureNoted {
    /// It stands at the server; with the new revision, if that made one.
    Noted(Option<i64>),
    /// Nothing was written: somebody else has listed the server meanwhile, and may have asked it later.
    Overtaken,
}

/// A server's row, as far as a failure needs it.
#[derive(FromRow)]
struct Failing {
    connection: String,
    rev: i64,
    #[sqlx(flatten)]
    tally: Tally,
}

impl Store {
    /// Notes that a connected server, as of `version`, has given a sign of life. False if it is not (any more)
    /// connected at that version, since only a listing can tell what it offers now, and what of that has no room; or
    /// if the lease is another's.
    pub async fn server_answered(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
        lease: &ReplicaLease,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let noted = sqlx::query(
            "update servers set last_ok_at = now()
             where tenant_id = $1 and server_id = $2 and version = $3 and connection = 'connected'
               and enabled and removed_at is null
               and exists (select from leases where name = $4 and replica_id = $5 and epoch = $6)",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(version)
        .bind(lease.name)
        .bind(lease.replica.0)
        .bind(lease.epoch)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(noted.rows_affected() > 0)
    }

    /// Notes a failed listing of the server as of `version`, before which this tally was read; a new revision only when
    /// the connection's state changes.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server has changed meanwhile, and [`StoreError::LostLease`]: it keeps its state.
    pub async fn listing_failed(
        &self,
        tenant: TenantId,
        server: ServerId,
        (version, tally): (i64, &Tally),
        error: &str,
        right: &Right,
    ) -> Result<FailureNoted, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let row: Option<Failing> = sqlx::query_as(
            "select connection, rev, tools_listings, prompts_listings, resources_listings, templates_listings
             from servers
             where tenant_id = $1 and server_id = $2 and removed_at is null and version = $3 for update",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(version)
        .fetch_optional(&mut *tx)
        .await?;
        let row = row.ok_or(StoreError::Conflict("the server changed while it was being listed"))?;
        right.check(&mut tx, row.rev).await?;
        if row.tally.has_newer_tools(tally) {
            tx.rollback().await?;
            return Ok(FailureNoted::Overtaken);
        }
        let rev = match row.connection.as_str() {
            "disconnected" => None,
            _ => Some(revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?),
        };
        sqlx::query(
            "update servers set connection = 'disconnected', last_error = $3, rev = coalesce($4, rev),
                 tools_listings = tools_listings + 1,
                 held_until = case when $5 then null else held_until end,
                 holds = case when $5 then 0 else holds end,
                 returned_at = case when $5 then null else returned_at end,
                 returned_before = case when $5 then null else returned_before end
             where tenant_id = $1 and server_id = $2",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(error)
        .bind(rev)
        // whoever asks for a listing begins anew
        .bind(*right == Right::Asked)
        .execute(&mut *tx)
        .await?;
        match rev {
            Some(rev) => revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)?,
            None => tx.commit().await?,
        }
        Ok(FailureNoted::Noted(rev))
    }
}
