//! Columns of the activity log that the gateway writes, and how the values of records are bound for them: whole columns as arrays, or
//! one record after the other.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgArguments;
use tokio::task::yield_now;
use uuid::Uuid;

use crate::domain::activity::Record;
use crate::domain::annotations::Tier;
use crate::domain::id::ReplicaId;
use crate::domain::operation::{OperationType, Variant};
use crate::domain::policy::Ruling;

/// Arguments of a statement of the log's writer, or why a value cannot be encoded. They are made apart from the statement, which would be copied with
/// each value.
pub(super) type LogArguments = Result<PgArguments, sqlx::Error>;

/// Values of a batch that are bound in one go: some tens of microseconds.
const VALUES_AT_ONCE: usize = 500;
/// Memory that is reserved for the values of one record, in bytes: what a small call has.
const RECORD_BYTES: usize = 1024;

/// Value that a record has for a column, by the column's type.
pub(super) enum LogColumn {
    /// `uuid`
    Uuid(fn(&Record) -> Option<Uuid>),
    /// `uuid` of the replica that writes.
    Replica,
    /// `timestamptz`
    Time(fn(&Record) -> DateTime<Utc>),
    /// `text` that the record has.
    Text(fn(&Record) -> Option<&str>),
    /// `text` that is made from the record.
    Shown(fn(&Record) -> Option<String>),
    /// `bool`
    Flag(fn(&Record) -> Option<bool>),
    /// `float8`
    Real(fn(&Record) -> Option<f64>),
    /// `int8`
    Whole(fn(&Record) -> Option<i64>),
}

/// Columns that the gateway writes, in the order of the arguments of `open_activity`.
pub(super) const WRITTEN: [(&str, LogColumn); 40] = [
    ("tenant_id", LogColumn::Uuid(|r| Some(r.tenant.0))),
    ("started_at", LogColumn::Time(Record::started_at)),
    ("id", LogColumn::Uuid(|r| Some(Uuid::from(r.id)))),
    ("replica_id", LogColumn::Replica),
    ("type", LogColumn::Text(|r| Some(r.kind.as_str()))),
    ("source", LogColumn::Text(|r| Some(r.source.as_str()))),
    ("server", LogColumn::Text(|r| r.server.as_deref())),
    ("tool", LogColumn::Text(|r| r.tool.as_deref())),
    ("tool_variant", LogColumn::Text(|r| r.tool_variant.map(Variant::as_str))),
    ("tier", LogColumn::Text(|r| r.tier.map(Tier::as_str))),
    ("intent_type", LogColumn::Text(|r| r.operation_type.map(OperationType::as_str))),
    ("intent_sensitivity", LogColumn::Text(|r| r.data_sensitivity.as_deref())),
    ("intent_reason", LogColumn::Text(|r| r.reason.as_deref())),
    ("intent_declared", LogColumn::Flag(|r| Some(r.intent_declared))),
    ("warning", LogColumn::Text(|r| r.warning.as_deref())),
    ("status", LogColumn::Text(|r| Some(r.status.as_str()))),
    ("error_code", LogColumn::Text(|r| r.error_code.as_deref())),
    ("error_message", LogColumn::Text(|r| r.error_message.as_deref())),
    ("decision", LogColumn::Text(|r| r.decision.map(Ruling::as_str))),
    ("rule", LogColumn::Text(|r| r.rule.as_deref())),
    ("consent_id", LogColumn::Uuid(|r| r.consent_id)),
    ("key_id", LogColumn::Uuid(|r| r.key_id().map(|key| key.0))),
    ("owner", LogColumn::Text(|r| r.owner.as_deref())),
    ("client_name", LogColumn::Text(|r| r.client_name.as_deref())),
    ("client_version", LogColumn::Text(|r| r.client_version.as_deref())),
    ("session_id", LogColumn::Text(|r| r.session_id.as_deref())),
    ("request_id", LogColumn::Text(|r| r.request_id.as_deref())),
    ("trace_id", LogColumn::Text(|r| r.trace_id.as_deref())),
    ("parent_id", LogColumn::Uuid(|r| r.parent_id.map(Uuid::from))),
    ("duration_ms", LogColumn::Real(|r| r.duration_ms)),
    ("upstream_ms", LogColumn::Real(|r| r.upstream_ms)),
    ("wait_ms", LogColumn::Real(|r| r.wait_ms)),
    ("request_bytes", LogColumn::Whole(|r| r.request_bytes)),
    ("response_bytes", LogColumn::Whole(|r| r.response_bytes)),
    ("arguments", LogColumn::Text(|r| r.arguments.as_deref())),
    ("response", LogColumn::Text(|r| r.response.as_deref())),
    ("truncated", LogColumn::Flag(|r| Some(r.truncated))),
    ("key_name", LogColumn::Text(|r| r.key_name.as_deref())),
    ("client_address", LogColumn::Shown(|r| r.client_address.map(|address| address.to_string()))),
    ("identity_id", LogColumn::Uuid(|r| r.identity_id().map(|identity| identity.0))),
];

/// Columns of which nothing is known before a call has ended. They are written with the final record only.
pub(super) const WRITTEN_AT_END: [(&str, LogColumn); 1] =
    [("has_ledger", LogColumn::Flag(|r| Some(r.has_ledger)))];

/// Columns whose statistics no plan can use: long texts, which queries at most search.
pub(super) const NOT_COMPARED: [&str; 5] =
    ["arguments", "response", "error_message", "warning", "intent_reason"];
/// Most values of any other column in the statistics of a day of the log. Postgres samples 300 rows for each of them, 30,000 with its default of 100,
/// whenever the day has grown by a tenth.
pub(super) const STATISTICS: i32 = 20;

/// Returns the columns that both tables of the log share, as a list for a statement, except these.
pub(super) fn columns_but(except: &[&str]) -> String {
    let names = finals().map(|(name, _)| name);
    names.filter(|name| !except.contains(name)).collect::<Vec<_>>().join(", ")
}

/// Returns the columns of a final record.
pub(super) fn finals() -> impl Iterator<Item = (&'static str, &'static LogColumn)> {
    WRITTEN.iter().chain(&WRITTEN_AT_END).map(|(name, column)| (*name, column))
}

impl LogColumn {
    /// Returns the column's type.
    pub(super) fn sql_type(&self) -> &'static str {
        match self {
            LogColumn::Uuid(_) | LogColumn::Replica => "uuid",
            LogColumn::Time(_) => "timestamptz",
            LogColumn::Text(_) | LogColumn::Shown(_) => "text",
            LogColumn::Flag(_) => "bool",
            LogColumn::Real(_) => "float8",
            LogColumn::Whole(_) => "int8",
        }
    }

    /// Binds the value of one record.
    fn bind_one(
        &self,
        arguments: &mut PgArguments,
        replica: ReplicaId,
        record: &Record,
    ) -> Result<(), BoxDynError> {
        match self {
            LogColumn::Uuid(value) => arguments.add(value(record)),
            LogColumn::Replica => arguments.add(replica.0),
            LogColumn::Time(value) => arguments.add(value(record)),
            LogColumn::Text(value) => arguments.add(value(record).map(clean)),
            LogColumn::Shown(value) => arguments.add(value(record)),
            LogColumn::Flag(value) => arguments.add(value(record)),
            LogColumn::Real(value) => arguments.add(value(record)),
            LogColumn::Whole(value) => arguments.add(value(record)),
        }
    }

    /// Binds the values of a batch as an array; the replica as itself.
    fn bind_all(
        &self,
        arguments: &mut PgArguments,
        replica: ReplicaId,
        batch: &[&Record],
    ) -> Result<(), BoxDynError> {
        match self {
            LogColumn::Uuid(value) => arguments.add(all(batch, value)),
            LogColumn::Replica => arguments.add(replica.0),
            LogColumn::Time(value) => arguments.add(all(batch, value)),
            LogColumn::Text(value) => {
                let texts = batch.iter().map(|record| value(record).map(clean));
                arguments.add(texts.collect::<Vec<Option<Cow<'_, str>>>>())
            }
            LogColumn::Shown(value) => arguments.add(all(batch, value)),
            LogColumn::Flag(value) => arguments.add(all(batch, value)),
            LogColumn::Real(value) => arguments.add(all(batch, value)),
            LogColumn::Whole(value) => arguments.add(all(batch, value)),
        }
    }
}

/// Returns the arguments of `open_activity` for a batch, column by column.
pub(super) async fn open_arguments(replica: ReplicaId, batch: &[&Record]) -> LogArguments {
    by_column(WRITTEN.iter().map(|(_, column)| column), replica, batch).await
}

/// Returns the arguments of a batch of final records, column by column.
pub(super) async fn final_arguments(replica: ReplicaId, batch: &[&Record]) -> LogArguments {
    by_column(finals().map(|(_, column)| column), replica, batch).await
}

/// Returns the arguments of final records, one record after the other.
pub(super) fn row_arguments(replica: ReplicaId, batch: &[&Record]) -> LogArguments {
    let mut arguments = PgArguments::default();
    let values = batch.len() * (WRITTEN.len() + WRITTEN_AT_END.len());
    arguments.reserve(values, batch.len() * RECORD_BYTES);
    for record in batch {
        for (_, column) in finals() {
            column.bind_one(&mut arguments, replica, record).map_err(sqlx::Error::Encode)?;
        }
    }
    Ok(arguments)
}

/// Returns the arguments of a batch, column by column. A large one takes over a millisecond, in which calls of the same thread would wait, so it
/// makes way for them in between.
async fn by_column(
    columns: impl Iterator<Item = &'static LogColumn>,
    replica: ReplicaId,
    batch: &[&Record],
) -> LogArguments {
    let mut arguments = PgArguments::default();
    let mut bound = 0;
    for column in columns {
        column.bind_all(&mut arguments, replica, batch).map_err(sqlx::Error::Encode)?;
        bound += batch.len();
        if bound >= VALUES_AT_ONCE {
            bound = 0;
            yield_now().await;
        }
    }
    Ok(arguments)
}

fn all<T>(batch: &[&Record], value: &fn(&Record) -> T) -> Vec<T> {
    batch.iter().map(|record| value(record)).collect()
}

/// Replaces U+0000, which Postgres texts cannot hold: one such byte would fail a whole batch.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}
