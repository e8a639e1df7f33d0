//! Permission requests: asking a person before a call runs, and the answers (behaviour, section 10).
//!
//! Each request is a row, the same for all replicas. A repeated call gets the outcome; a permission is used up right before
//! its call is sent, and only then. Nothing here runs for calls that the policy allows.

mod announcer;
mod ask;
mod attached;
mod call;
mod decide;
mod deliver;
mod key_names;
mod lost_events;
mod measures;
mod news;
mod question;
mod read;
mod refusals;
mod run;
mod shown;
mod webhook;

pub use self::announcer::ConsentBoard;
pub(in crate::gateway) use self::ask::{AskRequest, AskResult, may_answer_in_band};
pub use self::attached::Deciding;
pub(in crate::gateway) use self::call::ConsentCall;
pub use self::decide::DecideRequest;
pub use self::deliver::Deliveries;
pub(in crate::gateway) use self::deliver::LOOK;
pub use self::measures::{ConsentEnd, ConsentMeasures};
pub use self::news::{ConsentHeard, ConsentNews, next_consent_poll};
pub(in crate::gateway) use self::question::PendingAsk;
pub use self::read::{ConsentView, LET_THROUGH_MAX, RequestedTool, TurnReach};
pub(in crate::gateway) use self::refusals::{cut_off, key_gone};
pub(in crate::gateway) use self::run::{Permit, UsedPermit};
pub use self::shown::ShownConsent;
pub use self::webhook::WebhookRequest;

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use uuid::{NoContext, Timestamp, Uuid};

use self::announcer::Announcer;
use super::log::Attempt;
use super::tenants::Tenants;
use super::{Ground, Lifecycle, Options};
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::id::{KeyId, TenantId};
use crate::gateway::clock;
use crate::store::{StepAuthor, Store, StoreError};
use crate::upstream::Pool;

/// Most requests of each kind that one sweep ends.
const SWEEP_BATCH: i64 = 500;
/// Most waiting requests that are counted, of all tenants together: some milliseconds of work for the database.
const PENDING_COUNT_MAX: i64 = 20_000;

/// Use cases of permission requests.
pub struct Consent {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    tenants: Arc<Tenants>,
    announcer: Arc<Announcer>,
    measures: ConsentMeasures,
    deliveries: Arc<Deliveries>,
    /// Keys whose turn was just ended on this replica by somebody who is attached.
    ending_turns: Mutex<HashSet<(TenantId, Option<KeyId>)>>,
}

impl Consent {
    pub(super) fn new(ground: &Ground, tenants: &Arc<Tenants>) -> Consent {
        let Ground { store, upstreams, options, life } = ground.clone();
        Consent {
            store,
            upstreams,
            options,
            life,
            tenants: Arc::clone(tenants),
            announcer: Arc::default(),
            measures: ConsentMeasures::default(),
            deliveries: Arc::default(),
            ending_turns: Mutex::default(),
        }
    }

    /// Returns the metrics of permission requests.
    pub fn measures(&self) -> &ConsentMeasures {
        &self.measures
    }

    /// Returns the deliveries to webhooks.
    pub fn deliveries(&self) -> &Deliveries {
        &self.deliveries
    }

    /// Ends requests whose time is over, and those whose call was lost with its replica, silent for `silent_s` seconds. Then
    /// counts those that wait.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub(in crate::gateway) async fn sweep(&self, silent_s: f64) -> Result<(), StoreError> {
        let record = Record::start(TenantId::PLATFORM, RecordKind::Consent, Source::System, clock::now());
        for swept in self.store.sweep_consent(silent_s, SWEEP_BATCH, &self.author(record)).await? {
            self.measures.ended(swept.state);
        }
        self.measures.counted(self.store.count_pending_consent(PENDING_COUNT_MAX).await?);
        Ok(())
    }

    /// Returns the author of records about the steps that an attempt takes.
    fn author_of(&self, attempt: &Attempt) -> StepAuthor {
        let mut record = attempt.record(RecordKind::Consent);
        record.id = crate::domain::activity::new_id(clock::now());
        self.author(record)
    }

    fn author(&self, record: Record) -> StepAuthor {
        StepAuthor { replica: self.options.replica, record: Record { status: Status::Success, ..record } }
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
