//! Upkeep of permission requests: those whose time is over, calls whose replica died, and rows that are kept no longer.
//! No read depends on it.

use sqlx::{AssertSqlSafe, FromRow};
use uuid::Uuid;

use super::steps::{self, StepAuthor, StepTaken};
use crate::domain::consent::ConsentState;
use crate::domain::id::TenantId;
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError, Stored};

/// Tables whose rows go some time after their end.
pub const OLD_CONSENT_TABLES: [&str; 4] =
    ["client_replies", "consent_fences", "consent_grants", "consent_requests"];
/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;
/// Time after which a call that used a permission up counts as lost, in seconds: longer than any call takes.
const LOST_AFTER_S: f64 = 7200.0;

/// Request that a sweep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsentSwept {
    /// Tenant of the request.
    pub tenant: TenantId,
    /// Id of the request.
    pub id: Uuid,
    /// State of the request now.
    pub state: ConsentState,
}

/// Request that a sweep has ended, as stored.
#[derive(FromRow)]
struct SweptRow {
    tenant_id: Uuid,
    id: Uuid,
    server: String,
    tool: String,
    state: Stored<ConsentState>,
}

impl SweptRow {
    fn step(&self) -> StepTaken<'_> {
        StepTaken {
            tenant: TenantId(self.tenant_id),
            id: self.id,
            step: self.state.as_str(),
            names: (&self.server, &self.tool),
        }
    }
}

impl Store {
    /// Ends requests whose time is over, and those whose call was lost with its replica, silent for `silent_s` seconds.
    /// Returns them, at most `limit` of each.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn sweep_consent(
        &self,
        silent_s: f64,
        limit: i64,
        author: &StepAuthor,
    ) -> Result<Vec<ConsentSwept>, StoreError> {
        self.stepping(author, || self.try_sweep(silent_s, limit, author)).await
    }

    async fn try_sweep(
        &self,
        silent_s: f64,
        limit: i64,
        author: &StepAuthor,
    ) -> Result<Vec<ConsentSwept>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let mut rows: Vec<SweptRow> = sqlx::query_as(
            "update consent_requests c
             set state = case c.state when 'pending' then 'timed_out' else 'lapsed' end, ended_at = now()
             from (select tenant_id, id from consent_requests
                   where state in ('pending', 'granted') and expires_at <= now()
                   order by expires_at limit $1 for update skip locked) due
             where c.tenant_id = due.tenant_id and c.id = due.id
             returning c.tenant_id, c.id, c.server, c.tool, c.state",
        )
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        let lost: Vec<SweptRow> = sqlx::query_as(
            "update consent_requests c set state = 'unknown', ended_at = now()
             from (select tenant_id, id from consent_requests q
                   where state = 'consumed' and (consumed_at < now() - make_interval(secs => $2)
                       or kept_until <= now()
                       or kept_until is null and not exists (select from replicas r
                           where r.replica_id = q.replica_id and r.stopped_at is null
                             and r.heartbeat_at > now() - make_interval(secs => $1)))
                   order by consumed_at limit $3 for update skip locked) due
             where c.tenant_id = due.tenant_id and c.id = due.id
             returning c.tenant_id, c.id, c.server, c.tool, c.state",
        )
        .bind(silent_s)
        .bind(LOST_AFTER_S)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        rows.extend(lost);
        let steps: Vec<StepTaken<'_>> = rows.iter().map(SweptRow::step).collect();
        steps::write(&mut tx, author, &steps).await?;
        tx.commit().await?;
        let swept = |row: SweptRow| {
            Some(ConsentSwept { tenant: TenantId(row.tenant_id), id: row.id, state: row.state.known()? })
        };
        Ok(rows.into_iter().filter_map(swept).collect())
    }

    /// Deletes a batch of rows of one of [`OLD_CONSENT_TABLES`] that are kept no longer. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_old_consent(&self, table: &'static str) -> Result<bool, StoreError> {
        // the owner sees only rows that may go
        let statement = format!(
            "delete from {table} where (tenant_id, id) in (select tenant_id, id from {table} limit $1)"
        );
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        // the statement is built only from names in this file
        let deleted = sqlx::query(AssertSqlSafe(statement)).bind(BATCH).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }
}
