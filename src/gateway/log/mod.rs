//! The activity log: writing and reading records of attempts.

mod activity;
mod attempt;
mod counted;
mod hour;
mod reads;
mod report_lane;
mod reports;
mod tail;

pub use self::activity::{ActivityLog, Attempted, LogMeasures, LogVitals, RecordUnavailable};
pub use self::attempt::{Attempt, Client};
pub use self::hour::CountedHour;
pub use self::reads::{ReadAttempt, ReadUnderWay};
pub use self::reports::{Act, Acting, RefusedAttempt};
pub use self::tail::{News, TailReach};

pub(in crate::gateway) use self::activity::{Pending, record_unavailable};
pub(in crate::gateway) use self::report_lane::{ReportLane, ReportTurn};

use std::sync::Arc;

use self::hour::Hours;
use self::reads::ReadCounts;
use self::tail::Tails;
use super::{Ground, Lifecycle, Options, Tenants};
use crate::store::Store;

/// Queries of one tenant's activity streams that run at the same time.
const TAILS_PER_TENANT: usize = 1;

/// Use cases of the activity log: writing and reading records.
pub struct Log {
    store: Store,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    tenants: Arc<Tenants>,
    /// The writer.
    pub activity: ActivityLog,
    report_lane: ReportLane,
    reads: ReadCounts,
    tails: Arc<Tails>,
    hours: Hours,
    /// Concurrency limit of activity streams, apart from other reports: many open streams must not block reports.
    tail_lane: ReportLane,
}

impl Log {
    pub(super) fn new(ground: &Ground, tenants: &Arc<Tenants>) -> Log {
        let Ground { store, options, life, .. } = ground.clone();
        Log {
            activity: ActivityLog::new(store.clone(), options.replica, options.activity.clone()),
            report_lane: ReportLane::new(options.reports_per_tenant),
            reads: ReadCounts::default(),
            tails: Arc::default(),
            hours: Hours::default(),
            tail_lane: ReportLane::new(TAILS_PER_TENANT),
            tenants: Arc::clone(tenants),
            store,
            options,
            life,
        }
    }
}
