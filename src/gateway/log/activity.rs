//! The writer of the activity log.
//!
//! Two tasks commit queued records in batches (group commit): one writes open rows, which calls wait for before dispatch,
//! the other writes ends. Every attempt first reserves a slot, so its end always fits. While the database is unreachable,
//! reads go on until the slots or their bytes are used up; then everything is refused. One tenant holds at most a quarter of
//! the capacity.

mod lanes;
mod measures;
mod room;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use chrono::DateTime;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use ulid::Ulid;

pub use self::measures::{Attempted, LogMeasures};
use self::room::{LogRoom, Slot};
use crate::domain::activity::{Record, Status};
use crate::domain::id::ReplicaId;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::options::ActivityLimits;
use crate::store::{Close, Store};

/// Error: the record could not be committed in time, or the log has no capacity for it. The attempt must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordUnavailable;

struct Opening {
    record: Box<Record>,
    /// Returns the slot to the call once the row is committed.
    done: oneshot::Sender<Result<Slot, RecordUnavailable>>,
    slot: Slot,
}

struct Ending {
    close: Close,
    rest: Rest,
}

/// Parts of an ending that remain until it is written.
struct Rest {
    done: Option<oneshot::Sender<()>>,
    slot: Slot,
}

#[derive(Default)]
struct State {
    opening: VecDeque<Opening>,
    ending: VecDeque<Ending>,
    /// Records that this replica has opened and not yet closed in the database.
    live: HashSet<Ulid>,
    /// Endings that a call waits for.
    urgent: usize,
    /// Endings of records that are open in the database.
    closing: usize,
}

struct Shared {
    store: Store,
    replica: ReplicaId,
    limits: ActivityLimits,
    state: Mutex<State>,
    wake_opening: Notify,
    wake_ending: Notify,
    room: Arc<LogRoom>,
    measures: LogMeasures,
}

/// The activity log. Cheap to clone.
#[derive(Clone)]
pub struct ActivityLog(Arc<Shared>);

impl std::fmt::Debug for ActivityLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActivityLog").field("replica", &self.0.replica).finish_non_exhaustive()
    }
}

impl ActivityLog {
    pub(super) fn new(store: Store, replica: ReplicaId, limits: ActivityLimits) -> ActivityLog {
        ActivityLog(Arc::new(Shared {
            store,
            replica,
            room: Arc::new(LogRoom::new(&limits)),
            limits,
            state: Mutex::default(),
            wake_opening: Notify::new(),
            wake_ending: Notify::new(),
            measures: LogMeasures::default(),
        }))
    }

    /// Begins an attempt and reserves a slot for it. From here on its record is closed in every case.
    ///
    /// # Errors
    /// The log or the tenant's share of it is full.
    pub fn begin(&self, record: Record) -> Result<Pending, RecordUnavailable> {
        let slot = self.counting(Slot::take(&self.0.room, record.tenant))?;
        Ok(self.pending(record, slot))
    }

    /// Begins an attempt like [`ActivityLog::begin`], but waits up to two seconds while the log is full. A short delay of
    /// the database thus slows callers down; only a long one refuses them.
    ///
    /// # Errors
    /// The log or the tenant's share of it stayed full, or too many calls of the tenant wait already.
    pub async fn begin_call(&self, record: Record) -> Result<Pending, RecordUnavailable> {
        let slot = self.counting(Slot::wait(&self.0.room, record.tenant).await)?;
        Ok(self.pending(record, slot))
    }

    fn pending(&self, record: Record, slot: Slot) -> Pending {
        Pending { log: self.clone(), record: Box::new(record), opened: Opened::No, slot: Some(slot) }
    }

    fn counting(&self, slot: Result<Slot, RecordUnavailable>) -> Result<Slot, RecordUnavailable> {
        slot.inspect_err(|RecordUnavailable| self.0.measures.no_room.one())
    }

    fn end(&self, record: Box<Record>, opened: Opened, mut slot: Slot, done: Option<oneshot::Sender<()>>) {
        if opened != Opened::Withdrawn {
            self.0.measures.ended(&record);
        }
        let full = {
            slot.resize(record.bytes());
            let mut state = self.0.state.lock();
            state.urgent += usize::from(done.is_some());
            let (opened, counted) = (opened != Opened::No, opened == Opened::Withdrawn);
            let close = Close { record, opened, counted };
            state.closing += usize::from(close.opened);
            let is_first_to_close = close.opened && state.closing == 1;
            state.ending.push_back(Ending { close, rest: Rest { done, slot } });
            let queued = state.ending.len();
            state.urgent > 0 || is_first_to_close || queued == 1 || queued >= self.0.limits.batch
        };
        if full {
            self.0.wake_ending.notify_one();
        }
    }

    /// Returns the open records that this replica does not work on. A commit with an unknown outcome leaves them behind.
    pub(in crate::gateway) fn orphans(&self, ids: Vec<uuid::Uuid>) -> Vec<uuid::Uuid> {
        let state = self.0.state.lock();
        ids.into_iter().filter(|id| !state.live.contains(&Ulid::from(*id))).collect()
    }

    /// Returns the metrics of the log.
    pub fn measures(&self) -> &LogMeasures {
        &self.0.measures
    }

    /// Returns the current load of the log.
    pub fn vitals(&self) -> LogVitals {
        let (records, bytes) = self.0.room.taken_now();
        let (opening, ending) = {
            let state = self.0.state.lock();
            (state.opening.len(), state.ending.len())
        };
        let ActivityLimits { queue, queue_bytes, .. } = self.0.limits;
        LogVitals { records, bytes, opening, ending, records_max: queue, bytes_max: queue_bytes }
    }

    /// Returns the number of attempts that hold a slot.
    pub fn reserved(&self) -> usize {
        self.0.room.records()
    }
}

/// Current load of the activity log.
#[derive(Clone, Copy, Debug)]
pub struct LogVitals {
    /// Attempts that are unfinished or unwritten.
    pub records: usize,
    /// Size of these attempts' records, in bytes.
    pub bytes: usize,
    /// Attempts among them whose call waits for the commit of its record.
    pub opening: usize,
    /// Attempts among them that have ended and are not written yet.
    pub ending: usize,
    /// Most attempts at a time.
    pub records_max: usize,
    /// Largest total size of their records, in bytes.
    pub bytes_max: usize,
}

/// State of a record in the table of open records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    /// The record was committed there before dispatch.
    Yes,
    /// The record was never written there.
    No,
    /// The record was committed there and is to be deleted, because the attempt is counted instead.
    Withdrawn,
}

/// An attempt under way. [`Pending::close`] closes its record; if it is dropped before (panic, aborted task), the record is
/// closed as an internal error.
#[derive(Debug)]
pub struct Pending {
    /// Record of the attempt, as far as it is known.
    pub record: Box<Record>,
    log: ActivityLog,
    opened: Opened,
    slot: Option<Slot>,
}

impl Pending {
    /// Commits the open row of a call before its dispatch.
    ///
    /// # Errors
    /// The row was not committed in time: the call must not be dispatched. The log itself closes the record as `rejected`,
    /// even if the row is committed later.
    pub async fn open(mut self) -> Result<Pending, RecordUnavailable> {
        let Some(slot) = self.slot.take() else { return Err(RecordUnavailable) };
        let log = self.log.clone();
        let (done, mut committed) = oneshot::channel();
        {
            let mut state = log.0.state.lock();
            state.live.insert(self.record.id);
            state.opening.push_back(Opening { record: self.record.clone(), done, slot });
        }
        log.0.wake_opening.notify_one();
        let outcome = match tokio::time::timeout(log.0.limits.commit_timeout, &mut committed).await {
            Ok(outcome) => outcome.unwrap_or(Err(RecordUnavailable)),
            Err(_) => {
                // no answer can arrive after this: either it is in the channel already, or it never comes
                committed.close();
                committed.try_recv().unwrap_or(Err(RecordUnavailable))
            }
        };
        self.slot = Some(outcome?);
        self.opened = Opened::Yes;
        Ok(self)
    }

    /// Ends an attempt that is counted instead of recorded. An open record that was committed for it is deleted.
    pub fn forget(mut self) {
        match self.opened {
            Opened::No => self.slot = None,
            Opened::Yes | Opened::Withdrawn => {
                self.opened = Opened::Withdrawn;
                self.end(None);
            }
        }
    }

    /// Queues the record's end. It is written within the flush interval, or as soon as the database is back.
    pub fn close(mut self) {
        self.end(None);
    }

    /// Queues the record's end and waits until it is committed, for refusals that must not be answered before.
    ///
    /// # Errors
    /// The end was not committed in time. It stays queued.
    pub async fn close_committed(mut self) -> Result<(), RecordUnavailable> {
        let limit = self.log.0.limits.commit_timeout;
        let (done, committed) = oneshot::channel();
        self.end(Some(done));
        match tokio::time::timeout(limit, committed).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(RecordUnavailable),
        }
    }

    fn end(&mut self, done: Option<oneshot::Sender<()>>) {
        if let Some(slot) = self.slot.take() {
            let spent =
                Record::start(self.record.tenant, self.record.kind, self.record.source, DateTime::default());
            let record = std::mem::replace(&mut self.record, Box::new(spent));
            self.log.end(record, self.opened, slot, done);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.slot.is_none() {
            return;
        }
        self.record.status = Status::Error;
        self.record.error_code = Some("internal".to_owned());
        self.record.error_message = Some("the gateway did not bring this attempt to its end".to_owned());
        self.end(None);
    }
}

/// Marks the record of a call that was never dispatched as rejected.
fn rejected(mut record: Box<Record>) -> Box<Record> {
    record.status = Status::Rejected;
    record.error_code = Some(Code::RecordUnavailable.as_str().to_owned());
    record.error_message =
        Some("the activity record could not be committed in time; nothing was run".to_owned());
    record
}

/// Returns the refusal for an attempt without capacity in the activity log.
pub(in crate::gateway) fn record_unavailable() -> Refusal {
    Refusal::new(
        Code::RecordUnavailable,
        "The activity log cannot take a record now, so nothing was run; try again in a few seconds",
    )
}
