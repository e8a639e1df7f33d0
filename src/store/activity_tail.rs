//! Following the activity log in the order of commits.
//!
//! Records become visible when they are committed, not when they began, so neither time nor id tells which are new.
//! Their transactions do: below the oldest one that still runs (the horizon), nothing can appear any more. Reads up to
//! the horizon are complete, on every replica alike. A transaction that writes for long, anywhere in the same Postgres,
//! holds the horizon back.

use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};
use uuid::Uuid;

use super::activity_columns::columns_but;
use super::activity_read::{ActivityFilter, ActivityRow, push_filter};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Age in days up to which [`Store::tenants_with_activity`] finds a record, counted from its start.
const BEGAN_DAYS_MAX: i32 = 7;

/// Cursor in the order of commits: everything up to it has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commit {
    /// Id of the transaction.
    pub xid: u64,
    /// Id of the last record of the transaction that was seen; nil before the first.
    pub record: Uuid,
}

impl Commit {
    /// Returns the cursor before the first record of a transaction.
    pub fn before(xid: u64) -> Commit {
        Commit { xid, record: Uuid::nil() }
    }
}

/// Records after a cursor.
#[derive(Clone, Debug)]
pub struct Tail {
    /// Records with their cursors, in order.
    pub rows: Vec<(Commit, ActivityRow)>,
    /// Cursor for the next read: everything before it has been read.
    pub end: Commit,
    /// True if the limit was reached, so that more records may be ready.
    pub is_cut: bool,
}

struct TailRow(Commit, ActivityRow);

impl FromRow<'_, PgRow> for TailRow {
    fn from_row(row: &PgRow) -> Result<TailRow, sqlx::Error> {
        let record = ActivityRow::from_row(row)?;
        Ok(TailRow(Commit { xid: number(row.try_get("commit_xid")?), record: record.id }, record))
    }
}

/// Converts a transaction id: Postgres counts in 64 bits without a sign, but has no integer type for that.
fn number(xid: i64) -> u64 {
    u64::try_from(xid).unwrap_or(0)
}

impl Store {
    /// Returns the horizon: the first transaction of which not everything is visible yet.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn activity_horizon(&self) -> Result<u64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let sql = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        let horizon: i64 = sqlx::query_scalar(sql).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(number(horizon))
    }

    /// Returns a tenant's records after a cursor, in the order of their commits, at most `limit`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tail_activity(
        &self,
        tenant: TenantId,
        filter: &ActivityFilter,
        after: Commit,
        limit: i64,
    ) -> Result<Tail, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let sql = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        let horizon: i64 = sqlx::query_scalar(sql).fetch_one(&mut *tx).await?;
        let mut query = sqlx::QueryBuilder::new("select xid::text::bigint as commit_xid, ");
        query.push(columns_but(&[])).push(" from activity where tenant_id = ").push_bind(tenant.0);
        query.push(" and xid >= ").push_bind(after.xid.to_string()).push("::xid8");
        query.push(" and (xid, id) > (").push_bind(after.xid.to_string()).push("::xid8, ");
        query.push_bind(after.record).push(") and xid < ").push_bind(horizon.to_string()).push("::xid8");
        push_filter(&mut query, filter);
        query.push(" order by xid, id limit ").push_bind(limit);
        let rows: Vec<TailRow> = query.build_query_as().fetch_all(&mut *tx).await?;
        tx.commit().await?;
        let is_cut = i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
        let rows: Vec<(Commit, ActivityRow)> = rows.into_iter().map(|TailRow(at, row)| (at, row)).collect();
        let end = match rows.last() {
            Some((at, _)) if is_cut => *at,
            _ => after.max(Commit::before(number(horizon))),
        };
        Ok(Tail { rows, end, is_cut })
    }

    /// Returns the tenants that have records from their given transaction up to the horizon, and the horizon.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_with_activity(
        &self,
        since: &[(TenantId, u64)],
    ) -> Result<(Vec<TenantId>, u64), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<(i64, Option<Uuid>)> = sqlx::query_as(
            "with horizon as (select pg_snapshot_xmin(pg_current_snapshot()) as xid)
             select h.xid::text::bigint, w.tenant_id
             from horizon h left join unnest($1::uuid[], $2::text[]) as w (tenant_id, since) on exists (
                 select 1 from activity a where a.tenant_id = w.tenant_id and a.xid >= w.since::xid8
                     and a.xid < h.xid and a.started_at > now() - make_interval(days => $3))",
        )
        .bind(since.iter().map(|(tenant, _)| tenant.0).collect::<Vec<_>>())
        .bind(since.iter().map(|(_, xid)| xid.to_string()).collect::<Vec<_>>())
        .bind(BEGAN_DAYS_MAX)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let horizon = rows.first().map_or(0, |(xid, _)| number(*xid));
        Ok((rows.into_iter().filter_map(|(_, tenant)| tenant.map(TenantId)).collect(), horizon))
    }
}
