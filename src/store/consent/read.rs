//! Reads of permission requests.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{principal, state_now};
use crate::domain::consent::{ConsentDecision, ConsentState, LapseReason};
use crate::domain::id::{IdentityId, KeyId, TenantId};
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
            "id, principal, principal_root, owner, person, person_email, identity_id, creator, session_id, server_id, server, tool, operation_type, pin, digest,
             risk, signals, action, action_values, is_irreversible, arguments, was_cut, arguments_bytes, masked_bytes, agent_says, author_says,
             rule, assurance, options, channels, ttl_s, created_at, expires_at, decided_at, decided_by, decided_owner,
             decided_via, decision, comment, ended_at, told_at, expires_at > now() as is_in_time, ",
            state_now!(),
            " as state, case ",
            state_now!(),
            " when 'lapsed' then
                coalesce(lapse_reason, case when ended_at is null or ended_at >= expires_at then 'not_repeated' end)
             end as lapse_reason"
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
    /// First key of the line of rotations that this key belongs to; `None` in rows of an older release.
    pub principal_root: Option<Uuid>,
    /// Owner of the key at that time.
    pub owner: String,
    /// Owner for separation of duties at that time; `None` if nobody had named one.
    pub person: Option<String>,
    /// E-mail address of a person who had logged in; `None` for keys, and in rows of an older release.
    pub person_email: Option<String>,
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
    /// Length of the arguments, in bytes; `None` in rows of an older release.
    pub arguments_bytes: Option<i32>,
    /// Length of what is masked in their beginning, in bytes; `None` in rows of an older release.
    pub masked_bytes: Option<i32>,
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
    /// Reason why it lapsed; `None` in another state, and where an older release ended it.
    pub lapse_reason: Option<Stored<LapseReason>>,
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
    /// End of the request; `None` while it is open, and while its call runs.
    pub ended_at: Option<DateTime<Utc>>,
    /// Time at which the caller was told of a timeout or a lapse.
    pub told_at: Option<DateTime<Utc>>,
}

#[cfg(test)]
impl ConsentRow {
    /// Returns a pending request of an agent.
    pub fn example() -> ConsentRow {
        let at = DateTime::from_timestamp(1_795_525_800, 0).expect("a time");
        let options = [ConsentDecision::AllowOnce, ConsentDecision::RejectOnce, ConsentDecision::CancelTurn];
        ConsentRow {
            id: Uuid::from_u128(1),
            principal: Uuid::from_u128(99),
            principal_root: None,
            owner: "ci".to_owned(),
            person: None,
            person_email: None,
            identity_id: None,
            creator: None,
            session_id: None,
            server_id: Uuid::nil(),
            server: "github".to_owned(),
            tool: "delete_repo".to_owned(),
            operation_type: OperationType::Destructive.into(),
            pin: "p".to_owned(),
            digest: Vec::new(),
            risk: RiskLevel::Critical.into(),
            signals: vec!["irreversible".to_owned(), "of_a_later_release".to_owned()],
            action: "act".to_owned(),
            action_values: ["delete", "repo", "acme/demo", ""].map(str::to_owned).into(),
            is_irreversible: true,
            // digits that a number of this program would not keep, and an order that a map would not
            arguments: r#"{"repo":"acme/demo","a":12345678901234567890123,"token":"[hidden]"}"#.to_owned(),
            was_cut: false,
            arguments_bytes: None,
            masked_bytes: None,
            agent_says: Some("cleanup".to_owned()),
            author_says: None,
            rule: None,
            assurance: Assurance::Client.into(),
            options: options.map(Into::into).into(),
            channels: vec!["acp".to_owned()],
            ttl_s: 600,
            state: ConsentState::Pending.into(),
            lapse_reason: None,
            created_at: at,
            expires_at: at,
            is_in_time: true,
            decided_at: None,
            decided_by: None,
            decided_owner: None,
            decided_via: None,
            decision: None,
            comment: None,
            ended_at: None,
            told_at: None,
        }
    }
}

/// Person who may be asked to allow requests: what tells the requests that are put to them from others.
#[derive(Clone, Debug)]
pub struct ConsentDecider {
    /// Key of the person; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// First key of the line of rotations that this key belongs to; `None` for the bootstrap key.
    pub root: Option<KeyId>,
    /// Root of the key that created that one.
    pub creator: Option<KeyId>,
    /// Identity of the person.
    pub identity: Option<IdentityId>,
    /// Owner of the key, where somebody named one.
    pub owner: Option<String>,
    /// True if the role decides about requests of others.
    pub is_approver: bool,
    /// True if the key may allow its own requests of assurance `client`.
    pub is_in_band: bool,
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
    /// Key or person that decided it; `Some(None)` for the bootstrap key.
    pub decided_by: Option<Option<KeyId>>,
    /// Channel by which people are reached.
    pub channel: Option<&'static str>,
    /// Person who may allow the request. Owners are compared as they are written, so some requests too many may match.
    pub decider: Option<ConsentDecider>,
    /// Cursor: only requests that come behind the one with this id in the order.
    pub behind: Option<Uuid>,
    /// Ids of the requests.
    pub ids: Option<Vec<Uuid>>,
    /// Order of the requests.
    pub order: ConsentOrder,
}

/// Order of permission requests in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsentOrder {
    /// The newest first.
    #[default]
    Newest,
    /// The oldest first.
    Oldest,
    /// The highest risk first, and of those the oldest. `behind` does not count: there are no further pages.
    Riskiest,
    /// The one that was decided last first; those without a decision are left out.
    LastDecided,
}

impl Store {
    /// Returns a page of a tenant's permission requests, the newest first unless the filter says otherwise.
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
        if let Some(key) = filter.decided_by {
            query.push(" and decided_by = ").push_bind(principal(key));
        }
        if let Some(channel) = filter.channel {
            query.push(" and ").push_bind(channel).push(" = any(channels)");
        }
        if let Some(decider) = &filter.decider {
            may_allow(&mut query, decider);
        }
        if filter.order == ConsentOrder::LastDecided {
            query.push(" and decided_at is not null");
        }
        if let Some(behind) = filter.behind {
            match filter.order {
                ConsentOrder::Newest => query.push(" and id < ").push_bind(behind),
                ConsentOrder::Oldest => query.push(" and id > ").push_bind(behind),
                ConsentOrder::Riskiest => &mut query,
                ConsentOrder::LastDecided => query
                    .push(" and (decided_at, id) < (select decided_at, id from consent_requests where tenant_id = ")
                    .push_bind(tenant.0)
                    .push(" and id = ")
                    .push_bind(behind)
                    .push(")"),
            };
        }
        if let Some(ids) = &filter.ids {
            query.push(" and id = any(").push_bind(ids.clone()).push(")");
        }
        query.push(match filter.order {
            ConsentOrder::Newest => " order by id desc limit ",
            ConsentOrder::Oldest => " order by id limit ",
            ConsentOrder::Riskiest => {
                " order by array_position(array['critical', 'high', 'moderate', 'low'], risk), id limit "
            }
            ConsentOrder::LastDecided => " order by decided_at desc, id desc limit ",
        });
        query.push_bind(limit);
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

/// Adds the condition that a person may allow a request, as `domain::consent::assurance_of` has it.
fn may_allow(query: &mut QueryBuilder<Postgres>, decider: &ConsentDecider) {
    let (own, root) = (principal(decider.key), principal(decider.root));
    let creator = principal(decider.creator);
    query.push(" and case when principal = ").push_bind(own);
    query.push(" then assurance = 'client' and ").push_bind(decider.is_in_band);
    query.push(" when coalesce(principal_root, principal) = ").push_bind(root).push(" then false");
    query.push(" else ").push_bind(decider.is_approver);
    query.push(" and (assurance = 'client' or not (principal <> ").push_bind(Uuid::nil());
    query.push(" and coalesce(creator, ").push_bind(Uuid::nil()).push(") = ").push_bind(root);
    query
        .push(" or ")
        .push_bind(!own.is_nil())
        .push(" and coalesce(principal_root, principal) = ")
        .push_bind(creator);
    query.push(" or coalesce(identity_id = ").push_bind(decider.identity.map(|identity| identity.0));
    query.push(", false) or coalesce(person = ").push_bind(decider.owner.clone());
    query.push(", false))) end");
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
