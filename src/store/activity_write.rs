//! Writes of the activity log, in batches of one transaction each: open rows before dispatch, final rows after. They run
//! as `mcpproxy_system`, because one batch holds records of many tenants.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use tokio::task::yield_now;
use ulid::Ulid;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::unit::{Statements, Unit};
use super::{Store, StoreError, Stored};
use crate::domain::activity::{Record, RecordKind, Status};
use crate::domain::annotations::Tier;
use crate::domain::id::ReplicaId;
use crate::domain::operation::{OperationType, Variant};
use crate::domain::policy::Ruling;

/// Function that binds the values of a column for a batch of records.
type Bind = fn(Statement, ReplicaId, &[&Record]) -> Statement;

/// Values of a batch that are bound in one go: some tens of microseconds.
const VALUES_AT_ONCE: usize = 500;

/// Final records that one statement inserts. Postgres takes its processor for some milliseconds for a whole batch at once, and calls of a
/// gateway on the same machine wait for it; between two statements they get it.
const ROWS_AT_ONCE: usize = 25;

/// Columns that the gateway writes, each with the function that binds it, in the order of the arguments of
/// `open_activity`.
const WRITTEN: [(&str, Bind); 40] = [
    ("tenant_id", |q, _, batch| q.bind(all(batch, |r| r.tenant.0))),
    ("started_at", |q, _, batch| q.bind(all(batch, Record::started_at))),
    ("id", |q, _, batch| q.bind(all(batch, |r| Uuid::from(r.id)))),
    ("replica_id", |q, replica, _| q.bind(replica.0)),
    ("type", |q, _, batch| q.bind(texts(batch, |r| Some(r.kind.as_str())))),
    ("source", |q, _, batch| q.bind(texts(batch, |r| Some(r.source.as_str())))),
    ("server", |q, _, batch| q.bind(texts(batch, |r| r.server.as_deref()))),
    ("tool", |q, _, batch| q.bind(texts(batch, |r| r.tool.as_deref()))),
    ("tool_variant", |q, _, batch| q.bind(texts(batch, |r| r.tool_variant.map(Variant::as_str)))),
    ("tier", |q, _, batch| q.bind(texts(batch, |r| r.tier.map(Tier::as_str)))),
    ("intent_type", |q, _, batch| q.bind(texts(batch, |r| r.operation_type.map(OperationType::as_str)))),
    ("intent_sensitivity", |q, _, batch| q.bind(texts(batch, |r| r.data_sensitivity.as_deref()))),
    ("intent_reason", |q, _, batch| q.bind(texts(batch, |r| r.reason.as_deref()))),
    ("intent_declared", |q, _, batch| q.bind(all(batch, |r| r.intent_declared))),
    ("warning", |q, _, batch| q.bind(texts(batch, |r| r.warning.as_deref()))),
    ("status", |q, _, batch| q.bind(texts(batch, |r| Some(r.status.as_str())))),
    ("error_code", |q, _, batch| q.bind(texts(batch, |r| r.error_code.as_deref()))),
    ("error_message", |q, _, batch| q.bind(texts(batch, |r| r.error_message.as_deref()))),
    ("decision", |q, _, batch| q.bind(texts(batch, |r| r.decision.map(Ruling::as_str)))),
    ("rule", |q, _, batch| q.bind(texts(batch, |r| r.rule.as_deref()))),
    ("consent_id", |q, _, batch| q.bind(all(batch, |r| r.consent_id))),
    ("key_id", |q, _, batch| q.bind(all(batch, |r| r.key_id().map(|key| key.0)))),
    ("owner", |q, _, batch| q.bind(texts(batch, |r| r.owner.as_deref()))),
    ("client_name", |q, _, batch| q.bind(texts(batch, |r| r.client_name.as_deref()))),
    ("client_version", |q, _, batch| q.bind(texts(batch, |r| r.client_version.as_deref()))),
    ("session_id", |q, _, batch| q.bind(texts(batch, |r| r.session_id.as_deref()))),
    ("request_id", |q, _, batch| q.bind(texts(batch, |r| r.request_id.as_deref()))),
    ("trace_id", |q, _, batch| q.bind(texts(batch, |r| r.trace_id.as_deref()))),
    ("parent_id", |q, _, batch| q.bind(all(batch, |r| r.parent_id.map(Uuid::from)))),
    ("duration_ms", |q, _, batch| q.bind(all(batch, |r| r.duration_ms))),
    ("upstream_ms", |q, _, batch| q.bind(all(batch, |r| r.upstream_ms))),
    ("wait_ms", |q, _, batch| q.bind(all(batch, |r| r.wait_ms))),
    ("request_bytes", |q, _, batch| q.bind(all(batch, |r| r.request_bytes))),
    ("response_bytes", |q, _, batch| q.bind(all(batch, |r| r.response_bytes))),
    ("arguments", |q, _, batch| q.bind(texts(batch, |r| r.arguments.as_deref()))),
    ("response", |q, _, batch| q.bind(texts(batch, |r| r.response.as_deref()))),
    ("truncated", |q, _, batch| q.bind(all(batch, |r| r.truncated))),
    ("key_name", |q, _, batch| q.bind(texts(batch, |r| r.key_name.as_deref()))),
    ("client_address", |q, _, batch| {
        q.bind(all(batch, |r| r.client_address.map(|address| address.to_string())))
    }),
    ("identity_id", |q, _, batch| q.bind(all(batch, |r| r.identity_id().map(|identity| identity.0)))),
];

/// Columns of which nothing is known before a call has ended. They are written with the final record only.
const WRITTEN_AT_END: [(&str, Bind); 1] =
    [("has_ledger", |q, _, batch| q.bind(all(batch, |r| r.has_ledger)))];

/// Returns the columns that both tables of the log share, as a list for a statement, except these.
pub(super) fn columns_but(except: &[&str]) -> String {
    let names = WRITTEN.iter().chain(&WRITTEN_AT_END).map(|(name, _)| *name);
    names.filter(|name| !except.contains(name)).collect::<Vec<_>>().join(", ")
}

/// Inserts a batch of final records; one that exists already is the same.
static INSERT_FINAL: LazyLock<String> = LazyLock::new(|| {
    let batch = WRITTEN.iter().chain(&WRITTEN_AT_END).zip(1..).filter(|((name, _), _)| *name != "replica_id");
    let (names, arrays): (Vec<&str>, Vec<String>) =
        batch.map(|((name, _), at)| (name, format!("${at}"))).unzip();
    let (names, arrays) = (names.join(", "), arrays.join(", "));
    format!(
        "insert into activity (replica_id, {names}) select $4, {names} from unnest({arrays}) as f ({names})
         on conflict do nothing"
    )
});

/// Commits open rows with one statement, one round trip and one commit: callers wait for it (see the migration of this
/// name).
static OPEN_ACTIVITY: LazyLock<String> = LazyLock::new(|| {
    let arguments = (1..=WRITTEN.len()).map(|at| format!("${at}"));
    format!("select open_activity({})", arguments.collect::<Vec<_>>().join(", "))
});

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
        let open = bind_open(sqlx::query(OPEN_ACTIVITY.as_str()), replica, records).await;
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
        for piece in finals.chunks(ROWS_AT_ONCE) {
            let insert = bind_final(sqlx::query(INSERT_FINAL.as_str()), replica, piece).await;
            insert.execute(&mut *tx).await?;
        }
        Ok(tx.commit().await?)
    }
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
    let insert = bind_final(sqlx::query(INSERT_FINAL.as_str()), replica, records).await;
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

type Statement = Query<'static, Postgres, PgArguments>;

/// Binds a batch for `open_activity`.
async fn bind_open(query: Statement, replica: ReplicaId, records: &[&Record]) -> Statement {
    bind_columns(query, &WRITTEN, replica, records).await
}

/// Binds a batch of final records as [`bind_open`] does, with what is known at their end.
async fn bind_final(query: Statement, replica: ReplicaId, records: &[&Record]) -> Statement {
    let query = bind_open(query, replica, records).await;
    bind_columns(query, &WRITTEN_AT_END, replica, records).await
}

/// Binds a batch column by column, in the order of both statements. A large one takes over a millisecond, in which calls of the same
/// thread would wait, so it makes way for them in between.
async fn bind_columns(
    mut query: Statement,
    columns: &[(&str, Bind)],
    replica: ReplicaId,
    records: &[&Record],
) -> Statement {
    let mut bound = 0;
    for (_, bind) in columns {
        query = bind(query, replica, records);
        bound += records.len();
        if bound >= VALUES_AT_ONCE {
            bound = 0;
            yield_now().await;
        }
    }
    query
}

fn all<T>(records: &[&Record], value: fn(&Record) -> T) -> Vec<T> {
    records.iter().map(|record| value(record)).collect()
}

fn texts<'r>(records: &[&'r Record], text: fn(&Record) -> Option<&str>) -> Vec<Option<Cow<'r, str>>> {
    records.iter().map(|record| text(record).map(clean)).collect()
}

/// Replaces U+0000, which Postgres texts cannot hold: one such byte would fail a whole batch.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}
