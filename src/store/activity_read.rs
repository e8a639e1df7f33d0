//! Reading the activity log: open and final records as one list, newest first, paged by key.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder};
use ulid::Ulid;
use uuid::Uuid;

use super::activity_write::activity_columns;
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::activity::time_of;
use crate::domain::id::{KeyId, TenantId};

/// Which records are wanted; every field that is `None` lets everything through.
#[derive(Clone, Debug)]
pub struct ActivityFilter {
    /// `type`
    pub kind: Option<String>,
    /// `source`
    pub source: Option<String>,
    /// Server name.
    pub server: Option<String>,
    /// Tool name without its server.
    pub tool: Option<String>,
    /// `status`
    pub status: Option<String>,
    /// Operation type, declared or the variant's.
    pub intent_type: Option<String>,
    /// Key id.
    pub key: Option<KeyId>,
    /// Owner.
    pub owner: Option<String>,
    /// Session id.
    pub session_id: Option<String>,
    /// Request id.
    pub request_id: Option<String>,
    /// From, inclusive.
    pub start: DateTime<Utc>,
    /// To, exclusive.
    pub end: DateTime<Utc>,
    /// Only what is older than the record with this start and id.
    pub before: Option<(DateTime<Utc>, Uuid)>,
}

/// One record as stored.
#[derive(Clone, Debug, FromRow)]
#[expect(missing_docs, reason = "the fields are the wire names of behaviour, section 9")]
pub struct ActivityRow {
    pub id: Uuid,
    pub started_at: DateTime<Utc>,
    #[sqlx(rename = "type")]
    pub kind: String,
    pub source: String,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub tool_variant: Option<String>,
    pub tier: Option<String>,
    pub intent_type: Option<String>,
    pub intent_sensitivity: Option<String>,
    pub intent_reason: Option<String>,
    pub intent_declared: bool,
    pub warning: Option<String>,
    pub status: String,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub decision: Option<String>,
    pub rule: Option<String>,
    pub consent_id: Option<Uuid>,
    pub key_id: Option<Uuid>,
    pub owner: Option<String>,
    pub client_name: Option<String>,
    pub client_version: Option<String>,
    pub session_id: Option<String>,
    pub request_id: Option<String>,
    pub trace_id: Option<String>,
    pub parent_id: Option<Uuid>,
    pub duration_ms: Option<f64>,
    pub upstream_ms: Option<f64>,
    pub wait_ms: Option<f64>,
    pub request_bytes: Option<i64>,
    pub response_bytes: Option<i64>,
    pub arguments: Option<String>,
    pub response: Option<String>,
    pub truncated: bool,
}

impl ActivityRow {
    /// Bytes of the texts that callers and servers fill, about what the record takes.
    pub fn text_bytes(&self) -> usize {
        let texts = [&self.arguments, &self.response, &self.error_message, &self.intent_reason, &self.tool];
        /// What the rest of a record takes.
        const REST_BYTES: usize = 300;
        REST_BYTES + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

impl ActivityFilter {
    /// Whether it asks for records with certain values, not only of a certain time.
    pub(super) fn has_values(&self) -> bool {
        let ActivityFilter { kind, source, server, tool, status, intent_type, key, owner, .. } = self;
        let texts =
            [kind, source, server, tool, status, intent_type, owner, &self.session_id, &self.request_id];
        key.is_some() || texts.into_iter().any(Option::is_some)
    }
}

impl Store {
    /// One record by id; the id's own time finds its partition.
    pub async fn get_activity(&self, tenant: TenantId, id: Ulid) -> Result<ActivityRow, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let mut found = None;
        for table in ["activity", "activity_open"] {
            let mut query = select(table, tenant);
            query
                .push(" and started_at = ")
                .push_bind(time_of(id))
                .push(" and id = ")
                .push_bind(Uuid::from(id));
            found = query.build_query_as::<ActivityRow>().fetch_optional(&mut *tx).await?;
            if found.is_some() {
                break;
            }
        }
        tx.commit().await?;
        found.ok_or(StoreError::NotFound)
    }
}

/// The columns of a tenant's records; conditions can be added.
pub(super) fn select(table: &'static str, tenant: TenantId) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("select ");
    query.push(activity_columns!()).push(" from ").push(table);
    query.push(" where tenant_id = ").push_bind(tenant.0);
    query
}

/// Only what is older than this record.
pub(super) fn push_before(query: &mut QueryBuilder<Postgres>, before: Option<(DateTime<Utc>, Uuid)>) {
    if let Some((started_at, id)) = before {
        query.push(" and (started_at, id) < (").push_bind(started_at).push(", ").push_bind(id).push(")");
    }
}

/// Adds the conditions of a filter, but for its page.
pub(super) fn push_filter(query: &mut QueryBuilder<Postgres>, filter: &ActivityFilter) {
    query.push(" and started_at >= ").push_bind(filter.start);
    query.push(" and started_at < ").push_bind(filter.end);
    push_values(query, filter);
}

/// Adds the values that a filter wants.
pub(super) fn push_values(query: &mut QueryBuilder<Postgres>, filter: &ActivityFilter) {
    // what nearly every record has is in no index; an index is used only by queries that repeat its condition
    let texts = [
        ("type", &filter.kind, "tool_call"),
        ("source", &filter.source, "mcp"),
        ("status", &filter.status, "success"),
        ("intent_type", &filter.intent_type, "read"),
        ("server", &filter.server, ""),
        ("tool", &filter.tool, ""),
        ("owner", &filter.owner, ""),
        ("session_id", &filter.session_id, ""),
        ("request_id", &filter.request_id, ""),
    ];
    for (column, value, common) in texts {
        let Some(value) = value else { continue };
        query.push(" and ").push(column).push(" = ").push_bind(value.clone());
        if !common.is_empty() && value != common {
            query.push(" and ").push(column).push(" <> '").push(common).push("'");
        }
    }
    if let Some(key) = filter.key {
        query.push(" and key_id = ").push_bind(key.0);
    }
}
