//! Streams of the activity log: each waits here until its tenant has new records.
//!
//! One query per replica and [`LOOK`] covers all followed tenants; without followers there is none. Each stream then reads
//! the new records from its own cursor, so a slow reader costs no memory and misses none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::Log;
use super::reports::fitting;
use crate::domain::id::TenantId;
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::life::sleep_or_stop;
use crate::gateway::tenants::Caller;
use crate::store::{ActivityFilter, Commit, Tail};

/// Poll interval for new records.
const LOOK: Duration = Duration::from_millis(250);
/// Most records per query of a stream.
const PAGE_ROWS: i64 = 500;
/// Longest time since the beginning of a call whose end is still streamed: longer than any call lasts.
const BEGAN_MAX: TimeDelta = TimeDelta::days(7);
/// Most that a replica's clock may be ahead.
const SKEW_MAX: TimeDelta = TimeDelta::days(1);

/// Age limit of the records in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailReach {
    /// Records that began within [`BEGAN_MAX`], and may therefore still end.
    Recent,
    /// All kept records, for a client that resumes after a long time.
    Whole,
}

/// Followers of activity logs on this replica, by tenant.
#[derive(Debug, Default)]
pub(super) struct Tails {
    tenants: Mutex<HashMap<TenantId, Watched>>,
    /// Notified when a follower subscribes.
    came: Notify,
}

/// A tenant's activity log with followers.
#[derive(Debug, Default)]
struct Watched {
    tell: watch::Sender<u64>,
    /// Commit horizon up to which the database was polled. It begins at zero, so that the first poll notifies new followers
    /// even without news: they read once too often, and miss no record.
    looked: u64,
}

impl Tails {
    fn tell(&self, looked_at: &[(TenantId, u64)], news: &[TenantId], horizon: u64) {
        let mut tenants = self.tenants.lock();
        for (tenant, _) in looked_at {
            if let Some(watched) = tenants.get_mut(tenant) {
                watched.looked = horizon;
                if news.contains(tenant) {
                    watched.tell.send_replace(horizon);
                }
            }
        }
    }
}

/// A follower's subscription to new records; ended when dropped.
#[derive(Debug)]
pub struct News {
    tails: Arc<Tails>,
    tenant: TenantId,
    /// Horizon up to which there are records to read.
    horizon: Option<watch::Receiver<u64>>,
}

impl News {
    /// Waits until records were committed since the last call. Cancel-safe: dropping the future loses no notification.
    pub async fn wait(&mut self) {
        // the sender lives as long as its map entry, which exists while there are receivers
        let is_news = match &mut self.horizon {
            Some(horizon) => horizon.changed().await.is_ok(),
            None => false,
        };
        if !is_news {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for News {
    fn drop(&mut self) {
        let mut tenants = self.tails.tenants.lock();
        // dropped under the lock: of two followers that leave at once, the second sees that it is the last
        self.horizon = None;
        if tenants.get(&self.tenant).is_some_and(|watched| watched.tell.receiver_count() == 0) {
            tenants.remove(&self.tenant);
        }
    }
}

impl Log {
    /// Begins to follow the log. Returns the current position, and a subscription to later records.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, or [`GatewayError::Unavailable`].
    pub async fn follow_activity(&self, caller: &Caller) -> Result<(Commit, News), GatewayError> {
        caller.authorise(Action::ReadOwnActivity)?;
        let news = self.subscribe(caller.tenant_id());
        let horizon = self.store.activity_horizon().await;
        let horizon = horizon.map_err(|error| GatewayError::from_store(error, "activity record"))?;
        Ok((Commit::before(horizon), news))
    }

    fn subscribe(&self, tenant: TenantId) -> News {
        let horizon = self.tails.tenants.lock().entry(tenant).or_default().tell.subscribe();
        self.tails.came.notify_one();
        News { tails: Arc::clone(&self.tails), tenant, horizon: Some(horizon) }
    }

    /// Returns the next records after a position, in commit order. A key that may see only its own records gets only those.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Busy`] if too many streams of the tenant read at once, or
    /// [`GatewayError::Unavailable`].
    pub async fn tail_activity(
        &self,
        caller: &Caller,
        filter: &ActivityFilter,
        after: Commit,
        reach: TailReach,
    ) -> Result<Tail, GatewayError> {
        let now = clock::now();
        let start = match reach {
            TailReach::Recent => now - BEGAN_MAX,
            TailReach::Whole => DateTime::UNIX_EPOCH,
        };
        let filter = ActivityFilter { start, end: now + SKEW_MAX, ..filter.clone() };
        let Some(filter) = caller.visible(filter)? else {
            return Ok(Tail { rows: Vec::new(), end: after, is_cut: false });
        };
        let _turn = self.tail_lane.enter(caller.tenant_id()).await?;
        let tail = self.store.tail_activity(caller.tenant_id(), &filter, after, PAGE_ROWS).await;
        let mut tail = tail.map_err(|error| GatewayError::from_store(error, "activity record"))?;
        let kept = fitting(tail.rows.iter().map(|(_, row)| row));
        if kept < tail.rows.len() {
            tail.rows.truncate(kept);
            tail.is_cut = true;
            tail.end = tail.rows.last().map_or(after, |(at, _)| *at);
        }
        Ok(tail)
    }

    /// Polls for new records while there are followers, and notifies them.
    pub(in crate::gateway) async fn tell_of_activity(self: Arc<Self>) {
        loop {
            let watched: Vec<(TenantId, u64)> =
                self.tails.tenants.lock().iter().map(|(tenant, watched)| (*tenant, watched.looked)).collect();
            if watched.is_empty() {
                tokio::select! {
                    () = self.life.stop.cancelled() => return,
                    () = self.tails.came.notified() => continue,
                }
            }
            match self.store.tenants_with_activity(&watched).await {
                Ok((news, horizon)) => self.tails.tell(&watched, &news, horizon),
                Err(error) => tracing::debug!(%error, "the log could not be looked at; it is tried again"),
            }
            if sleep_or_stop(LOOK, &self.life.stop).await {
                return;
            }
        }
    }
}
