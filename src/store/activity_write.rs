//! Writes of the activity log, in batches of one transaction each: open rows before dispatch, final rows after. They run
//! as `mcpproxy_system`, because one batch holds records of many tenants.

use std::collections::HashSet;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::activity_columns::{LogColumn, WRITTEN, final_arguments, finals, open_arguments, row_arguments};
use super::tx::{Lane, TxAccess};
use super::unit::{Statements, Unit};
use super::{Store, StoreError, Stored};
use crate::domain::activity::{Record, RecordKind, Status};
use crate::domain::id::ReplicaId;

/// Final records that one statement inserts from arrays. Postgres takes its processor for some milliseconds for a whole batch at once, and
/// calls of a gateway on the same machine wait for it; between two statements they get it.
const ROWS_AT_ONCE: usize = 25;
/// Final records that one kept statement inserts, the most first: each number is a statement of its own. Such a statement fails on a record
/// that exists, since `on conflict do nothing` takes Postgres about a tenth more time.
const ROWS_KEPT: [usize; 3] = [16, 4, 1];

/// Inserts a batch of final records from an array for each column; records that exist are skipped.
static INSERT_FINAL: LazyLock<String> = LazyLock::new(|| {
    let batch = finals().zip(1..).filter(|((name, _), _)| *name != "replica_id");
    let (names, arrays): (Vec<&str>, Vec<String>) =
        batch.map(|((name, _), at)| (name, format!("${at}"))).unzip();
    let (names, arrays) = (names.join(", "), arrays.join(", "));
    format!(
        "insert into activity (replica_id, {names}) select $4, {names} from unnest({arrays}) as f ({names})
         on conflict do nothing"
    )
});

/// Inserts as many final records as [`ROWS_KEPT`] says, value by value. Postgres takes less time for a record than with arrays, and
/// a third of the time for a single one, but more to read such a statement, which is sent once to a connection.
static INSERT_ROWS: LazyLock<[String; ROWS_KEPT.len()]> = LazyLock::new(|| {
    let names = finals().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    ROWS_KEPT.map(|rows| {
        let mut at = 0;
        let mut value = |(_, column): (&str, &LogColumn)| {
            at += 1;
            format!("${at}::{}", column.sql_type())
        };
        let mut row = || format!("({})", finals().map(&mut value).collect::<Vec<_>>().join(", "));
        let rows = (0..rows).map(|_| row()).collect::<Vec<_>>().join(", ");
        format!("insert into activity ({names}) values {rows}")
    })
});

/// Commits open rows with one statement, one round trip and one commit: callers wait for it (see the migration of this
/// name).
static OPEN_ACTIVITY: LazyLock<String> = LazyLock::new(|| {
    let arguments = (1..=WRITTEN.len()).map(|at| format!("${at}"));
    format!("select open_activity({})", arguments.collect::<Vec<_>>().join(", "))
});

/// Way in which final records are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Insert {
    /// By value. A record that exists fails the statement.
    Values,
    /// From arrays. Records that exist are skipped.
    Missing,
}

/// End of an activity record.
#[derive(Clone, Debug)]
pub struct Close {
    /// The final record.
    pub record: Box<Record>,
    /// True if the record has a row in `activity_open`.
    pub opened: bool,
    /// True if the attempt is counted instead of recorded: its open row is deleted, and it gets no final record.
    pub counted: bool,
}

impl Store {
    /// Commits open rows, all or none. Once this returns, no crash can lose them. Safe to repeat when the outcome of a
    /// commit is unknown.
    ///
    /// # Errors
    /// The database is out of reach or fails. The rows may be committed all the same.
    pub async fn open_activity(&self, replica: ReplicaId, records: &[&Record]) -> Result<(), StoreError> {
        let open = sqlx::query_with(OPEN_ACTIVITY.as_str(), open_arguments(replica, records).await?);
        match self.statements {
            // unnamed statements do not survive a pooler that changes the session between their two messages
            Statements::Unnamed => {
                let mut tx = self.begin(Lane::Commit, TxAccess::System).await?;
                open.execute(&mut *tx).await?;
                Ok(tx.commit().await?)
            }
            Statements::Kept => {
                let mut line = self.connect(Lane::Commit).await?;
                let opened = open.execute(&mut *line).await;
                Ok(self.end(line, opened).map(drop)?)
            }
        }
    }

    /// Commits final records, all or none: deletes their open rows and inserts the immutable ones. A record without an
    /// open row was closed as `unknown` by another replica; its true end becomes a `late_outcome` with `parent_id`.
    /// Safe to repeat when the outcome of a commit is unknown.
    ///
    /// # Errors
    /// The database is out of reach or fails, or has no partition for a day ([`StoreError::is_missing_partition`]). The
    /// records may be committed all the same.
    pub async fn close_activity(&self, replica: ReplicaId, closes: &[Close]) -> Result<(), StoreError> {
        let insert = match self.statements {
            Statements::Kept => Insert::Values,
            Statements::Unnamed => Insert::Missing,
        };
        match self.try_close(replica, closes, insert).await {
            // an earlier try was committed although its answer was lost, or another replica has just closed the record
            Err(error) if insert == Insert::Values && error.is_duplicate() => {
                tracing::debug!("a record of a batch exists already; the batch is written again");
                self.try_close(replica, closes, Insert::Missing).await
            }
            tried => tried,
        }
    }

    async fn try_close(
        &self,
        replica: ReplicaId,
        closes: &[Close],
        insert: Insert,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Commit, TxAccess::System).await?;
        let opened: Vec<&Record> =
            closes.iter().filter(|close| close.opened).map(|close| close.record.as_ref()).collect();
        let mut late: Vec<Record> = Vec::new();
        let mut skip: HashSet<Uuid> = HashSet::new();
        if !opened.is_empty() {
            let deleted = delete_open(&mut tx, &opened).await?;
            let missing: Vec<&Record> =
                opened.into_iter().filter(|record| !deleted.contains(&Uuid::from(record.id))).collect();
            if !missing.is_empty() {
                for (id, status) in closed_before(&mut tx, &missing).await? {
                    skip.insert(id);
                    if status == Status::Unknown {
                        late.extend(
                            missing.iter().filter(|r| Uuid::from(r.id) == id).map(|r| late_outcome(r)),
                        );
                    }
                }
            }
        }
        let finals: Vec<&Record> = closes
            .iter()
            .filter(|close| !close.counted)
            .map(|close| close.record.as_ref())
            .filter(|record| !skip.contains(&Uuid::from(record.id)))
            .chain(&late)
            .collect();
        match insert {
            Insert::Values => insert_rows(&mut tx, replica, &finals).await?,
            Insert::Missing => {
                for piece in finals.chunks(ROWS_AT_ONCE) {
                    let arguments = final_arguments(replica, piece).await?;
                    let insert = sqlx::query_with(INSERT_FINAL.as_str(), arguments);
                    insert.execute(&mut *tx).await?;
                }
            }
        }
        Ok(tx.commit().await?)
    }
}

/// Inserts final records with kept statements.
async fn insert_rows(tx: &mut Unit, replica: ReplicaId, mut records: &[&Record]) -> Result<(), StoreError> {
    for (rows, statement) in ROWS_KEPT.iter().zip(INSERT_ROWS.iter()) {
        while let Some((piece, rest)) = records.split_at_checked(*rows) {
            let insert = sqlx::query_with(statement.as_str(), row_arguments(replica, piece)?);
            insert.execute(&mut **tx).await?;
            records = rest;
        }
    }
    Ok(())
}

/// Inserts final records within a transaction of another role, as its last statements: the log is written as
/// `mcpproxy_system`.
pub(super) async fn insert_within(
    tx: &mut Unit,
    replica: ReplicaId,
    records: &[&Record],
) -> Result<(), StoreError> {
    if records.is_empty() {
        return Ok(());
    }
    sqlx::query("select set_config('role', 'mcpproxy_system', true)").execute(&mut **tx).await?;
    let insert = sqlx::query_with(INSERT_FINAL.as_str(), final_arguments(replica, records).await?);
    insert.execute(&mut **tx).await?;
    Ok(())
}

fn late_outcome(record: &Record) -> Record {
    let mut late = record.clone();
    late.parent_id = Some(record.id);
    // from the parent's id, so that a close that is repeated adds nothing
    late.id = Ulid::from_parts(record.id.timestamp_ms(), record.id.random() ^ 1);
    late.kind = RecordKind::LateOutcome;
    late
}

async fn delete_open(tx: &mut Unit, records: &[&Record]) -> Result<HashSet<Uuid>, StoreError> {
    let (tenants, times, ids) = keys(records);
    let deleted: Vec<Uuid> = sqlx::query_scalar(
        "delete from activity_open o using unnest($1::uuid[], $2::timestamptz[], $3::uuid[])
             as k (tenant_id, started_at, id)
         where o.tenant_id = k.tenant_id and o.started_at = k.started_at and o.id = k.id returning o.id",
    )
    .bind(tenants)
    .bind(times)
    .bind(ids)
    .fetch_all(&mut **tx)
    .await?;
    Ok(deleted.into_iter().collect())
}

async fn closed_before(
    tx: &mut Unit,
    records: &[&Record],
) -> Result<Vec<(Uuid, Stored<Status>)>, StoreError> {
    let (tenants, times, ids) = keys(records);
    let rows = sqlx::query_as(
        "select a.id, a.status from activity a join unnest($1::uuid[], $2::timestamptz[], $3::uuid[])
             as k (tenant_id, started_at, id)
         on a.tenant_id = k.tenant_id and a.started_at = k.started_at and a.id = k.id",
    )
    .bind(tenants)
    .bind(times)
    .bind(ids)
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows)
}

fn keys(records: &[&Record]) -> (Vec<Uuid>, Vec<DateTime<Utc>>, Vec<Uuid>) {
    (
        records.iter().map(|record| record.tenant.0).collect(),
        records.iter().map(|record| record.started_at()).collect(),
        records.iter().map(|record| Uuid::from(record.id)).collect(),
    )
}
