//! Logs of upstream servers: written in batches for all tenants, read by one.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

/// Most lines kept per server.
const LINES_MAX: i64 = 500;
/// Most bytes kept per server.
const BYTES_MAX: i64 = 128 * 1024;
/// Advisory lock that serializes the writers of all replicas: readers follow a log by its ids and must not miss a late
/// commit.
const TURN: i64 = 0x6c6f_6773;

/// A log line to be written.
#[derive(Clone, Debug)]
pub struct NewLogLine {
    /// Tenant of the server.
    pub tenant: TenantId,
    /// Server that the line belongs to.
    pub server: ServerId,
    /// Time of the line.
    pub at: DateTime<Utc>,
    /// Source of the line: `stderr` or `gateway`.
    pub source: &'static str,
    /// Text of the line.
    pub line: String,
}

/// A log line as stored.
#[derive(Clone, Debug, FromRow)]
pub struct StoredLogLine {
    /// Id of the line; ids give the order in a server's log.
    pub log_id: i64,
    /// Time of the line.
    pub at: DateTime<Utc>,
    /// Source of the line: `stderr` or `gateway`.
    pub source: String,
    /// Text of the line.
    pub line: String,
}

impl Store {
    /// Writes lines in their order, and deletes the oldest lines of servers that have too many. Lines of removed
    /// servers are left out.
    ///
    /// # Errors
    /// The database is out of reach or fails.
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

    /// Returns the newest lines of a server's log, or with `after` the first ones behind that id; the oldest first.
    ///
    /// # Errors
    /// The database is out of reach or fails.
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

/// Waits until no replica writes log lines, and keeps all from writing until this transaction ends.
pub(super) async fn take_turn(tx: &mut Unit) -> Result<(), StoreError> {
    sqlx::query("select pg_advisory_xact_lock($1)").bind(TURN).execute(&mut **tx).await?;
    Ok(())
}

/// Deletes the log of a server that is being removed. The caller holds the lock of [`take_turn`].
pub(super) async fn remove(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from server_logs where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
