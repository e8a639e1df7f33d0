//! Following the activity log while it is written: streams wait here until their tenant has something new.
//!
//! One query per replica and [`LOOK`] asks for all tenants that somebody watches, and none when nobody does. What is
//! new each stream reads for itself, from the place where it is: a slow reader costs no memory and misses nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
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

/// How often somebody looks whether there is something new.
const LOOK: Duration = Duration::from_millis(250);
/// Records read at once.
const PAGE_ROWS: i64 = 500;
/// How long ago a call may have begun whose end is told: longer than any call lasts.
const BEGAN_MAX: TimeDelta = TimeDelta::days(7);
/// How far ahead a replica's clock may be.
const SKEW_MAX: TimeDelta = TimeDelta::days(1);

/// How old the records are that a stream may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailReach {
    /// What may still end: they began within [`BEGAN_MAX`].
    Recent,
    /// All that are kept: for who comes back after a long time.
    Whole,
}

/// Who watches which tenant's log on this replica.
#[derive(Debug, Default)]
pub(super) struct Tails {
    tenants: Mutex<HashMap<TenantId, Watched>>,
    /// Somebody came.
    came: Notify,
}

/// A tenant's log that somebody watches.
#[derive(Debug, Default)]
struct Watched {
    tell: watch::Sender<u64>,
    /// Up to where it was looked at. Zero at first, which makes one piece of news of what is no news: whoever came
    /// just now reads once more than it must, and misses nothing.
    looked: u64,
}

impl Tails {
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Watched>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, looked_at: &[(TenantId, u64)], news: &[TenantId], horizon: u64) {
        let mut tenants = self.lock();
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

/// A watcher's turn to hear of news; given up when dropped.
#[derive(Debug)]
pub struct News {
    tails: Arc<Tails>,
    tenant: TenantId,
    /// Up to where there is something to read.
    horizon: Option<watch::Receiver<u64>>,
}

impl News {
    /// Waits until something was committed since it was last asked. Forgetting about the answer loses nothing.
    pub async fn wait(&mut self) {
        // the sender is gone only when the program ends, the receiver when this is dropped
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
        let mut tenants = self.tails.lock();
        // given up under the lock: of two that go at once, the second sees that it is the last
        self.horizon = None;
        if tenants.get(&self.tenant).is_some_and(|watched| watched.tell.receiver_count() == 0) {
            tenants.remove(&self.tenant);
        }
    }
}

impl Log {
    /// Begins to follow the log: where it is now, and word of what comes.
    pub async fn follow_activity(&self, caller: &Caller) -> Result<(Commit, News), GatewayError> {
        caller.authorise(Action::ReadOwnActivity)?;
        let news = self.subscribe(caller.tenant_id());
        let horizon = self.store.activity_horizon().await;
        let horizon = horizon.map_err(|error| GatewayError::from_store(error, "activity record"))?;
        Ok((Commit::before(horizon), news))
    }

    fn subscribe(&self, tenant: TenantId) -> News {
        let horizon = self.tails.lock().entry(tenant).or_default().tell.subscribe();
        self.tails.came.notify_one();
        News { tails: Arc::clone(&self.tails), tenant, horizon: Some(horizon) }
    }

    /// The next records after a place, in the order of their commits; a key that may only see its own sees those.
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

    /// Looks for news for as long as somebody watches.
    pub(in crate::gateway) async fn tell_of_activity(self: Arc<Self>) {
        loop {
            let watched: Vec<(TenantId, u64)> =
                self.tails.lock().iter().map(|(tenant, watched)| (*tenant, watched.looked)).collect();
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
