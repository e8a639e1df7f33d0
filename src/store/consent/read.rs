//! Reads of permission requests.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{principal, state_now};
use crate::domain::consent::{ConsentDecision, ConsentState};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::operation::OperationType;
use crate::domain::policy::Assurance;
use crate::domain::risk::RiskLevel;
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, Stored};

/// Columns of a request, with its state now.
macro_rules! request_columns {
    () => {
        concat!(
            "id, principal, owner, person, identity_id, creator, session_id, server_id, server, tool, operation_type, pin, digest,
             risk, signals, action, action_values, is_irreversible, arguments, was_cut, agent_says, author_says,
             rule, assurance, options, channels, ttl_s, created_at, expires_at, decided_at, decided_by, decided_owner,
             decided_via, decision, comment, told_at, expires_at > now() as is_in_time, ",
            state_now!(),
            " as state"
        )
    };
}
pub(super) use request_columns;

/// Permission request, as stored.
#[derive(Clone, Debug, FromRow)]
pub struct ConsentRow {
    /// Id of the request.
    pub id: Uuid,
    /// Key that calls; nil for the bootstrap key.
    pub principal: Uuid,
    /// Owner of the key at that time.
    pub owner: String,
    /// Owner for separation of duties at that time; `None` if nobody had named one.
    pub person: Option<String>,
    /// Identity for separation of duties at that time; `None` if nobody had named one.
    pub identity_id: Option<Uuid>,
    /// Key that had created the calling one; `None` for the bootstrap key.
    pub creator: Option<Uuid>,
    /// Session of the call.
    pub session_id: Option<String>,
    /// Server of the tool.
    pub server_id: Uuid,
    /// Name of that server.
    pub server: String,
    /// The tool's own name.
    pub tool: String,
    /// Operation type of the variant.
    pub operation_type: Stored<OperationType>,
    /// Pin of the definition.
    pub pin: String,
    /// Keyed digest of the call.
    pub digest: Vec<u8>,
    /// Level of risk.
    pub risk: Stored<RiskLevel>,
    /// Signals of risk.
    pub signals: Vec<String>,
    /// Key of the action.
    pub action: String,
    /// Values of the action, masked.
    pub action_values: Vec<String>,
    /// True if the action cannot be undone.
    pub is_irreversible: bool,
    /// Masked beginning of the arguments.
    pub arguments: String,
    /// True if the arguments are longer than what is shown.
    pub was_cut: bool,
    /// The caller's words.
    pub agent_says: Option<String>,
    /// The words of the tool's author.
    pub author_says: Option<String>,
    /// Rule that asks; `None` if the mode does.
    pub rule: Option<String>,
    /// Kind of answer that is needed.
    pub assurance: Stored<Assurance>,
    /// Decisions on offer.
    pub options: Vec<Stored<ConsentDecision>>,
    /// Channels by which people are reached.
    pub channels: Vec<String>,
    /// Time that the ask was given, in seconds.
    pub ttl_s: i32,
    /// State now.
    pub state: Stored<ConsentState>,
    /// Time of the ask.
    pub created_at: DateTime<Utc>,
    /// End of the time for an answer and for the repeated call.
    pub expires_at: DateTime<Utc>,
    /// True while that time is not over.
    pub is_in_time: bool,
    /// Time of the decision.
    pub decided_at: Option<DateTime<Utc>>,
    /// Key that decided; nil for the bootstrap key.
    pub decided_by: Option<Uuid>,
    /// Owner of that key.
    pub decided_owner: Option<String>,
    /// Way by which it was decided.
    pub decided_via: Option<String>,
    /// Decision.
    pub decision: Option<Stored<ConsentDecision>>,
    /// Comment on the decision.
    pub comment: Option<String>,
    /// Time at which the caller was told of a timeout or a lapse.
    pub told_at: Option<DateTime<Utc>>,
}

/// Filter of permission requests; a field that is `None` matches every request.
#[derive(Clone, Debug, Default)]
pub struct ConsentFilter {
    /// State of the request now.
    pub state: Option<ConsentState>,
    /// Name of the tool at its server.
    pub tool: Option<String>,
    /// Name of the server.
    pub server: Option<String>,
    /// Key that calls; `Some(None)` for the bootstrap key.
    pub key: Option<Option<KeyId>>,
    /// Owner of that key.
    pub owner: Option<String>,
    /// Level of risk.
    pub risk: Option<RiskLevel>,
    /// Cursor: only requests older than the one with this id.
    pub before: Option<Uuid>,
    /// Ids of the requests.
    pub ids: Option<Vec<Uuid>>,
}

impl Store {
    /// Returns a page of a tenant's permission requests, the newest first.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_consent(
        &self,
        tenant: TenantId,
        filter: &ConsentFilter,
        limit: i64,
    ) -> Result<Vec<ConsentRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let mut query = QueryBuilder::<Postgres>::new(concat!(
            "select ",
            request_columns!(),
            " from consent_requests where tenant_id = "
        ));
        query.push_bind(tenant.0);
        if filter.state == Some(ConsentState::Pending) {
            // in this form the index of what is pending serves, however much has ended
            query.push(" and state = 'pending' and expires_at > now()");
        } else if let Some(state) = filter.state {
            query.push(concat!(" and ", state_now!(), " = ")).push_bind(state.as_str());
        }
        for (column, value) in [
            ("tool", filter.tool.as_deref()),
            ("server", filter.server.as_deref()),
            ("owner", filter.owner.as_deref()),
            ("risk", filter.risk.map(RiskLevel::as_str)),
        ] {
            if let Some(value) = value {
                query.push(" and ").push(column).push(" = ").push_bind(value.to_owned());
            }
        }
        if let Some(key) = filter.key {
            query.push(" and principal = ").push_bind(principal(key));
        }
        if let Some(before) = filter.before {
            query.push(" and id < ").push_bind(before);
        }
        if let Some(ids) = &filter.ids {
            query.push(" and id = any(").push_bind(ids.clone()).push(")");
        }
        query.push(" order by id desc limit ").push_bind(limit);
        let rows = query.build_query_as().fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Returns a permission request.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a request. Other errors come from the database.
    pub async fn get_consent(&self, tenant: TenantId, id: Uuid) -> Result<ConsentRow, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let row = find(&mut tx, tenant, id).await?;
        tx.commit().await?;
        row.ok_or(StoreError::NotFound)
    }
}

/// Returns a permission request within a transaction.
pub(super) async fn find(
    tx: &mut Unit,
    tenant: TenantId,
    id: Uuid,
) -> Result<Option<ConsentRow>, StoreError> {
    let row = sqlx::query_as(concat!(
        "select ",
        request_columns!(),
        " from consent_requests where tenant_id = $1 and id = $2"
    ))
    .bind(tenant.0)
    .bind(id)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(row)
}
