//! Numbers of permission requests: those that wait, and those that end with a turn, beside the calls that end with it.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::{ConsentRow, principal};
use crate::domain::consent::ConsentState;
use crate::domain::id::{KeyId, TenantId};
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

/// Requests of a tenant to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingOf {
    /// Requests of all keys.
    All,
    /// Requests of one key; `None` for the bootstrap key.
    Key(Option<KeyId>),
}

/// Numbers of what one principal and session has open.
#[derive(Clone, Debug, FromRow)]
pub struct OpenRequests {
    /// Key that calls; nil for the bootstrap key.
    pub principal: Uuid,
    /// Session of the calls; `None` for those without.
    pub session_id: Option<String>,
    /// Number of requests that wait for a person or may run.
    pub requests: i64,
    /// Number of calls of other tiers than read whose record in the log has not ended.
    pub under_way: i64,
}

impl OpenRequests {
    /// Returns whether the end of a request's turn would end these, as `fence::begin` does.
    pub fn are_in_turn_of(&self, row: &ConsentRow) -> bool {
        let is_of = |session: &String| self.session_id.as_ref().is_none_or(|own| own == session);
        self.principal == row.principal && row.session_id.as_ref().is_none_or(is_of)
    }
}

impl PendingOf {
    /// Returns the principal whose requests count; `None` for all.
    fn principal(self) -> Option<Uuid> {
        match self {
            PendingOf::All => None,
            PendingOf::Key(key) => Some(principal(key)),
        }
    }
}

/// Request whose decision ended a turn.
#[derive(Clone, Debug, FromRow)]
pub struct TurnEnder {
    /// Id of the request.
    pub id: Uuid,
    /// Owner of the key of the person who decided; `None` for the bootstrap key.
    pub owner: Option<String>,
    /// Comment on the decision; `None` without one.
    pub comment: Option<String>,
    /// Time at which the turn was ended.
    pub at: Option<DateTime<Utc>>,
}

impl Store {
    /// Counts the requests of a tenant that wait for a person: those of one principal, or of all.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_pending_of(&self, tenant: TenantId, whose: PendingOf) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let count = sqlx::query_scalar(
            "select count(*) from consent_requests
             where tenant_id = $1 and ($2::uuid is null or principal = $2) and state = 'pending' and expires_at > now()",
        )
        .bind(tenant.0)
        .bind(whose.principal())
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(count)
    }

    /// Counts the other requests that ended with the turn of a request, by the decision about that one.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_ended_with(&self, tenant: TenantId, row: &ConsentRow) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // one transaction ended them all, so they have one time; none is open for more than a day
        let count = sqlx::query_scalar(
            "select count(*) from consent_requests
             where tenant_id = $1 and principal = $2 and ended_at = $3 and state = 'cancelled' and id <> $4
               and created_at > $3 - interval '2 days'",
        )
        .bind(tenant.0)
        .bind(row.principal)
        .bind(row.ended_at)
        .bind(row.id)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(count)
    }

    /// Returns the request whose decision ended the turn of another one, or cut its call off while that was under way; `None` if that is not known.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn ended_by(
        &self,
        tenant: TenantId,
        row: &ConsentRow,
    ) -> Result<Option<TurnEnder>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found = sqlx::query_as(
            "select id, decided_owner as owner, comment, ended_at as at from consent_requests
             where tenant_id = $1 and principal = $2 and decision = 'cancel_turn' and id <> $4
               and created_at > $3 - interval '2 days'
               and (ended_at = $3 or $5 and ended_at between $6 and $3
                   and (session_id is null or $7::text is null or session_id = $7))
             order by ended_at limit 1",
        )
        .bind(tenant.0)
        .bind(row.principal)
        .bind(row.ended_at)
        .bind(row.id)
        .bind(row.state == ConsentState::Unknown)
        .bind(row.decided_at)
        .bind(&row.session_id)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Counts the requests of these principals that the end of a turn would end now, and their calls that it would cut off, by principal and
    /// session.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_open(
        &self,
        tenant: TenantId,
        principals: &[Uuid],
    ) -> Result<Vec<OpenRequests>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let counts = sqlx::query_as(
            "select principal, session_id, count(*) filter (where not runs) as requests,
                 count(*) filter (where runs) as under_way
             from (
                 select principal, session_id, false as runs from consent_requests
                 where tenant_id = $1 and principal = any($2) and state in ('pending', 'granted') and expires_at > now()
                 union all
                 select coalesce(key_id, $3), session_id, true from activity_open
                 where tenant_id = $1 and coalesce(key_id, $3) = any($2) and status = 'pending'
                   and type in ('tool_call', 'direct_call') and tier is distinct from 'read'
             ) of_turn
             group by principal, session_id",
        )
        .bind(tenant.0)
        .bind(principals)
        .bind(principal(None))
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(counts)
    }

    /// Counts the requests that wait for a person, by tenant; tenants without any are left out. After `limit` requests of all
    /// tenants together the rest is not counted.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_pending_consent(&self, limit: i64) -> Result<Vec<(TenantId, i64)>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let counts: Vec<(Uuid, i64)> = sqlx::query_as(
            "select tenant_id, count(*)
             from (select tenant_id from consent_requests where state = 'pending' and expires_at > now() limit $1) open
             group by tenant_id",
        )
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(counts.into_iter().map(|(tenant, count)| (TenantId(tenant), count)).collect())
    }
}
