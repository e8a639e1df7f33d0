//! Reads of the activity log: open and final records as one list, newest first, paged by key.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder};
use ulid::Ulid;
use uuid::Uuid;

use super::activity_columns::columns_but;
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::activity::{RecordKind, Source, Status, time_of};
use crate::domain::annotations::Tier;
use crate::domain::id::{IdentityId, KeyId, TenantId};
use crate::domain::operation::OperationType;
use crate::domain::policy::Ruling;

/// Filter of activity records; a field that is `None` matches every record.
#[derive(Clone, Debug)]
pub struct ActivityFilter {
    /// Type of the record (`type`).
    pub kind: Option<RecordKind>,
    /// Source of the record (`source`).
    pub source: Option<Source>,
    /// Name of the server.
    pub server: Option<String>,
    /// Name of the tool at its server.
    pub tool: Option<String>,
    /// Tier that the tool had at the time of the call.
    pub tier: Option<Tier>,
    /// True for only those calls whose tool was not of tier read: what may have changed something.
    pub not_read: bool,
    /// Status of the record (`status`).
    pub status: Option<Status>,
    /// Operation type, as declared or as implied by the tool variant.
    pub intent_type: Option<OperationType>,
    /// Principal: id of an API key, or of a person's identity.
    pub key: Option<KeyId>,
    /// Id of the caller's identity.
    pub identity: Option<IdentityId>,
    /// Name that the API key had at the time.
    pub key_name: Option<String>,
    /// Owner of the API key.
    pub owner: Option<String>,
    /// Address of the client.
    pub client_address: Option<IpAddr>,
    /// Id of the session.
    pub session_id: Option<String>,
    /// Id of the request.
    pub request_id: Option<String>,
    /// Decision of the policy.
    pub decision: Option<Ruling>,
    /// Id of the permission request.
    pub consent_id: Option<Uuid>,
    /// Text in the previews of arguments or result, in any case; only for [`Store::search_activity`], which bounds its time.
    pub contains: Option<String>,
    /// Earliest start of a record, inclusive.
    pub start: DateTime<Utc>,
    /// Latest start of a record, exclusive.
    pub end: DateTime<Utc>,
    /// Cursor: only records older than the one with this start and id.
    pub before: Option<(DateTime<Utc>, Uuid)>,
}

/// An activity record as stored.
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
    pub key_name: Option<String>,
    pub identity_id: Option<Uuid>,
    pub owner: Option<String>,
    pub client_name: Option<String>,
    pub client_version: Option<String>,
    pub client_address: Option<String>,
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
    pub has_ledger: Option<bool>,
}

impl ActivityRow {
    /// Returns about how many bytes the record takes, by the texts that callers and servers fill.
    pub fn text_bytes(&self) -> usize {
        let texts = [&self.arguments, &self.response, &self.error_message, &self.intent_reason, &self.tool];
        /// Estimate for the rest of a record.
        const REST_BYTES: usize = 300;
        REST_BYTES + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

impl ActivityFilter {
    /// Returns columns, the values that they must have, and the values that their indexes leave out as the most common.
    fn texts(&self) -> [(&'static str, Option<&str>, &'static str); 12] {
        [
            ("type", self.kind.map(RecordKind::as_str), RecordKind::ToolCall.as_str()),
            ("source", self.source.map(Source::as_str), Source::Mcp.as_str()),
            ("status", self.status.map(Status::as_str), Status::Success.as_str()),
            ("tier", self.tier.map(Tier::as_str), Tier::Read.as_str()),
            ("intent_type", self.intent_type.map(OperationType::as_str), OperationType::Read.as_str()),
            ("decision", self.decision.map(Ruling::as_str), Ruling::Allowed.as_str()),
            ("server", self.server.as_deref(), ""),
            ("tool", self.tool.as_deref(), ""),
            ("key_name", self.key_name.as_deref(), ""),
            ("owner", self.owner.as_deref(), ""),
            ("session_id", self.session_id.as_deref(), ""),
            ("request_id", self.request_id.as_deref(), ""),
        ]
    }

    /// Returns whether the filter selects records by values, not only by time.
    pub(super) fn has_values(&self) -> bool {
        self.key.is_some()
            || self.identity.is_some()
            || self.not_read
            || self.client_address.is_some()
            || self.consent_id.is_some()
            || self.texts().into_iter().any(|(_, value, _)| value.is_some())
    }
}

impl Store {
    /// Returns one record. The id contains its start, which finds the partition.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant has no such record. Other errors come from the database.
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

/// Begins a query for a tenant's records, to which conditions can be added.
pub(super) fn select(table: &'static str, tenant: TenantId) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("select ");
    query.push(columns_but(&[])).push(" from ").push(table);
    query.push(" where tenant_id = ").push_bind(tenant.0);
    query
}

/// Restricts a query to records older than the cursor.
pub(super) fn push_before(query: &mut QueryBuilder<Postgres>, before: Option<(DateTime<Utc>, Uuid)>) {
    if let Some((started_at, id)) = before {
        query.push(" and (started_at, id) < (").push_bind(started_at).push(", ").push_bind(id).push(")");
    }
}

/// Adds the conditions of a filter, except for its cursor.
pub(super) fn push_filter(query: &mut QueryBuilder<Postgres>, filter: &ActivityFilter) {
    query.push(" and started_at >= ").push_bind(filter.start);
    query.push(" and started_at < ").push_bind(filter.end);
    push_values(query, filter);
}

/// Adds the conditions of a filter on values.
pub(super) fn push_values(query: &mut QueryBuilder<Postgres>, filter: &ActivityFilter) {
    // Postgres uses an index that leaves out the most common value only for queries that repeat its condition
    for (column, value, common) in filter.texts() {
        let Some(value) = value else { continue };
        query.push(" and ").push(column).push(" = ").push_bind(value.to_owned());
        if !common.is_empty() && value != common {
            query.push(" and ").push(column).push(" <> '").push(common).push("'");
        }
    }
    if filter.not_read {
        query.push(" and tier <> 'read'");
    }
    if let Some(key) = filter.key {
        // records of a key whose person an administrator named have that identity too, and are the key's
        let column = if key.identity().is_some() { "key_id is null and identity_id" } else { "key_id" };
        query.push(" and ").push(column).push(" = ").push_bind(key.0);
    }
    if let Some(identity) = filter.identity {
        query.push(" and identity_id = ").push_bind(identity.0);
    }
    if let Some(address) = filter.client_address {
        query.push(" and client_address = ").push_bind(address.to_string());
    }
    if let Some(text) = &filter.contains {
        query.push(" and (strpos(lower(arguments), lower(").push_bind(text.clone());
        query.push(")) > 0 or strpos(lower(response), lower(").push_bind(text.clone()).push(")) > 0)");
    }
    if let Some(consent) = filter.consent_id {
        query.push(" and consent_id = ").push_bind(consent);
    }
}
