//! Calls of the last hour, for overviews that many look at.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::Log;
use crate::domain::id::{KeyId, TenantId};
use crate::gateway::error::GatewayError;
use crate::gateway::kept::Owned;
use crate::gateway::recent::Recent;
use crate::gateway::tenants::Caller;
use crate::store::{ActivitySummary, MinuteCalls, SummaryScope};

/// Time for which the calls of an hour are not counted again.
const AGE_MAX: Duration = Duration::from_secs(15);
/// Most tenants and keys whose hour is kept.
const ENTRIES_MAX: usize = 400;

/// Tenant, and the key to whose records a caller is narrowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HourKey(TenantId, Option<KeyId>);

impl Owned for HourKey {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

/// Calls of an hour.
#[derive(Debug)]
pub struct CountedHour {
    /// Start of the hour.
    pub start: DateTime<Utc>,
    /// Numbers of calls by minute and outcome.
    pub minutes: Vec<MinuteCalls>,
    /// Summary of the hour.
    pub summary: ActivitySummary,
}

/// Hours that were counted a moment ago.
#[derive(Debug)]
pub(super) struct Hours(Recent<HourKey, Arc<CountedHour>>);

impl Default for Hours {
    fn default() -> Hours {
        Hours(Recent::new(AGE_MAX, ENTRIES_MAX))
    }
}

impl Log {
    /// Counts the calls of an hour, from `start`, inclusive, to `end`, exclusive; or returns the count of a range that ended a few
    /// seconds before. A key that may see only its own records gets only those counted.
    ///
    /// # Errors
    /// As [`Log::summarize_activity`].
    pub async fn recent_hour(
        &self,
        caller: &Caller,
        (start, end): (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<Arc<CountedHour>, GatewayError> {
        let key = HourKey(caller.tenant_id(), caller.own_records()?);
        let count = async {
            let minutes = self.count_minutes(caller, (start, end)).await?;
            let scope = SummaryScope { key: None, tier: None, not_read: false, start, end };
            let summary = self.summarize_activity(caller, scope).await?;
            Ok(Arc::new(CountedHour { start, minutes, summary }))
        };
        self.hours.0.get(key, count).await
    }
}
