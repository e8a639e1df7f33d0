//! Permission requests: asking a person before a call runs, and the answers (behaviour, section 10).
//!
//! Each request is a row, the same for all replicas. A repeated call gets the outcome; a permission is used up right before
//! its call is sent, and only then. Nothing here runs for calls that the policy allows.

mod ask;
mod call;
mod decide;
mod news;
mod question;
mod read;
mod refusals;
mod run;

pub(in crate::gateway) use self::ask::{AskRequest, AskResult, may_answer_in_band};
pub(in crate::gateway) use self::call::ConsentCall;
pub use self::decide::DecideRequest;
pub use self::news::ConsentNews;
pub(in crate::gateway) use self::question::PendingAsk;
pub use self::read::ConsentView;
pub(in crate::gateway) use self::run::{Permit, UsedPermit};

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::{NoContext, Timestamp, Uuid};

use self::news::Announcer;
use super::log::{Attempt, Log};
use super::tenants::Tenants;
use super::{Ground, Lifecycle, Options};
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::id::TenantId;
use crate::gateway::clock;
use crate::store::{CallTurn, Store, StoreError};
use crate::upstream::Pool;

/// Most requests of each kind that one sweep ends.
const SWEEP_BATCH: i64 = 500;

/// Use cases of permission requests.
pub struct Consent {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    tenants: Arc<Tenants>,
    log: Arc<Log>,
    announcer: Announcer,
}

impl Consent {
    pub(super) fn new(ground: &Ground, tenants: &Arc<Tenants>, log: &Arc<Log>) -> Consent {
        let Ground { store, upstreams, options, life } = ground.clone();
        Consent {
            store,
            upstreams,
            options,
            life,
            tenants: Arc::clone(tenants),
            log: Arc::clone(log),
            announcer: Announcer::default(),
        }
    }

    /// Ends requests whose time is over, and those whose call was lost with its replica, silent for `silent_s` seconds.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub(in crate::gateway) async fn sweep(&self, silent_s: f64) -> Result<(), StoreError> {
        for swept in self.store.sweep_consent(silent_s, SWEEP_BATCH).await? {
            let kind = RecordKind::Consent;
            let mut record = Record::start(swept.tenant, kind, Source::System, clock::now());
            record.tool = Some(format!("consent.{}", swept.state.as_str()));
            record.consent_id = Some(swept.id);
            record.status = Status::Success;
            self.log.write(record);
        }
        Ok(())
    }

    /// Records a step of a request that an attempt took.
    fn note(&self, attempt: &Attempt, id: Uuid, step: &str, (server, tool): (&str, &str)) {
        let mut record = attempt.record(RecordKind::Consent);
        record.id = crate::domain::activity::new_id(clock::now());
        record.tool = Some(format!("consent.{step}"));
        record.server = Some(server.to_owned());
        record.arguments = Some(serde_json::json!({ "tool": tool }).to_string());
        record.consent_id = Some(id);
        record.status = Status::Success;
        self.log.write(record);
    }
}

/// Returns the turn of an attempt.
fn turn(attempt: &Attempt) -> CallTurn {
    CallTurn {
        key: attempt.caller.key,
        session: attempt.session_id.clone(),
        session_began: attempt.session_began,
    }
}

/// Returns a new id, ordered by time.
fn new_id(now: DateTime<Utc>) -> Uuid {
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, now.timestamp_subsec_nanos()))
}

/// Returns the label of a tenant's own requests in logs.
fn failed(tenant: TenantId, error: &StoreError) {
    tracing::error!(%tenant, %error, "a permission request could not be stored or read");
}
