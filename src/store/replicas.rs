//! Replicas and leases, all by the database's clock.

use chrono::{DateTime, Utc};

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::ReplicaId;

/// Age of the last heartbeat, in seconds, above which a replica holds no lease.
pub const HEARTBEAT_TTL_S: f64 = 10.0;

/// Age of the last heartbeat, in seconds, above which a replica is gone, and with it all that it had under way.
pub const REPLICA_GONE_AFTER_S: f64 = 30.0;

/// A lease as a replica took it. Every write under the lease checks it, since the lease may have moved by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLease {
    /// Name of the lease.
    pub name: &'static str,
    /// Replica that took the lease.
    pub replica: ReplicaId,
    /// Number that grows whenever the holder changes.
    pub epoch: i64,
}

impl ReplicaLease {
    /// Refuses to go on unless the lease is still held. It runs as a statement of its own, after the rows to be written
    /// are locked. A statement that waits for a lock sees the lease as it was before the wait.
    pub(super) async fn check(&self, tx: &mut Unit) -> Result<(), StoreError> {
        let held: Option<i32> =
            sqlx::query_scalar("select 1 from leases where name = $1 and replica_id = $2 and epoch = $3")
                .bind(self.name)
                .bind(self.replica.0)
                .bind(self.epoch)
                .fetch_optional(&mut **tx)
                .await?;
        held.map(drop).ok_or(StoreError::LostLease)
    }
}

/// Result of a heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// Number of live replicas, this one included.
    pub live: u32,
    /// Time of the heartbeat, by the database's clock.
    pub at: DateTime<Utc>,
}

impl Store {
    /// Writes this replica's heartbeat. The first one registers the replica with the space of its vectors. A row that
    /// was deleted meanwhile is written again.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn heartbeat(&self, replica: ReplicaId, space: Option<&str>) -> Result<Beat, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        // a statement does not see what it writes: this replica is counted separately
        let (others, at): (i64, DateTime<Utc>) = sqlx::query_as(
            "with beat as (
                 insert into replicas (replica_id, version, embedding_space) values ($1, $2, $4)
                 on conflict (replica_id) do update set heartbeat_at = now())
             select count(*), clock_timestamp() from replicas where replica_id <> $1 and stopped_at is null
                and heartbeat_at > now() - make_interval(secs => $3)",
        )
        .bind(replica.0)
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(HEARTBEAT_TTL_S)
        .bind(space)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Beat { live: u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1), at })
    }

    /// Records that a replica has stopped: its leases move on at once, and the next sweep closes its open records.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn replica_stopped(&self, replica: ReplicaId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        sqlx::query("update replicas set stopped_at = now() where replica_id = $1")
            .bind(replica.0)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    /// Returns whether a replica has stopped, or its last heartbeat is older than this.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn is_replica_gone(&self, replica: ReplicaId, after_s: f64) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let is_there: bool = sqlx::query_scalar(
            "select exists (select from replicas where replica_id = $1 and stopped_at is null
                and heartbeat_at > now() - make_interval(secs => $2))",
        )
        .bind(replica.0)
        .bind(after_s)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(!is_there)
    }

    /// Takes or keeps a lease; `None` while another live replica holds it.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn take_lease(
        &self,
        name: &'static str,
        replica: ReplicaId,
    ) -> Result<Option<ReplicaLease>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let epoch: Option<i64> = sqlx::query_scalar(
            "insert into leases (name, replica_id) values ($1, $2)
             on conflict (name) do update set
                 epoch = case when leases.replica_id = $2 then leases.epoch else leases.epoch + 1 end,
                 taken_at = case when leases.replica_id = $2 then leases.taken_at else now() end,
                 replica_id = $2
             where leases.replica_id = $2 or not exists (
                 select from replicas r where r.replica_id = leases.replica_id and r.stopped_at is null
                    and r.heartbeat_at > now() - make_interval(secs => $3))
             returning epoch",
        )
        .bind(name)
        .bind(replica.0)
        .bind(HEARTBEAT_TTL_S)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        self.noted.tried_lease(name, epoch.is_some());
        Ok(epoch.map(|epoch| ReplicaLease { name, replica, epoch }))
    }

    /// Deletes replicas that have been gone for a day and own no open record, and with them the spaces of their
    /// vectors. Returns how many.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn forget_replicas(&self) -> Result<u64, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let done = sqlx::query(
            "delete from replicas r where r.heartbeat_at < now() - interval '1 day'
                and not exists (select from activity_open o where o.replica_id = r.replica_id)",
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }
}
