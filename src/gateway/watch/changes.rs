//! Following the database: a listener for changes, and a poll of revisions that finds what it missed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use super::{Gateway, report, sleep_or_stop};
use crate::domain::id::TenantId;
use crate::store::{Backoff, Change, Kind, Notice, StoreError};

/// Tenants whose keys are reloaded at the same time by the poll.
const ACCESS_RELOADS_MAX: usize = 4;
/// Pauses between attempts to listen; what is missed meanwhile is found by the poll.
const LISTEN_RETRY_MIN: Duration = Duration::from_millis(500);
const LISTEN_RETRY_MAX: Duration = Duration::from_secs(5);

impl Gateway {
    /// Owns the listener for as long as the gateway runs: reconnects, compares revisions, goes on.
    pub(super) async fn listen_to_changes(self: Arc<Self>) {
        let mut backoff = Backoff::new(LISTEN_RETRY_MIN, LISTEN_RETRY_MAX);
        while !self.stop.is_cancelled() {
            match self.store.listen().await {
                Ok(mut listener) => {
                    backoff.reset();
                    // notices sent while nobody listened are lost: compare first
                    report("revision poll", self.poll().await);
                    loop {
                        let notice = tokio::select! {
                            () = self.stop.cancelled() => return,
                            notice = listener.next() => notice,
                        };
                        match notice {
                            None => break,
                            Some(Notice::Cancel(notice)) => self.cancelled_elsewhere(notice),
                            Some(Notice::Change(change)) => {
                                self.upkeep.streams.changed(change.kind);
                                let gateway = Arc::clone(&self);
                                tokio::spawn(async move { gateway.follow(change).await });
                            }
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "the change listener cannot connect"),
            }
            if sleep_or_stop(backoff.pause(), &self.stop).await {
                return;
            }
        }
    }

    /// Compares the revisions of all live tenants with the database's and reloads those that moved.
    pub(super) async fn poll(self: &Arc<Self>) -> Result<(), StoreError> {
        let began = Instant::now();
        let live = self.tenants.ids();
        let changes = self.store.revisions(&live).await?;
        // a tenant that has none is long deleted: nobody told, and nobody asked for an hour
        let known: HashSet<TenantId> = changes.iter().map(|change| change.tenant).collect();
        for gone in live.iter().filter(|id| !known.contains(id)).filter_map(|id| self.tenants.get(*id)) {
            self.end(&gone);
        }
        let (access, catalogues): (Vec<Change>, Vec<Change>) =
            changes.into_iter().partition(|change| change.kind == Kind::Access);
        let unconfirmed = futures_util::stream::iter(access)
            .map(|change| async move { self.confirm_access(change).await })
            .buffer_unordered(ACCESS_RELOADS_MAX)
            .filter(|confirmed| std::future::ready(!confirmed))
            .count()
            .await;
        if unconfirmed == 0 {
            self.tenants.confirm(began);
        }
        // large catalogues must not hold up the confirmation of keys
        for change in catalogues.into_iter().filter(|change| self.tenants.is_behind(change)) {
            let gateway = Arc::clone(self);
            tokio::spawn(async move { gateway.follow(change).await });
        }
        Ok(())
    }

    /// Whether a tenant's keys are known to be current. One whose rows this version cannot read is
    /// forgotten: its keys stop working here, and nobody else notices.
    async fn confirm_access(&self, change: Change) -> bool {
        let Some(live) = self.tenants.get(change.tenant) else { return true };
        match self.reload(&live, change.kind, change.rev).await {
            Ok(()) => true,
            Err(StoreError::Inconsistent { .. }) => {
                tracing::error!(tenant = %change.tenant, "a tenant's keys cannot be read by this version");
                self.tenants.forget(change.tenant);
                true
            }
            Err(error) => {
                tracing::warn!(%error, tenant = %change.tenant, "a tenant's keys could not be reloaded");
                false
            }
        }
    }
}
