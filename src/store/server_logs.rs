//! The logs of upstream servers: written in batches for all tenants, read by one.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

/// Lines kept of one server.
const LINES_MAX: i64 = 500;
/// Bytes kept of one server.
const BYTES_MAX: i64 = 128 * 1024;
/// Writers of all replicas take turns under this: whoever follows a log by its ids must not miss a late commit.
const TURN: i64 = 0x6c6f_6773;

/// A line to be written.
#[derive(Clone, Debug)]
pub struct NewLogLine {
    /// Whose server.
    pub tenant: TenantId,
    /// Which one.
    pub server: ServerId,
    /// When it came.
    pub at: DateTime<Utc>,
    /// `stderr` or `gateway`.
    pub source: &'static str,
    /// The line.
    pub line: String,
}

/// A line as stored.
#[derive(Clone, Debug, FromRow)]
pub struct StoredLogLine {
    /// Its place in the server's log.
    pub log_id: i64,
    /// When it came.
    pub at: DateTime<Utc>,
    /// `stderr` or `gateway`.
    pub source: String,
    /// The line.
    pub line: String,
}

impl Store {
    /// Writes lines, in their order, and drops the oldest of servers that have too many. Lines of servers that are
    /// removed are left out.
    pub async fn write_logs(&self, lines: &[NewLogLine]) -> Result<(), StoreError> {
        let tenants: Vec<Uuid> = lines.iter().map(|line| line.tenant.0).collect();
        let servers: Vec<Uuid> = lines.iter().map(|line| line.server.0).collect();
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        take_turn(&mut tx).await?;
        sqlx::query(
            "insert into server_logs (tenant_id, server_id, at, source, line)
             select l.tenant_id, l.server_id, l.at, l.source, l.line
             from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::text[], $5::text[])
                 with ordinality as l (tenant_id, server_id, at, source, line, place)
             join servers s on s.tenant_id = l.tenant_id and s.server_id = l.server_id
             where s.removed_at is null order by l.place",
        )
        .bind(&tenants)
        .bind(&servers)
        .bind(lines.iter().map(|line| line.at).collect::<Vec<_>>())
        .bind(lines.iter().map(|line| line.source).collect::<Vec<_>>())
        .bind(lines.iter().map(|line| line.line.as_str()).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "delete from server_logs l using (
                 select tenant_id, server_id, log_id, row_number() over newest as lines,
                     sum(octet_length(line)) over newest as bytes
                 from server_logs where (tenant_id, server_id) in (select * from unnest($1::uuid[], $2::uuid[]))
                 window newest as (partition by tenant_id, server_id order by log_id desc)
             ) as o
             where l.tenant_id = o.tenant_id and l.server_id = o.server_id and l.log_id = o.log_id
               and (o.lines > $3 or o.bytes > $4)",
        )
        .bind(&tenants)
        .bind(&servers)
        .bind(LINES_MAX)
        .bind(BYTES_MAX)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// The newest lines of a server's log, or with `after` the first ones since then; the oldest first.
    pub async fn read_log(
        &self,
        tenant: TenantId,
        server: ServerId,
        after: Option<i64>,
        limit: i64,
    ) -> Result<Vec<StoredLogLine>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let query = match after {
            Some(_) => {
                "select log_id, at, source, line from server_logs
                 where tenant_id = $1 and server_id = $2 and log_id > $3 order by log_id limit $4"
            }
            None => {
                "select * from (
                     select log_id, at, source, line from server_logs
                     where tenant_id = $1 and server_id = $2 and log_id > $3 order by log_id desc limit $4
                 ) as newest order by log_id"
            }
        };
        let lines = sqlx::query_as(query)
            .bind(tenant.0)
            .bind(server.0)
            .bind(after.unwrap_or_default())
            .bind(limit)
            .fetch_all(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(lines)
    }
}

/// Waits until nobody writes lines; until the end of this transaction nobody begins to.
pub(super) async fn take_turn(tx: &mut Unit) -> Result<(), StoreError> {
    sqlx::query("select pg_advisory_xact_lock($1)").bind(TURN).execute(&mut **tx).await?;
    Ok(())
}

/// Takes the log of a server that is being removed, by whoever has taken the turn of the writers.
pub(super) async fn remove(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from server_logs where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
