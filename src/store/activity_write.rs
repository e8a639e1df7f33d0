//! Writes of the activity log, in batches of one statement each: open rows before dispatch, final rows after. They run
//! as `mcpproxy_system`, because one batch holds records of many tenants.

use std::borrow::Cow;
use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use ulid::Ulid;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::unit::{Statements, Unit};
use super::{Store, StoreError, Stored};
use crate::domain::activity::{Record, RecordKind, Status};
use crate::domain::annotations::Tier;
use crate::domain::id::ReplicaId;
use crate::domain::operation::Variant;

/// Columns that both tables of the log share, in the order of all statements.
macro_rules! activity_columns {
    () => {
        "tenant_id, started_at, id, replica_id, type, source, server, tool, tool_variant, tier, intent_type, \
         intent_sensitivity, intent_reason, intent_declared, warning, status, error_code, error_message, \
         decision, rule, consent_id, key_id, owner, client_name, client_version, session_id, request_id, \
         trace_id, parent_id, duration_ms, upstream_ms, wait_ms, request_bytes, response_bytes, arguments, \
         response, truncated"
    };
}
pub(super) use activity_columns;

/// Inserts a batch of final records; one that exists already is the same.
const INSERT_FINAL: &str = "
    insert into activity (tenant_id, started_at, id, replica_id, type, source, server, tool, tool_variant, tier,
        intent_type, intent_sensitivity, intent_reason, intent_declared, warning, status, error_code,
        error_message, key_id, owner, client_name, client_version, session_id, request_id, trace_id, parent_id,
        duration_ms, upstream_ms, wait_ms, request_bytes, response_bytes, arguments, response, truncated)
    select tenant_id, started_at, id, $4, type, source, server, tool, tool_variant, tier,
        intent_type, intent_sensitivity, intent_reason, intent_declared, warning, status, error_code,
        error_message, key_id, owner, client_name, client_version, session_id, request_id, trace_id, parent_id,
        duration_ms, upstream_ms, wait_ms, request_bytes, response_bytes, arguments, response, truncated
    from unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bool[], $15::text[], $16::text[],
        $17::text[], $18::text[], $19::uuid[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[],
        $25::text[], $26::uuid[], $27::float8[], $28::float8[], $29::float8[], $30::bigint[], $31::bigint[],
        $32::text[], $33::text[], $34::bool[])
    as f (tenant_id, started_at, id, type, source, server, tool, tool_variant, tier, intent_type,
        intent_sensitivity, intent_reason, intent_declared, warning, status, error_code, error_message, key_id,
        owner, client_name, client_version, session_id, request_id, trace_id, parent_id, duration_ms,
        upstream_ms, wait_ms, request_bytes, response_bytes, arguments, response, truncated)
    on conflict do nothing";

/// Commits open rows with one statement, one round trip and one commit: callers wait for it (see the migration of this
/// name).
const OPEN_ACTIVITY: &str = "select open_activity($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
     $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)";

/// End of an activity record.
#[derive(Clone, Debug)]
pub struct Close {
    /// The final record.
    pub record: Box<Record>,
    /// True if the record has a row in `activity_open`.
    pub opened: bool,
    /// Whether it is only counted, elsewhere: its open row is deleted, and it gets no final record.
    pub counted: bool,
}

impl Store {
    /// Commits open rows, all or none. Once this returns, no crash can lose them. Safe to repeat when the outcome of a
    /// commit is unknown.
    ///
    /// # Errors
    /// The database is out of reach or fails. The rows may be committed all the same.
    pub async fn open_activity(&self, replica: ReplicaId, records: &[&Record]) -> Result<(), StoreError> {
        match self.statements {
            // unnamed statements do not survive a pooler that changes the session between their two messages
            Statements::Unnamed => {
                let mut tx = self.begin(Lane::Commit, TxAccess::System).await?;
                bind(sqlx::query(OPEN_ACTIVITY), replica, records).execute(&mut *tx).await?;
                Ok(tx.commit().await?)
            }
            Statements::Kept => {
                let mut line = self.connect(Lane::Commit).await?;
                let opened = bind(sqlx::query(OPEN_ACTIVITY), replica, records).execute(&mut *line).await;
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
        bind(sqlx::query(INSERT_FINAL), replica, &finals).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }
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

/// Binds a batch column by column, in the order of both statements.
fn bind(query: Statement, replica: ReplicaId, records: &[&Record]) -> Statement {
    let (tenants, times, ids) = keys(records);
    let text = |pick: fn(&Record) -> Option<&str>| -> Vec<Option<Cow<'_, str>>> {
        records.iter().map(|record| pick(record).map(clean)).collect()
    };
    let number = |pick: fn(&Record) -> Option<f64>| records.iter().map(|r| pick(r)).collect::<Vec<_>>();
    let bytes = |pick: fn(&Record) -> Option<i64>| records.iter().map(|r| pick(r)).collect::<Vec<_>>();
    query
        .bind(tenants)
        .bind(times)
        .bind(ids)
        .bind(replica.0)
        .bind(text(|r| Some(r.kind.as_str())))
        .bind(text(|r| Some(r.source.as_str())))
        .bind(text(|r| r.server.as_deref()))
        .bind(text(|r| r.tool.as_deref()))
        .bind(text(|r| r.tool_variant.map(Variant::as_str)))
        .bind(text(|r| r.tier.map(Tier::as_str)))
        .bind(text(|r| r.operation_type.map(|o| o.as_str())))
        .bind(text(|r| r.data_sensitivity.as_deref()))
        .bind(text(|r| r.reason.as_deref()))
        .bind(records.iter().map(|r| r.intent_declared).collect::<Vec<_>>())
        .bind(text(|r| r.warning.as_deref()))
        .bind(text(|r| Some(r.status.as_str())))
        .bind(text(|r| r.error_code.as_deref()))
        .bind(text(|r| r.error_message.as_deref()))
        .bind(records.iter().map(|r| r.key.map(|key| key.0)).collect::<Vec<_>>())
        .bind(text(|r| r.owner.as_deref()))
        .bind(text(|r| r.client_name.as_deref()))
        .bind(text(|r| r.client_version.as_deref()))
        .bind(text(|r| r.session_id.as_deref()))
        .bind(text(|r| r.request_id.as_deref()))
        .bind(text(|r| r.trace_id.as_deref()))
        .bind(records.iter().map(|r| r.parent_id.map(Uuid::from)).collect::<Vec<_>>())
        .bind(number(|r| r.duration_ms))
        .bind(number(|r| r.upstream_ms))
        .bind(number(|r| r.wait_ms))
        .bind(bytes(|r| r.request_bytes))
        .bind(bytes(|r| r.response_bytes))
        .bind(text(|r| r.arguments.as_deref()))
        .bind(text(|r| r.response.as_deref()))
        .bind(records.iter().map(|r| r.truncated).collect::<Vec<_>>())
}

/// Replaces U+0000, which Postgres texts cannot hold: one such byte would fail a whole batch.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}
