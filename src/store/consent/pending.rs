//! Numbers of permission requests: those that wait, and those that end with a turn.

use std::collections::HashMap;

use uuid::Uuid;

use super::{ConsentRow, principal};
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

impl PendingOf {
    /// Returns the principal whose requests count; `None` for all.
    fn principal(self) -> Option<Uuid> {
        match self {
            PendingOf::All => None,
            PendingOf::Key(key) => Some(principal(key)),
        }
    }
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
        // one transaction ended them all, so they have one time
        let count = sqlx::query_scalar(
            "select count(*) from consent_requests
             where tenant_id = $1 and decided_by = $2 and decided_at = $3 and state = 'cancelled' and id <> $4",
        )
        .bind(tenant.0)
        .bind(row.decided_by)
        .bind(row.decided_at)
        .bind(row.id)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(count)
    }

    /// Counts for each of these requests the others that would end now with its turn; those without any are left out.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_in_turns(
        &self,
        tenant: TenantId,
        ids: &[Uuid],
    ) -> Result<HashMap<Uuid, i64>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // as `fence::begin` ends them
        let counts: Vec<(Uuid, i64)> = sqlx::query_as(
            "select r.id, count(*)
             from consent_requests r join consent_requests o on o.tenant_id = $1 and o.principal = r.principal and o.id <> r.id
             where r.tenant_id = $1 and r.id = any($2) and o.state in ('pending', 'granted') and o.expires_at > now()
               and (r.session_id is null or o.session_id is null or o.session_id = r.session_id)
             group by r.id",
        )
        .bind(tenant.0)
        .bind(ids)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(counts.into_iter().collect())
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
