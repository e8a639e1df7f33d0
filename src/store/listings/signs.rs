//! Signs of life between listings, and failed listings.

use sqlx::FromRow;

use super::{Right, Tally};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::server::ConnectionState;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::{ReplicaLease, Store, StoreError, Stored};

/// Result of recording a failed listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureNoted {
    /// The failure is recorded. The value is the new revision; `None` if the server was disconnected before.
    Noted(Option<i64>),
    /// No data was written: another listing of the tools was stored meanwhile and may be newer.
    Overtaken,
}

/// Columns of a server's row that a failed listing needs.
#[derive(FromRow)]
struct Failing {
    connection: Stored<ConnectionState>,
    rev: i64,
    #[sqlx(flatten)]
    tally: Tally,
}

impl Store {
    /// Records a sign of life of a server that is connected at `version`. Returns false if it is not, since only a
    /// listing tells what the server offers now. Also returns false if the lease has moved.
    ///
    /// # Errors
    /// The database is out of reach or fails.
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

    /// Records a failed listing of the server at `version`; `tally` was read before the server was asked. A new
    /// revision is made only if the server was not disconnected before.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server has changed meanwhile, [`StoreError::LostLease`] if the lease has moved.
    /// The server keeps its state then. Other errors come from the database.
    pub async fn listing_failed(
        &self,
        tenant: TenantId,
        server: ServerId,
        (version, tally): (i64, &Tally),
        (error, wants_login): (&str, bool),
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
        let rev = match row.connection.known() {
            Some(ConnectionState::Disconnected) => None,
            _ => Some(revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?),
        };
        sqlx::query(
            "update servers set connection = 'disconnected', last_error = $3, wants_login = $6, rev = coalesce($4, rev),
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
        // a listing that a person asks for resets the damping
        .bind(*right == Right::Asked)
        .bind(wants_login)
        .execute(&mut *tx)
        .await?;
        match rev {
            Some(rev) => revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)?,
            None => tx.commit().await?,
        }
        Ok(FailureNoted::Noted(rev))
    }
}
