//! Calls of a tenant by minute and outcome, counted in the database.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};

/// Numbers of the calls that began within one minute, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct MinuteCalls {
    /// Number of the minute, counted from the start of the range, which is minute 0.
    pub minute: i32,
    /// Number of calls that succeeded.
    pub succeeded: i64,
    /// Number of calls that ran and did not succeed: `upstream_error`, `error`, `unknown`.
    pub failed: i64,
    /// Number of calls that were not run: `blocked`, `rejected`.
    pub refused: i64,
    /// Number of calls that were cancelled or are under way.
    pub other: i64,
}

/// Query for the calls of both tables, by minute.
const MINUTES: &str = "
    select minute, count(*) filter (where status = 'success') as succeeded,
        count(*) filter (where status in ('upstream_error', 'error', 'unknown')) as failed,
        count(*) filter (where status in ('blocked', 'rejected')) as refused,
        count(*) filter (where status in ('cancelled', 'pending', 'waiting')) as other
    from (
        select floor(extract(epoch from started_at - $2) / 60)::int as minute, status from activity
        where tenant_id = $1 and started_at >= $2 and started_at < $3
            and ($4::uuid is null or coalesce(key_id, identity_id) = $4) and type in ('tool_call', 'direct_call')
        union all
        select floor(extract(epoch from started_at - $2) / 60)::int, status from activity_open
        where tenant_id = $1 and started_at >= $2 and started_at < $3
            and ($4::uuid is null or coalesce(key_id, identity_id) = $4) and type in ('tool_call', 'direct_call')
    ) as calls
    group by minute order by minute";

impl Store {
    /// Counts the calls that began from `start`, inclusive, to `end`, exclusive, by minute; minutes without calls are
    /// left out. `key` narrows them to one principal: a key by its id, or a person by the id of the identity.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_minutes(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        (start, end): (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<Vec<MinuteCalls>, StoreError> {
        let key: Option<Uuid> = key.map(|key| key.0);
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let minutes = sqlx::query_as(MINUTES).bind(tenant.0).bind(start).bind(end).bind(key);
        let minutes = minutes.fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(minutes)
    }
}
