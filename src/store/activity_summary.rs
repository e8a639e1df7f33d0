//! What happened in a stretch of time, counted in the database.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::tx::{Access, Lane};
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};

/// Records of one kind, outcome and intent.
#[derive(Clone, Debug, FromRow)]
pub struct ActivityCount {
    /// `type`
    #[sqlx(rename = "type")]
    pub kind: String,
    /// `status`
    pub status: String,
    /// Operation type, declared or the variant's.
    pub intent_type: Option<String>,
    /// How many.
    pub count: i64,
}

/// The calls of one tool, or of all tools of a server.
#[derive(Clone, Debug, FromRow)]
pub struct CallSummary {
    /// The server's name.
    pub server: String,
    /// The tool's; `None` for a whole server.
    pub tool: Option<String>,
    /// Calls of any end.
    pub calls: i64,
    /// Calls that ran and did not succeed: `upstream_error`, `error`, `unknown`.
    pub failed: i64,
    /// Calls that were not run: `blocked`, `rejected`.
    pub refused: i64,
    /// The median of their durations, milliseconds.
    pub p50_ms: Option<f64>,
    /// Their 95th percentile, milliseconds.
    pub p95_ms: Option<f64>,
}

/// A summary.
#[derive(Clone, Debug)]
pub struct ActivitySummary {
    /// How many of what.
    pub counts: Vec<ActivityCount>,
    /// The tools that were called most.
    pub tools: Vec<CallSummary>,
    /// The servers that were called most.
    pub servers: Vec<CallSummary>,
}

/// Where it looks.
#[derive(Clone, Copy, Debug)]
pub struct SummaryScope {
    /// Only this key's.
    pub key: Option<KeyId>,
    /// From, inclusive.
    pub start: DateTime<Utc>,
    /// To, exclusive.
    pub end: DateTime<Utc>,
}

/// What is under way is counted as well; only what has ended has a duration.
const COUNTS: &str = "
    select type, status, intent_type, sum(n)::bigint as count from (
        select type, status, intent_type, count(*) as n from activity
        where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($4::uuid is null or key_id = $4)
        group by 1, 2, 3
        union all
        select type, status, intent_type, count(*) as n from activity_open
        where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($4::uuid is null or key_id = $4)
        group by 1, 2, 3
    ) as both_tables
    group by 1, 2, 3 order by 4 desc, 1, 2, 3";

const TOOLS: &str = "
    select server, tool, count(*) as calls,
        count(*) filter (where status in ('upstream_error', 'error', 'unknown')) as failed,
        count(*) filter (where status in ('blocked', 'rejected')) as refused,
        percentile_disc(0.5) within group (order by duration_ms) as p50_ms,
        percentile_disc(0.95) within group (order by duration_ms) as p95_ms
    from activity
    where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($4::uuid is null or key_id = $4)
        and type in ('tool_call', 'direct_call') and server is not null and tool is not null
    group by 1, 2 order by 3 desc, 1, 2 limit $5";

const SERVERS: &str = "
    select server, null::text as tool, count(*) as calls,
        count(*) filter (where status in ('upstream_error', 'error', 'unknown')) as failed,
        count(*) filter (where status in ('blocked', 'rejected')) as refused,
        percentile_disc(0.5) within group (order by duration_ms) as p50_ms,
        percentile_disc(0.95) within group (order by duration_ms) as p95_ms
    from activity
    where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($4::uuid is null or key_id = $4)
        and type in ('tool_call', 'direct_call') and server is not null
    group by 1 order by 3 desc, 1 limit $5";

impl Store {
    /// Counts a tenant's records; of tools and servers the `top` most called.
    pub async fn summarize_activity(
        &self,
        tenant: TenantId,
        scope: &SummaryScope,
        top: i64,
    ) -> Result<ActivitySummary, StoreError> {
        let mut tx = self.begin(Lane::Report, Access::TenantSnapshot(tenant)).await?;
        let key = scope.key.map(|key| key.0);
        let counts = sqlx::query_as(COUNTS)
            .bind(tenant.0)
            .bind(scope.start)
            .bind(scope.end)
            .bind(key)
            .fetch_all(&mut *tx)
            .await?;
        let mut tops = Vec::with_capacity(2);
        for query in [TOOLS, SERVERS] {
            let rows: Vec<CallSummary> = sqlx::query_as(query)
                .bind(tenant.0)
                .bind(scope.start)
                .bind(scope.end)
                .bind(key)
                .bind(top)
                .fetch_all(&mut *tx)
                .await?;
            tops.push(rows);
        }
        tx.commit().await?;
        let servers = tops.pop().unwrap_or_default();
        let tools = tops.pop().unwrap_or_default();
        Ok(ActivitySummary { counts, tools, servers })
    }
}
