//! Everything that runs by itself: heartbeat, change listener, revision poll, re-listing, sweeping up after
//! the dead, partitions, and the log's writer.

mod changes;
mod damping;
mod embed;
mod programs;
mod purge;
mod relist;
mod removed;
mod retention;
mod schedule;
mod skew;
mod streams;
mod wear_off;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::caller::hash_key;
use super::{Gateway, clock};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;
use crate::store::{Change, StoreError, jittered};

const HEARTBEAT: Duration = Duration::from_secs(2);
/// The second net under the notices: losing every one of them costs at most this.
const POLL: Duration = Duration::from_secs(2);
const SWEEP: Duration = Duration::from_secs(5);
/// A replica silent for this long is dead: its open records are closed as `unknown` (behaviour, section 9).
const DEAD_AFTER_S: f64 = 30.0;
/// An own open record older than this that nobody works on was left behind by a doubtful commit.
const ORPHAN_AFTER_S: f64 = 10.0;
const SWEEP_BATCH: i64 = 500;
/// How often data keys are looked for that a retired master key still wraps.
const REWRAP: Duration = Duration::from_secs(3600);
/// How often the one replica that looks after servers renews its lease, and the others try for it.
pub(super) const LEASE: Duration = Duration::from_secs(2);
const KEY_USE: Duration = Duration::from_secs(60);
/// How long the end of the log's writer may take beyond the drain.
const FLUSH_GRACE: Duration = Duration::from_secs(4);
/// How long noting when keys were last used may take at the end.
const USES_GRACE: Duration = Duration::from_secs(1);
/// Keys whose last use is remembered between two writes.
const KEY_USES_MAX: usize = 100_000;
/// Unknown keys counted apart between two writes; the rest is counted together.
const FAILED_KEYS_MAX: usize = 100;

/// Whether this replica should get traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// All is well.
    Ready,
    /// The database is out of reach, but not for too long yet.
    Degraded,
    /// Not before the first snapshot.
    Starting,
    /// Shutting down.
    Draining,
    /// Unconfirmed for too long.
    Stale,
}

/// What the background tasks share with the request path.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    used: Mutex<HashMap<KeyId, (TenantId, DateTime<Utc>)>>,
    auth_failures: Mutex<HashMap<String, u64>>,
    streams: streams::Streams,
    skew: skew::Skew,
    /// The last failure of each job that is reported once.
    complaints: Mutex<HashMap<&'static str, String>>,
    /// Whether changes are heard of at once.
    pub(super) is_listening: AtomicBool,
    /// What the last comparison of revisions found behind.
    pub(super) behind: Mutex<Vec<Change>>,
    /// Requests without a valid key.
    pub(super) strangers: Count,
}

impl Upkeep {
    /// Notes that a key was used; at most once a minute and key.
    pub(super) fn key_used(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(key) = caller.key else { return };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() < KEY_USES_MAX {
            used.entry(key).or_insert((caller.tenant_id(), now));
        }
    }

    /// Streams on which upstreams announce changes.
    pub(super) fn announcing(&self) -> usize {
        self.streams.held_now()
    }

    fn count_failure(&self, key: String) {
        self.strangers.one();
        let mut failures = self.auth_failures.lock().unwrap_or_else(PoisonError::into_inner);
        let room = failures.len() < FAILED_KEYS_MAX;
        let name = if room || failures.contains_key(&key) { key } else { "others".to_owned() };
        *failures.entry(name).or_insert(0) += 1;
    }

    fn is_new_complaint(&self, job: &'static str, text: &str) -> bool {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        complaints.insert(job, text.to_owned()).is_none_or(|last| last != text)
    }

    /// Whether there was one.
    fn forget_complaint(&self, job: &'static str) -> bool {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).remove(job).is_some()
    }

    fn take_failures(&self) -> HashMap<String, u64> {
        std::mem::take(&mut *self.auth_failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_used(&self) -> Vec<(TenantId, KeyId, DateTime<Utc>)> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.drain().map(|(key, (tenant, at))| (tenant, key, at)).collect()
    }
}

impl Gateway {
    /// Registers this replica, confirms revisions once, and starts everything that runs by itself.
    pub async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        self.limits.share_among(self.heartbeat().await?);
        self.tenants.confirm(Instant::now());
        let (log, stop) = (self.activity.clone(), self.stop.clone());
        tokio::spawn(log.run_opening(stop));
        self.every(HEARTBEAT, |gateway| async move {
            let beat = gateway.heartbeat().await;
            report("heartbeat", beat.map(|live| gateway.limits.share_among(live)));
        });
        self.every(SWEEP, |gateway| async move { report("sweep", gateway.sweep().await) });
        self.every(self.options.retention_interval, |gateway| async move { gateway.keep_partitions().await });
        let purges = purge::PURGE.min(self.options.retention_interval);
        self.every(purges, |gateway| async move { gateway.purge_deleted().await });
        self.every(REWRAP, |gateway| async move { report("master keys", gateway.rewrap_data_keys().await) });
        self.every(KEY_USE, |gateway| async move { gateway.note_uses().await });
        let lines = self.journal_lines.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lines) = lines {
            self.log_tasks.spawn(Arc::clone(self).write_server_logs(lines));
        }
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.wear_off().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.relist().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.list_programs().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.hold_streams().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.listen_to_changes().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.poll_revisions().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.tell_of_activity().await });
        let gateway = Arc::clone(self);
        tokio::spawn(async move { gateway.embed_definitions().await });
        Ok(())
    }

    /// The task that writes the log's ends; the composition root waits for it at the end.
    pub fn run_log(self: &Arc<Self>) -> tokio::task::JoinHandle<()> {
        tokio::spawn(self.activity.clone().run_ending(self.stop.clone(), FLUSH_GRACE))
    }

    /// Runs a job at once and then with a pause between, until the gateway stops. A job that is slow is
    /// never run twice at a time.
    fn every<F>(self: &Arc<Self>, pause: Duration, job: impl Fn(Arc<Gateway>) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let gateway = Arc::clone(self);
        let stop = self.stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = job(Arc::clone(&gateway)) => {}
                }
                // a little less each time: replicas that started together drift apart
                if sleep_or_stop(pause - jittered(pause / 5), &stop).await {
                    return;
                }
            }
        });
    }

    async fn heartbeat(&self) -> Result<u32, StoreError> {
        let space = self.embeddings.as_ref().map(|embeddings| embeddings.space.as_str());
        let sent = clock::now();
        let beat = self.store.heartbeat(self.replica, space).await?;
        self.upkeep.compare_clocks(sent, beat.at, clock::now());
        Ok(beat.live)
    }

    /// Closes what dead replicas left open, and what a doubtful commit of our own left.
    async fn sweep(&self) -> Result<(), StoreError> {
        let old = self.store.open_records(self.replica.0, ORPHAN_AFTER_S).await?;
        let orphans = self.activity.orphans(old);
        let close = || self.store.close_dead(DEAD_AFTER_S, &orphans, SWEEP_BATCH);
        let mut closed = close().await;
        if closed.as_ref().is_err_and(StoreError::is_missing_partition) {
            // one row of a clock far off must not keep everybody's open
            let days = self.store.dead_days(DEAD_AFTER_S, &orphans, SWEEP_BATCH).await?;
            self.store.ensure_partitions(days.into_iter()).await?;
            closed = close().await;
        }
        let closed = closed?;
        if closed > 0 {
            tracing::warn!(closed, "closed records of calls whose replica died");
        }
        Ok(())
    }

    async fn note_uses(&self) {
        self.record_counted();
        self.touch_used().await;
    }

    async fn touch_used(&self) {
        let used = self.upkeep.take_used();
        if !used.is_empty() {
            report("key use", self.store.touch_keys(&used).await);
        }
    }

    /// Hands over the records of what was refused so often that it is only counted.
    fn record_counted(&self) {
        for (key, count) in self.upkeep.take_failures() {
            self.record_auth_failures(&key, count);
        }
        self.record_sheds();
        self.record_suspended();
        self.record_repeated_reads();
    }

    /// Counts a request whose key is missing or not valid; recorded once per key and minute. Keys are told
    /// apart by a digest, which says nothing about them.
    pub fn count_auth_failure(&self, presented: Option<&str>) {
        let name = match presented {
            None => "none".to_owned(),
            Some(secret) => {
                let hash = hash_key(secret);
                format!(
                    "sha256:{}",
                    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect::<String>()
                )
            }
        };
        self.upkeep.count_failure(name);
    }

    /// Whether this replica should get traffic.
    pub fn readiness(&self) -> Readiness {
        if self.is_leaving() {
            return Readiness::Draining;
        }
        match self.tenants.confirmed_ago() {
            None => Readiness::Starting,
            Some(ago) if ago > self.options.stale_max => Readiness::Stale,
            Some(ago) if ago > POLL * 3 => Readiness::Degraded,
            Some(_) => Readiness::Ready,
        }
    }

    /// Whether this replica is shutting down: streams end, so that clients come back elsewhere.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether clients should go elsewhere: it is shutting down, or about to.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Calls and administrators' acts that have begun here and not ended.
    pub fn under_way(&self) -> usize {
        self.tasks.len()
    }

    /// From now on `/readyz` says so. All else goes on, streams too: whoever comes back at once may still come here.
    pub fn begin_leaving(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// From now on streams end as well.
    pub fn begin_drain(&self) {
        self.begin_leaving();
        self.draining.store(true, Ordering::Relaxed);
        self.pulse.send_replace(());
    }

    /// Waits for calls under way (until `deadline`), writes the log to its end, says goodbye.
    pub async fn finish(&self, deadline: Instant, log: tokio::task::JoinHandle<()>) {
        self.begin_drain();
        self.tasks.close();
        if tokio::time::timeout_at(deadline.into(), self.tasks.wait()).await.is_err() {
            let under_way = self.under_way();
            tracing::warn!(
                under_way,
                "the drain is over, with calls under way; records of them that are open will be closed as unknown"
            );
        }
        self.record_counted();
        self.upstreams.close().await;
        self.stop.cancel();
        self.log_tasks.close();
        let (written, _) = tokio::join!(
            tokio::time::timeout(FLUSH_GRACE, log),
            // the log must not wait for what can be missing
            tokio::time::timeout(USES_GRACE, self.touch_used()),
        );
        if written.is_err() {
            tracing::error!("the activity log could not be written to its end");
        }
        self.log_tasks.wait().await;
        report("goodbye", self.store.replica_stopped(self.replica).await);
        self.store.close().await;
    }
}

/// `true` when stopped.
pub(super) async fn sleep_or_stop(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(pause) => false,
    }
}

fn report<T>(job: &'static str, outcome: Result<T, StoreError>) {
    if let Err(error) = outcome {
        tracing::warn!(job, %error, "a background job failed; it is tried again");
    }
}
