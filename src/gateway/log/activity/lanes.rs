//! The two tasks that commit batches of the activity log.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ActivityLog, Ending, LogMeasures, Opened, Opening, RecordUnavailable, Rest, rejected};
use crate::domain::activity::Record;
use crate::domain::backoff::{Backoff, chance};
use crate::domain::id::ReplicaId;
use crate::gateway::life::sleep_or_stop;
use crate::store::{Close, Store, StoreError};

/// First backoff after a failed write; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Longest wait for a batch that closes a record open in the database. If the replica is killed before the write, the call
/// has its answer but the record says `unknown`.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(5);
/// Number of batches written at once from a backlog.
const BACKLOG_BATCHES: usize = 5;
/// Bytes of records in one batch: a connection keeps the memory of its largest batch.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Days per batch for which missing partitions are created.
const DAYS_MAX: usize = 200;

impl ActivityLog {
    /// Commits open rows until `stop`, then those still queued. While the database is unreachable, the rows stay queued:
    /// their calls wait up to their deadline, and go on if it returns in time.
    pub(in crate::gateway) async fn run_opening(self, stop: CancellationToken) {
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        loop {
            // calls about to open a record join this batch: a commit costs the same for all
            yield_now().await;
            let batch = self.take_opening();
            if !batch.is_empty() {
                match self.commit_opening(batch, &stop).await {
                    Ok(()) => backoff.reset(),
                    Err(error) => {
                        tracing::warn!(%error, "open records could not be committed; trying again");
                        sleep_or_stop(backoff.jittered(chance()), &stop).await;
                    }
                }
                continue;
            }
            tokio::select! {
                () = self.0.wake_opening.notified() => {}
                () = stop.cancelled() => {
                    if self.0.state.lock().opening.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    fn take_opening(&self) -> Vec<Opening> {
        let mut state = self.0.state.lock();
        let count = state.opening.len().min(self.0.limits.batch);
        state.opening.drain(..count).collect()
    }

    /// Commits a batch. On an error the batch returns to the queue: it may have been committed, and inserting a row twice is
    /// harmless.
    async fn commit_opening(&self, batch: Vec<Opening>, stop: &CancellationToken) -> Result<(), StoreError> {
        let (batch, late): (Vec<Opening>, Vec<Opening>) =
            batch.into_iter().partition(|opening| !opening.done.is_closed());
        late.into_iter().for_each(|opening| self.abandon(opening));
        if batch.is_empty() {
            return Ok(());
        }
        let records: Vec<&Record> = batch.iter().map(|opening| opening.record.as_ref()).collect();
        let began = Instant::now();
        let written = open_halving(&self.0.store, self.0.replica, &records).await;
        if written.is_ok() {
            self.0.measures.opened.observe(began.elapsed());
        }
        match written {
            Ok(written) => {
                for (opening, good) in batch.into_iter().zip(written) {
                    if good { self.hand_back(opening) } else { self.fail(opening) }
                }
                Ok(())
            }
            Err(_) if stop.is_cancelled() => {
                batch.into_iter().for_each(|opening| self.fail(opening));
                Ok(())
            }
            Err(error) => {
                let mut state = self.0.state.lock();
                batch.into_iter().rev().for_each(|opening| state.opening.push_front(opening));
                Err(error)
            }
        }
    }

    /// Returns the slot to the call whose row is committed. If the call stopped waiting, its record is closed as rejected.
    fn hand_back(&self, opening: Opening) {
        let Opening { record, done, slot } = opening;
        if let Err(Ok(slot)) = done.send(Ok(slot)) {
            self.end(rejected(record), Opened::Yes, slot, None);
        }
    }

    fn fail(&self, opening: Opening) {
        let Opening { record, done, slot } = opening;
        // if nobody waits any more, the call is not dispatched either
        drop(done.send(Err(RecordUnavailable)));
        self.end(rejected(record), Opened::Yes, slot, None);
    }

    fn abandon(&self, opening: Opening) {
        let Opening { record, slot, .. } = opening;
        self.end(rejected(record), Opened::Yes, slot, None);
    }

    /// Writes ends until `stop`, then those still queued; gives up after `grace`.
    pub(in crate::gateway) async fn run_ending(self, stop: CancellationToken, grace: Duration) {
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let mut deadline: Option<Instant> = None;
        loop {
            if stop.is_cancelled() && deadline.is_none() {
                deadline = Some(Instant::now() + grace);
            }
            if !self.gather(&stop).await {
                return;
            }
            let (closes, rest) = self.take_ending();
            let began = Instant::now();
            match close_halving(&self.0.store, self.0.replica, &closes, &self.0.measures).await {
                Ok(()) => {
                    self.0.measures.closed.observe(began.elapsed());
                    backoff.reset();
                    self.ended(&closes, rest);
                }
                Err(error) => {
                    tracing::warn!(%error, records = closes.len(), "the activity log could not be written; trying again");
                    self.put_back(closes, rest);
                    if deadline.is_some_and(|at| Instant::now() >= at) {
                        tracing::error!("stopping with unwritten activity records");
                        return;
                    }
                    tokio::time::sleep(backoff.jittered(chance())).await;
                }
            }
        }
    }

    /// Waits until a batch is due. Returns `false` when stopped and the queue is empty.
    async fn gather(&self, stop: &CancellationToken) -> bool {
        let mut due: Option<Instant> = None;
        let mut is_closing = false;
        loop {
            let (queued, urgent, closing) = {
                let state = self.0.state.lock();
                (state.ending.len(), state.urgent > 0, state.closing > 0)
            };
            if queued == 0 && stop.is_cancelled() {
                return false;
            }
            if urgent || queued >= self.0.limits.batch || (queued > 0 && stop.is_cancelled()) {
                return true;
            }
            if queued > 0 && due.is_none() {
                due = Some(Instant::now() + self.0.limits.flush);
            }
            if closing && !std::mem::replace(&mut is_closing, true) {
                let soon = Instant::now() + CLOSE_WAIT_MAX;
                due = Some(due.map_or(soon, |due| due.min(soon)));
            }
            let timer = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.wake_ending.notified() => {}
                () = timer => return true,
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    fn take_ending(&self) -> (Vec<Close>, Vec<Rest>) {
        let mut state = self.0.state.lock();
        // a backlog from a slow database goes out in larger pieces
        let most = state.ending.len().min(self.0.limits.batch * BACKLOG_BATCHES);
        let count = fitting(state.ending.iter().take(most).map(|ending| ending.rest.slot.bytes())).min(most);
        let batch: (Vec<Close>, Vec<Rest>) =
            state.ending.drain(..count).map(|ending| (ending.close, ending.rest)).unzip();
        state.urgent = state.urgent.saturating_sub(urgent(&batch.1));
        state.closing = state.closing.saturating_sub(closing(&batch.0));
        batch
    }

    fn put_back(&self, closes: Vec<Close>, rest: Vec<Rest>) {
        let mut state = self.0.state.lock();
        state.urgent += urgent(&rest);
        state.closing += closing(&closes);
        for (close, rest) in closes.into_iter().zip(rest).rev() {
            state.ending.push_front(Ending { close, rest });
        }
    }

    fn ended(&self, closes: &[Close], rest: Vec<Rest>) {
        {
            let mut state = self.0.state.lock();
            for close in closes.iter().filter(|close| close.opened) {
                state.live.remove(&close.record.id);
            }
        }
        for done in rest.into_iter().filter_map(|rest| rest.done) {
            // the waiting call may have given up; the record is written all the same
            let _told = done.send(());
        }
    }
}

/// Returns how many records fit into one batch by their sizes, at least one.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut left = BATCH_BYTES_MAX;
    let fits = |size: &usize| {
        let has_room = *size <= left;
        left = left.saturating_sub(*size);
        has_room
    };
    sizes.take_while(fits).count().max(1)
}

/// Returns how many records of a batch have a call waiting for them.
fn urgent(batch: &[Rest]) -> usize {
    batch.iter().filter(|rest| rest.done.is_some()).count()
}

/// Returns how many records of a batch are open in the database.
fn closing(batch: &[Close]) -> usize {
    batch.iter().filter(|close| close.opened).count()
}

/// Opens a batch. If the database refuses its data, halves it until the bad record is alone. Returns for each record whether
/// it was committed.
async fn open_halving(
    store: &Store,
    replica: ReplicaId,
    records: &[&Record],
) -> Result<Vec<bool>, StoreError> {
    match store.open_activity(replica, records).await {
        Ok(()) => Ok(vec![true; records.len()]),
        Err(error) if error.is_bad_data() && records.len() > 1 => {
            let (left, right) = records.split_at(records.len() / 2);
            let mut written = Box::pin(open_halving(store, replica, left)).await?;
            written.extend(Box::pin(open_halving(store, replica, right)).await?);
            Ok(written)
        }
        Err(error) if error.is_bad_data() => match records.first().map(|record| stub(record)) {
            Some(stub) => match store.open_activity(replica, &[&stub]).await {
                Err(error) if !error.is_bad_data() => Err(error),
                done => Ok(vec![done.is_ok()]),
            },
            None => Ok(Vec::new()),
        },
        Err(error) => Err(error),
    }
}

/// Closes a batch. A record that the database refuses becomes a stub, and the others are written.
async fn close_halving(
    store: &Store,
    replica: ReplicaId,
    closes: &[Close],
    measures: &LogMeasures,
) -> Result<(), StoreError> {
    let days = async {
        Ok(closes.iter().map(|close| close.record.started_at().date_naive()).take(DAYS_MAX).collect())
    };
    match store.with_partitions(days, || store.close_activity(replica, closes)).await {
        Err(error) if error.is_bad_data() && closes.len() > 1 => {
            let (left, right) = closes.split_at(closes.len() / 2);
            Box::pin(close_halving(store, replica, left, measures)).await?;
            Box::pin(close_halving(store, replica, right, measures)).await
        }
        Err(error) if error.is_bad_data() => {
            tracing::error!(%error, "an activity record was refused by the database; a stub is kept");
            let stub = |close: &Close| Close { record: Box::new(stub(&close.record)), ..*close };
            let stubs: Vec<Close> = closes.iter().map(stub).collect();
            match store.close_activity(replica, &stubs).await {
                // not even a stub is accepted: losing one record, with a log line, beats stopping everybody's log
                Err(error) if error.is_bad_data() => {
                    let ids: Vec<String> = stubs.iter().map(|stub| stub.record.id.to_string()).collect();
                    tracing::error!(%error, ?ids, "an activity record was lost");
                    measures.lost.one();
                    Ok(())
                }
                Ok(()) => {
                    measures.stubs.one();
                    Ok(())
                }
                other => other,
            }
        }
        other => other,
    }
}

/// Returns the stub of a record that the database refuses: principal, address, time, outcome, and whether there is a ledger.
fn stub(record: &Record) -> Record {
    Record {
        status: record.status,
        id: record.id,
        key: record.key,
        identity: record.identity,
        client_address: record.client_address,
        tool_variant: record.tool_variant,
        tier: record.tier,
        operation_type: record.operation_type,
        error_code: Some("record_stub".to_owned()),
        error_message: Some("the database refused this record's texts".to_owned()),
        has_ledger: record.has_ledger,
        ..Record::start(record.tenant, record.kind, record.source, record.started_at())
    }
}
