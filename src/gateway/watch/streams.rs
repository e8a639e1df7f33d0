//! Which servers' announcements this replica awaits: on the one that holds the lease for re-listing, all
//! enabled and connected ones up to a bound; on the others none.

mod damping;
mod stream;
mod watched;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::watched::Watched;
use super::relist::RELIST_PAGE;
use super::{Gateway, LEASE, report};
use crate::domain::id::ServerId;
use crate::store::{Applied, DueServer, HEARTBEAT_TTL_S, Kind, StoreError};

/// Streams that are being opened at the same time.
const OPENING_MAX: usize = 32;
/// Changes of servers are gathered for this long before they are looked at.
const GATHER: Duration = Duration::from_millis(300);

/// The streams that this replica holds.
#[derive(Debug)]
pub(super) struct Streams {
    held: Mutex<Held>,
    /// A server may have been added, changed, connected or removed.
    changed: Notify,
    opening: Semaphore,
}

#[derive(Debug, Default)]
struct Held {
    /// When this replica last knew that the lease was its own.
    lease_confirmed: Option<Instant>,
    by_server: HashMap<ServerId, Entry>,
}

#[derive(Debug)]
struct Entry {
    version: i64,
    is_connected: bool,
    watched: Arc<Watched>,
    _stop: DropGuard,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { held: Mutex::default(), changed: Notify::new(), opening: Semaphore::new(OPENING_MAX) }
    }
}

impl Streams {
    /// Follows a change notice.
    pub(super) fn changed(&self, kind: Kind) {
        if kind == Kind::Catalogue && self.is_holder() {
            self.changed.notify_one();
        }
    }

    /// Notes what a listing found that was made because it was time.
    pub(super) fn relisted(&self, due: &DueServer, found: &Applied) {
        if let Some(watched) = self.watched(due) {
            watched.relisted(Instant::now(), found.written + found.removed);
        }
    }

    fn watched(&self, due: &DueServer) -> Option<Arc<Watched>> {
        let held = self.held();
        held.by_server
            .get(&due.server)
            .filter(|entry| entry.version == due.version)
            .map(|entry| Arc::clone(&entry.watched))
    }

    fn is_holder(&self) -> bool {
        self.held().lease_confirmed.is_some()
    }

    /// The lease is another's, or has not been confirmed for so long that it may be.
    fn let_go(&self) {
        let gone = std::mem::take(&mut *self.held());
        drop(gone);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Ends the streams of servers that are not wanted any more, or not as they were.
    fn keep_only(&mut self, wanted: &HashMap<ServerId, DueServer>) {
        self.by_server.retain(|id, entry| wanted.get(id).is_some_and(|due| due.version == entry.version));
    }
}

impl Gateway {
    /// Keeps the set of streams right for as long as the gateway runs.
    pub(super) async fn hold_streams(self: Arc<Self>) {
        loop {
            match timeout(LEASE, self.adjust_streams()).await {
                Ok(adjusted) => report("awaiting announcements", adjusted),
                Err(_) => tracing::warn!("the database did not say in time which servers to watch"),
            }
            let doubtful = Duration::from_secs_f64(HEARTBEAT_TTL_S);
            if self.upkeep.streams.held().lease_confirmed.is_some_and(|at| at.elapsed() >= doubtful) {
                self.upkeep.streams.let_go();
            }
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = sleep(LEASE) => {}
                () = self.upkeep.streams.changed.notified() => sleep(GATHER).await,
            }
        }
        self.upkeep.streams.let_go();
    }

    /// Opens what is missing and ends what is not wanted, if this replica holds the lease.
    async fn adjust_streams(self: &Arc<Self>) -> Result<(), StoreError> {
        let streams = &self.upkeep.streams;
        if self.store.take_lease("relist", self.replica).await?.is_none() {
            streams.let_go();
            return Ok(());
        }
        streams.held().lease_confirmed = Some(Instant::now());
        let wanted = self.servers_to_watch().await?;
        let mut held = streams.held();
        held.keep_only(&wanted);
        for (id, due) in wanted {
            if let Some(entry) = held.by_server.get_mut(&id) {
                if due.is_connected && !std::mem::replace(&mut entry.is_connected, due.is_connected) {
                    entry.watched.wake.notify_one();
                }
                entry.is_connected = due.is_connected;
                continue;
            }
            if due.is_connected && held.by_server.len() < self.options.upstream_streams_max {
                held.by_server.insert(id, self.start_stream(due));
            }
        }
        Ok(())
    }

    fn start_stream(self: &Arc<Self>, due: DueServer) -> Entry {
        let stop = CancellationToken::new();
        let watched = Arc::new(Watched::default());
        let entry = Entry {
            version: due.version,
            is_connected: due.is_connected,
            watched: Arc::clone(&watched),
            _stop: stop.clone().drop_guard(),
        };
        tokio::spawn(Arc::clone(self).watch_server(due, watched, stop));
        entry
    }

    async fn servers_to_watch(&self) -> Result<HashMap<ServerId, DueServer>, StoreError> {
        let mut wanted = HashMap::new();
        let mut after = ServerId(uuid::Uuid::nil());
        loop {
            let page = self.store.enabled_servers(after, RELIST_PAGE).await?;
            let Some(last) = page.last() else { return Ok(wanted) };
            after = last.server;
            wanted.extend(page.into_iter().map(|due| (due.server, due)));
        }
    }

    /// Whether a server need not be listed: its changes are announced, and it has just answered.
    pub(super) async fn announces_and_answers(&self, due: &DueServer) -> bool {
        let Some(watched) = self.upkeep.streams.watched(due) else { return false };
        if !watched.can_wait(Instant::now(), self.options.relist_announced_interval) {
            return false;
        }
        let Ok(Some(server)) = self.server_as_due(due).await else { return false };
        let Ok(target) = self.listing_target(due.tenant, &server).await else { return false };
        if self.upstreams.connection(&target).ping().await.is_err() {
            return false;
        }
        matches!(self.store.server_answered(due.tenant, due.server, due.version).await, Ok(true))
    }
}
