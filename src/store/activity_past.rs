//! Calls of a tenant's past that a policy decided on, counted by what their records keep of them.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Number of calls that are alike in what a policy looks at, as far as records keep it.
#[derive(Clone, Debug, FromRow)]
pub struct PastCalls {
    /// Name of the server.
    pub server: String,
    /// Name of the tool at its server.
    pub tool: String,
    /// Tier that the tool had.
    pub tier: Option<String>,
    /// Variant of the calls.
    pub tool_variant: Option<String>,
    /// Operation type, as declared or as implied by the variant.
    pub intent_type: Option<String>,
    /// Declared sensitivity.
    pub intent_sensitivity: Option<String>,
    /// Source of the calls.
    pub source: String,
    /// Key or person that called; `None` for the bootstrap key.
    pub principal: Option<Uuid>,
    /// Start of the quarter of an hour in which the calls began; the start of the range where times are not asked for.
    pub at: DateTime<Utc>,
    /// Number of calls.
    pub calls: i64,
    /// Number of calls in the range that a policy decided on, those of other groups included.
    pub total: i64,
}

/// Detail in which past calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastTimes {
    /// By the quarter of an hour in which they began.
    Quarters,
    /// Whenever they began.
    Ignored,
}

/// Query for the groups with the most calls.
const PAST: &str = "
    select server, tool, tier, tool_variant, intent_type, intent_sensitivity, source,
        coalesce(key_id, identity_id) as principal,
        case when $4 then date_bin('15 minutes', started_at, 'epoch') else $2 end as at,
        count(*) as calls, (sum(count(*)) over ())::bigint as total
    from activity
    where tenant_id = $1 and started_at >= $2 and started_at < $3 and type in ('tool_call', 'direct_call')
        and decision is not null and server is not null and tool is not null
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9
    order by calls desc, server, tool limit $5";

impl Store {
    /// Counts the calls that began from `start`, inclusive, to `end`, exclusive, and that a policy decided on, in at most
    /// `limit` groups: those with the most calls.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_past_calls(
        &self,
        tenant: TenantId,
        (start, end): (DateTime<Utc>, DateTime<Utc>),
        times: PastTimes,
        limit: i64,
    ) -> Result<Vec<PastCalls>, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let groups = sqlx::query_as(PAST).bind(tenant.0).bind(start).bind(end);
        let groups = groups.bind(times == PastTimes::Quarters).bind(limit).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok(groups)
    }
}
