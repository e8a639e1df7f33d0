//! Background tasks: heartbeat, change listener, revision poll, re-listing, closing of dead replicas' records, partitions,
//! and the log's writer.

mod changes;
mod complaints;
mod damping;
mod embed;
mod programs;
mod purge;
mod relist;
mod reload;
mod removed;
mod retention;
mod schedule;
mod skew;
mod streams;
mod vitals;
mod wear_off;
mod webhooks;

pub use self::vitals::{ServerCounts, Vitals};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::complaints::Complaints;
use self::skew::Skew;
use self::streams::UpstreamStreams;
use super::life::sleep_or_stop;
use super::{
    Calls, ClientSessions, Consent, Ground, Lifecycle, Log, Mailbox, Options, Search, Servers, Tenants, clock,
};
use crate::domain::backoff::{chance, jittered};
use crate::domain::id::ReplicaId;
use crate::store::{Change, REPLICA_GONE_AFTER_S, Store, StoreError};
use crate::upstream::Pool;

const HEARTBEAT: Duration = Duration::from_secs(2);
/// Interval of the revision poll. If all notices are lost, changes are delayed by at most this.
const POLL: Duration = Duration::from_secs(2);
const SWEEP: Duration = Duration::from_secs(5);
/// Age from which an open record of this replica without a running call counts as left by a commit of unknown outcome.
const ORPHAN_AFTER_S: f64 = 10.0;
const SWEEP_BATCH: i64 = 500;
/// Interval between searches for events that no webhook is told of any more.
const LOSE: Duration = Duration::from_secs(2);
/// Interval between searches for data keys that only a retired master key wraps.
const REWRAP: Duration = Duration::from_secs(3600);
/// Interval at which the replica in charge of servers renews its lease, and the others try to take it.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// Interval at which sessions with an open stream are noted: a third of the time for which the note holds.
const STREAMS: Duration = Duration::from_secs(30);
/// Interval at which sessions are noted whose first stream has begun, or whose last one has ended.
const CHANGED_STREAMS: Duration = Duration::from_secs(5);
const KEY_USE: Duration = Duration::from_secs(60);
/// Interval at which people who logged in are written.
const PEOPLE: Duration = Duration::from_secs(1);
/// Interval at which a replica looks for issuers whose keys are to be fetched again.
const ISSUER_KEYS: Duration = Duration::from_secs(10);
/// Deadline of the log writer's end, beyond the drain.
const FLUSH_GRACE: Duration = Duration::from_secs(4);
/// Deadline of writing key uses at shutdown.
const USES_GRACE: Duration = Duration::from_secs(1);

/// Whether this replica should get traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The replica has current snapshots.
    Ready,
    /// The database is unreachable, but not for too long yet.
    Degraded,
    /// No snapshot has been confirmed yet.
    Starting,
    /// The replica is shutting down.
    Draining,
    /// The snapshots have been unconfirmed for too long.
    Stale,
}

/// Background tasks of this replica.
pub struct Upkeep {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    replica: ReplicaId,
    tenants: Arc<Tenants>,
    log: Arc<Log>,
    search: Arc<Search>,
    consent: Arc<Consent>,
    calls: Arc<Calls>,
    mailbox: Arc<Mailbox>,
    sessions: Arc<ClientSessions>,
    servers: Arc<Servers>,
    streams: UpstreamStreams,
    skew: Skew,
    complaints: Complaints,
    /// True while the listener receives notices of changes.
    is_listening: AtomicBool,
    /// Changes that the last comparison of revisions found missing here.
    behind: Mutex<Vec<Change>>,
    /// Held while settings are read again.
    reloading: tokio::sync::Mutex<()>,
}

impl Upkeep {
    pub(super) fn new(
        ground: &Ground,
        tenants: &Arc<Tenants>,
        log: &Arc<Log>,
        search: &Arc<Search>,
        (consent, calls, mailbox, sessions): (
            &Arc<Consent>,
            &Arc<Calls>,
            &Arc<Mailbox>,
            &Arc<ClientSessions>,
        ),
        servers: &Arc<Servers>,
    ) -> Upkeep {
        let Ground { store, upstreams, options, life } = ground.clone();
        Upkeep {
            store,
            upstreams,
            life,
            replica: options.replica,
            options,
            tenants: Arc::clone(tenants),
            log: Arc::clone(log),
            search: Arc::clone(search),
            consent: Arc::clone(consent),
            calls: Arc::clone(calls),
            mailbox: Arc::clone(mailbox),
            sessions: Arc::clone(sessions),
            servers: Arc::clone(servers),
            streams: UpstreamStreams::default(),
            skew: Skew::default(),
            complaints: Complaints::default(),
            is_listening: AtomicBool::new(false),
            behind: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
        }
    }

    /// Registers this replica, confirms revisions once, and starts all background tasks.
    ///
    /// # Errors
    /// The replica could not be registered in the database.
    pub async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        self.tenants.limits.share_among(self.heartbeat().await?);
        // before the first request: a token of an issuer that is not known yet would be refused
        self.tenants.reload_issuers(1).await?;
        self.tenants.logins.confirm(Instant::now());
        self.tenants.live.confirm(Instant::now());
        let (log, stop) = (self.log.activity.clone(), self.life.stop.clone());
        tokio::spawn(log.run_opening(stop));
        self.every(HEARTBEAT, |upkeep| async move {
            let beat = upkeep.heartbeat().await;
            report("heartbeat", beat.map(|live| upkeep.tenants.limits.share_among(live)));
        });
        self.every(SWEEP, |upkeep| async move { report("sweep", upkeep.sweep().await) });
        self.every(SWEEP, |upkeep| async move { upkeep.upstreams.sweep_logins() });
        self.every(SWEEP, |upkeep| async move {
            report("permission requests", upkeep.consent.sweep(REPLICA_GONE_AFTER_S).await);
        });
        self.every(LOSE, |upkeep| async move {
            report("events for webhooks", upkeep.consent.lose_events().await);
        });
        self.every(POLL, |upkeep| async move { report("replies", upkeep.mailbox.poll().await) });
        self.every(STREAMS, |upkeep| async move {
            report("streams of sessions", upkeep.sessions.note_open_streams().await);
        });
        self.every(CHANGED_STREAMS, |upkeep| async move {
            report("changed streams of sessions", upkeep.sessions.note_changed_streams().await);
        });
        self.every(self.options.retention_interval, |upkeep| async move { upkeep.keep_partitions().await });
        let purges = purge::PURGE.min(self.options.retention_interval);
        self.every(purges, |upkeep| async move { upkeep.purge_deleted().await });
        self.every(
            REWRAP,
            |upkeep| async move { report("master keys", upkeep.servers.rewrap_data_keys().await) },
        );
        self.every(KEY_USE, |upkeep| async move { upkeep.note_uses().await });
        self.every(PEOPLE, |upkeep| async move { report("people", upkeep.tenants.note_people().await) });
        self.every(ISSUER_KEYS, |upkeep| async move {
            report("keys of issuers", upkeep.tenants.fetch_due_keys().await);
        });
        if let Some(lines) = self.servers.take_journal() {
            self.life.log_tasks.spawn(Arc::clone(&self.servers).write_server_logs(lines));
        }
        tokio::spawn(Arc::clone(self).wear_off());
        tokio::spawn(Arc::clone(self).relist());
        tokio::spawn(Arc::clone(self).list_programs());
        tokio::spawn(Arc::clone(self).hold_streams());
        tokio::spawn(Arc::clone(self).listen_to_changes());
        tokio::spawn(Arc::clone(self).poll_revisions());
        tokio::spawn(Arc::clone(&self.log).tell_of_activity());
        tokio::spawn(Arc::clone(self).embed_definitions());
        tokio::spawn(Arc::clone(self).deliver_webhooks());
        Ok(())
    }

    /// Starts the task that writes the log's ends; [`Upkeep::finish`] waits for it.
    pub fn run_log(self: &Arc<Self>) -> tokio::task::JoinHandle<()> {
        tokio::spawn(self.log.activity.clone().run_ending(self.life.stop.clone(), FLUSH_GRACE))
    }

    /// Runs a job at once and then with pauses, until the gateway stops. Runs never overlap.
    fn every<F>(self: &Arc<Self>, pause: Duration, job: impl Fn(Arc<Upkeep>) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let upkeep = Arc::clone(self);
        let stop = self.life.stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = job(Arc::clone(&upkeep)) => {}
                }
                // jitter, so that replicas that started together drift apart
                if sleep_or_stop(pause - jittered(pause / 5, chance()), &stop).await {
                    return;
                }
            }
        });
    }

    async fn heartbeat(&self) -> Result<u32, StoreError> {
        let space = self.tenants.embedded.as_ref().map(|embedded| embedded.space.as_str());
        let sent = clock::now();
        let beat = self.store.heartbeat(self.replica, space).await?;
        self.skew.compare(sent, beat.at, clock::now(), &self.complaints);
        Ok(beat.live)
    }

    /// Closes the open records of dead replicas, and those of this replica that a commit of unknown outcome left.
    async fn sweep(&self) -> Result<(), StoreError> {
        let old = self.store.open_records(self.replica.0, ORPHAN_AFTER_S).await?;
        let orphans = self.log.activity.orphans(old);
        // one row from a clock far off must not keep all others open
        let days = self.store.dead_days(REPLICA_GONE_AFTER_S, &orphans, SWEEP_BATCH);
        let close = || self.store.close_dead(REPLICA_GONE_AFTER_S, &orphans, SWEEP_BATCH);
        let closed = self.store.with_partitions(days, close).await?;
        if closed > 0 {
            tracing::warn!(closed, "closed records of calls whose replica died");
        }
        Ok(())
    }

    async fn note_uses(&self) {
        self.log.record_counted();
        self.touch_used().await;
    }

    async fn touch_used(&self) {
        let used = self.tenants.uses.take_used();
        if !used.is_empty() {
            report("key use", self.store.touch_keys(&used).await);
        }
    }

    /// Returns whether this replica should get traffic.
    pub fn readiness(&self) -> Readiness {
        if self.life.is_leaving() {
            return Readiness::Draining;
        }
        match self.tenants.live.confirmed_ago() {
            None => Readiness::Starting,
            Some(ago) if ago > self.options.stale_max => Readiness::Stale,
            Some(ago) if ago > POLL * 3 => Readiness::Degraded,
            Some(_) => Readiness::Ready,
        }
    }

    /// Waits for calls under way until `deadline`, writes the rest of the log, and unregisters the replica.
    pub async fn finish(&self, deadline: Instant, log: tokio::task::JoinHandle<()>) {
        self.life.begin_drain();
        self.life.tasks.close();
        if tokio::time::timeout_at(deadline.into(), self.life.tasks.wait()).await.is_err() {
            let under_way = self.life.under_way();
            tracing::warn!(
                under_way,
                "the drain is over, with calls under way; records of them that are open will be closed as unknown"
            );
        }
        self.log.record_counted();
        self.upstreams.close().await;
        self.life.stop.cancel();
        self.life.log_tasks.close();
        let (written, _) = tokio::join!(
            tokio::time::timeout(FLUSH_GRACE, log),
            // the log must not wait for key uses, which may be lost
            tokio::time::timeout(USES_GRACE, self.touch_used()),
        );
        if written.is_err() {
            tracing::error!("the activity log could not be written to its end");
        }
        self.life.log_tasks.wait().await;
        report("goodbye", self.store.replica_stopped(self.replica).await);
        self.store.close().await;
    }
}

fn report<T>(job: &'static str, outcome: Result<T, StoreError>) {
    if let Err(error) = outcome {
        tracing::warn!(job, %error, "a background job failed; it is tried again");
    }
}
