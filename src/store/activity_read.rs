//! Reading the activity log: open and final records as one list, newest first, paged by key.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder};
use ulid::Ulid;
use uuid::Uuid;

use super::activity_write::activity_columns;
use super::tx::{Access, Lane};
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
    /// Only what is older than this record.
    pub before: Option<Ulid>,
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

impl Store {
    /// A page of records, newest first, open ones among them.
    pub async fn list_activity(
        &self,
        tenant: TenantId,
        filter: &ActivityFilter,
        limit: i64,
    ) -> Result<Vec<ActivityRow>, StoreError> {
        let mut tx = self.begin(Lane::Report, Access::TenantSnapshot(tenant)).await?;
        let mut rows: Vec<ActivityRow> = Vec::new();
        for table in [Table::Open, Table::Final] {
            let mut query = select(table, tenant, filter, limit);
            rows.extend(query.build_query_as::<ActivityRow>().fetch_all(&mut *tx).await?);
        }
        tx.commit().await?;
        rows.sort_by_key(|row| std::cmp::Reverse((row.started_at, row.id)));
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(rows)
    }

    /// One record by id; the id's own time finds its partition.
    pub async fn get_activity(&self, tenant: TenantId, id: Ulid) -> Result<ActivityRow, StoreError> {
        let mut tx = self.begin(Lane::Report, Access::TenantSnapshot(tenant)).await?;
        let mut found = None;
        for table in [Table::Final, Table::Open] {
            let mut query = QueryBuilder::<Postgres>::new("select ");
            query.push(activity_columns!()).push(" from ").push(table.name()).push(" where tenant_id = ");
            query.push_bind(tenant.0).push(" and started_at = ").push_bind(time_of(id));
            query.push(" and id = ").push_bind(Uuid::from(id));
            found = query.build_query_as::<ActivityRow>().fetch_optional(&mut *tx).await?;
            if found.is_some() {
                break;
            }
        }
        tx.commit().await?;
        found.ok_or(StoreError::NotFound)
    }
}

#[derive(Clone, Copy)]
enum Table {
    Open,
    Final,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Open => "activity_open",
            Table::Final => "activity",
        }
    }
}

fn select(table: Table, tenant: TenantId, filter: &ActivityFilter, limit: i64) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("select ");
    query.push(activity_columns!()).push(" from ").push(table.name());
    query.push(" where tenant_id = ").push_bind(tenant.0);
    push_filter(&mut query, filter);
    if let Some(before) = filter.before {
        query.push(" and (started_at, id) < (").push_bind(time_of(before)).push(", ");
        query.push_bind(Uuid::from(before)).push(")");
    }
    query.push(" order by started_at desc, id desc limit ").push_bind(limit);
    query
}

/// Adds the conditions of a filter, but for its page.
pub(super) fn push_filter(query: &mut QueryBuilder<Postgres>, filter: &ActivityFilter) {
    query.push(" and started_at >= ").push_bind(filter.start);
    query.push(" and started_at < ").push_bind(filter.end);
    let texts = [
        ("type", &filter.kind),
        ("source", &filter.source),
        ("server", &filter.server),
        ("tool", &filter.tool),
        ("status", &filter.status),
        ("intent_type", &filter.intent_type),
        ("owner", &filter.owner),
        ("session_id", &filter.session_id),
        ("request_id", &filter.request_id),
    ];
    for (column, value) in texts {
        if let Some(value) = value {
            query.push(" and ").push(column).push(" = ").push_bind(value.clone());
        }
    }
    // the partial index is used only by queries that repeat its condition
    if filter.status.as_deref().is_some_and(|status| status != "success") {
        query.push(" and status <> 'success'");
    }
    if let Some(key) = filter.key {
        query.push(" and key_id = ").push_bind(key.0);
    }
}
