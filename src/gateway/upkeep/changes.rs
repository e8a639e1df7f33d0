//! Changes in the database: a listener for notices, and a poll of revisions for those that were lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{POLL, Upkeep, report};
use crate::domain::backoff::{Backoff, chance, jittered};
use crate::domain::id::TenantId;
use crate::gateway::life::sleep_or_stop;
use crate::gateway::tenants::LiveTenant;
use crate::store::{Change, Notice, RevisionKind, StoreError};

/// First backoff between attempts to listen; doubles up to [`LISTEN_RETRY_MAX`]. Changes meanwhile are found by the poll.
const LISTEN_RETRY_MIN: Duration = Duration::from_millis(250);
const LISTEN_RETRY_MAX: Duration = Duration::from_secs(1);
/// Deadline of one poll: a connection that was cut silently must not delay the next poll, which may use another.
const POLL_MAX: Duration = Duration::from_secs(6);
/// Deadline of reloading issuers within a poll.
const ISSUERS_MAX: Duration = Duration::from_secs(3);
/// Pause after a failed poll. The store notices quickly when the database is back, so replicas have caught up within two
/// seconds.
const POLL_RETRY: Duration = Duration::from_millis(300);

impl Upkeep {
    /// Runs the listener until the gateway stops; reconnects, and compares revisions after each connect.
    pub(super) async fn listen_to_changes(self: Arc<Self>) {
        let mut backoff = Backoff::new(LISTEN_RETRY_MIN, LISTEN_RETRY_MAX);
        // what other replicas said between the start and the first connect was missed as well
        let mut deaf_since = Some(Instant::now());
        while !self.life.stop.is_cancelled() {
            match self.store.listen().await {
                Ok(mut listener) => {
                    backoff.reset();
                    self.is_listening.store(true, Ordering::Relaxed);
                    // notices sent while not listening are lost: compare revisions, and receive new notices meanwhile
                    let upkeep = Arc::clone(&self);
                    tokio::spawn(async move {
                        report("revision poll", upkeep.poll_soon().await);
                        report("programs", upkeep.tenants.end_unheard_programs().await);
                    });
                    if let Some(since) = deaf_since.take() {
                        self.tenants.live.lookups.keys_changed();
                        self.tenants.live.all().iter().for_each(|live| live.fanout.gap(since));
                        let upkeep = Arc::clone(&self);
                        tokio::spawn(async move { upkeep.follow_missed_reload().await });
                    }
                    self.sessions.deaf();
                    self.consent.deaf();
                    loop {
                        let notice = tokio::select! {
                            () = self.life.stop.cancelled() => return,
                            notice = listener.next() => notice,
                        };
                        match notice {
                            None => {
                                self.is_listening.store(false, Ordering::Relaxed);
                                deaf_since = Some(listener.alive_at());
                                break;
                            }
                            Some(Notice::Cancel(notice)) => self.calls.cancelled_elsewhere(notice),
                            Some(Notice::Consent(notice)) => self.consent.heard(notice),
                            Some(Notice::Reply(notice)) => self.mailbox.heard(notice),
                            Some(Notice::Session(notice)) => self.sessions.heard(notice),
                            Some(Notice::Turn(notice)) => self.calls.turn_ended(&notice),
                            Some(Notice::Misled(notice)) => {
                                let upkeep = Arc::clone(&self);
                                tokio::spawn(async move { upkeep.tenants.heard_misled(notice).await });
                            }
                            Some(Notice::Reload(notice)) if notice.replica == self.replica => {}
                            Some(Notice::Reload(_)) => {
                                let upkeep = Arc::clone(&self);
                                tokio::spawn(async move { upkeep.follow_reload().await });
                            }
                            Some(Notice::Change(change)) => {
                                self.streams.changed(change.kind);
                                let upkeep = Arc::clone(&self);
                                tokio::spawn(async move { upkeep.tenants.heard(change).await });
                            }
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "the change listener cannot connect"),
            }
            if sleep_or_stop(backoff.jittered(chance()), &self.life.stop).await {
                return;
            }
        }
    }

    async fn poll_soon(self: &Arc<Self>) -> Result<(), StoreError> {
        let late = || StoreError::Down("comparing revisions took too long".to_owned());
        timeout(POLL_MAX, self.poll()).await.unwrap_or_else(|_| Err(late()))
    }

    /// Polls revisions until the gateway stops.
    pub(super) async fn poll_revisions(self: Arc<Self>) {
        loop {
            let polled = tokio::select! {
                () = self.life.stop.cancelled() => return,
                polled = self.poll_soon() => polled,
            };
            // jitter, so that replicas that started together drift apart
            let pause = if polled.is_ok() { POLL - jittered(POLL / 5, chance()) } else { POLL_RETRY };
            report("revision poll", polled);
            if self.tenants.is_stale() {
                self.life.pulse.send_replace(());
            }
            if sleep_or_stop(pause, &self.life.stop).await {
                return;
            }
        }
    }

    /// Compares the revisions of all live tenants with the database's, and reloads those that changed.
    pub(super) async fn poll(self: &Arc<Self>) -> Result<(), StoreError> {
        let began = Instant::now();
        let live = self.tenants.live.ids();
        // issuers are the platform's, which is no live tenant
        let asked: Vec<TenantId> = live.iter().copied().chain([TenantId::PLATFORM]).collect();
        let changes = self.store.revisions(&asked).await?;
        let issuers = changes.iter().find(|change| change.kind == RevisionKind::Issuers);
        let reload = self.tenants.reload_issuers(issuers.map_or(0, |change| change.rev));
        match timeout(ISSUERS_MAX, reload).await {
            Ok(Ok(())) => self.tenants.logins.confirm(began),
            // keys go on: only tokens are refused once this lasts too long
            Ok(Err(error)) => tracing::warn!(%error, "issuers could not be reloaded"),
            Err(_) => tracing::warn!("reloading issuers took too long"),
        }
        // a tenant without revisions was deleted long ago, without a notice reaching this replica
        let known: HashSet<TenantId> = changes.iter().map(|change| change.tenant).collect();
        for gone in live.iter().filter(|id| !known.contains(id)).filter_map(|id| self.tenants.live.get(*id)) {
            self.tenants.end(&gone);
        }
        let since = self.tenants.live.confirmed_at().unwrap_or(began);
        let is_behind = |change: &&Change| {
            self.tenants.live.get(change.tenant).is_some_and(|live| live.rev(change.kind) < change.rev)
        };
        let moved: Vec<Change> = changes.iter().filter(is_behind).copied().collect();
        let behind: HashSet<TenantId> = moved.iter().map(|change| change.tenant).collect();
        *self.behind.lock() = moved;
        let said: HashMap<(TenantId, RevisionKind), i64> =
            changes.iter().map(|change| ((change.tenant, change.kind), change.rev)).collect();
        for live in known.difference(&behind).filter_map(|id| self.tenants.live.get(*id)) {
            let said = |kind| said.get(&(live.id, kind)).copied().unwrap_or_default();
            live.fanout.confirm(began, (said(RevisionKind::Catalogue), said(RevisionKind::Access)));
        }
        for change in changes {
            self.catch_up(change, since);
        }
        // a tenant that could not be reloaded has a lag of its own, which its keys check
        self.tenants.live.confirm(began);
        self.tenants.forget_unserved().await
    }

    /// Reloads a changed snapshot without waiting for it: neither a large catalogue nor an unreadable tenant may delay the
    /// others. `since` is when the snapshot was last known to be current.
    fn catch_up(self: &Arc<Self>, change: Change, since: Instant) {
        let Some(live) = self.tenants.live.get(change.tenant) else { return };
        let is_access = change.kind == RevisionKind::Access;
        let upkeep = Arc::clone(self);
        if live.rev(change.kind) >= change.rev {
            if is_access {
                live.lag.end();
            }
        } else if !is_access {
            tokio::spawn(async move { upkeep.tenants.follow(change).await });
        } else if live.lag.begin(since) {
            tokio::spawn(async move { upkeep.confirm_access(&live, change).await });
        }
    }

    /// Updates a tenant's keys. A tenant whose rows this version cannot read is ended: its keys stop working here, without
    /// effect on others.
    async fn confirm_access(&self, live: &Arc<LiveTenant>, change: Change) {
        let _turn = self.tenants.live.access_reloads.acquire().await;
        match self.tenants.reload(live, change.kind, change.rev).await {
            Ok(()) => live.lag.end(),
            Err(error) if error.is_unreadable() => {
                tracing::error!(%error, tenant = %live.id, "a tenant's keys cannot be read by this version");
                self.tenants.live.forget(live);
            }
            Err(error) => {
                tracing::warn!(%error, tenant = %live.id, "a tenant's keys could not be reloaded");
                live.lag.give_up();
                live.fanout.check();
            }
        }
    }
}
