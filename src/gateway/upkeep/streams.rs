//! Announcement streams of servers. The replica that holds the lease for re-listing awaits those of all enabled and
//! connected servers. A bound applies, of which one tenant has at most a quarter; other replicas await none. A server
//! without a working stream gives its slot to others until it is tried again.

mod stream;
mod watched;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::stream::BACKOFF;
use self::watched::Watched;
use super::relist::RELIST_PAGE;
use super::{LEASE, Upkeep, report};
use crate::domain::backoff::Backoff;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::store::{Applied, DueServer, HEARTBEAT_TTL_S, ReplicaLease, RevisionKind, StoreError};

/// Most streams being opened at the same time.
const OPENING_MAX: usize = 32;
/// Interval between comparisons of the streams with the servers in the database; sooner after a change.
const LOOK: Duration = Duration::from_secs(5);
/// Deadline of such a comparison.
const ADJUST_MAX: Duration = Duration::from_secs(5);
/// Time for which changes of servers are gathered before a comparison (debounce).
const GATHER: Duration = Duration::from_millis(300);

/// Announcement streams that this replica holds.
#[derive(Debug)]
pub(super) struct UpstreamStreams {
    held: Mutex<Held>,
    /// Notified when a server may have been added, changed, connected or removed.
    changed: Notify,
    opening: Semaphore,
}

#[derive(Debug, Default)]
struct Held {
    /// Lease, and the time at which this replica last knew that it held it.
    lease: Option<(ReplicaLease, Instant)>,
    by_server: HashMap<ServerId, Entry>,
    /// Servers without a slot until their next attempt.
    resting: HashMap<ServerId, Rest>,
    /// True if a server found no free slot at the last comparison.
    is_short: bool,
}

#[derive(Debug)]
struct Rest {
    version: i64,
    until: Instant,
    backoff: Backoff,
}

#[derive(Debug)]
struct Entry {
    tenant: TenantId,
    version: i64,
    watched: Arc<Watched>,
    _stop: DropGuard,
}

impl Default for UpstreamStreams {
    fn default() -> UpstreamStreams {
        UpstreamStreams {
            held: Mutex::default(),
            changed: Notify::new(),
            opening: Semaphore::new(OPENING_MAX),
        }
    }
}

impl UpstreamStreams {
    /// Triggers a comparison after a change notice, if this replica holds the lease.
    pub(super) fn changed(&self, kind: RevisionKind) {
        if kind == RevisionKind::Catalogue && self.is_holder() {
            self.changed.notify_one();
        }
    }

    /// Notes the result of a scheduled listing.
    pub(super) fn relisted(&self, due: &DueServer, found: &Applied) {
        if let Some(watched) = self.watched(due) {
            match found.held {
                None => watched.relisted(Instant::now(), [found.written + found.removed, found.offers]),
                Some(_) => watched.holds_back(),
            }
        }
    }

    fn watched(&self, due: &DueServer) -> Option<Arc<Watched>> {
        let held = self.held.lock();
        held.by_server
            .get(&due.server)
            .filter(|entry| entry.version == due.version)
            .map(|entry| Arc::clone(&entry.watched))
    }

    /// Ends a server's task: its slot is free for others until `until`.
    fn rest(&self, due: &DueServer, watched: &Arc<Watched>, backoff: Backoff, until: Instant) {
        let mut held = self.held.lock();
        // the slot may belong to a successor already
        if held.by_server.get(&due.server).is_none_or(|entry| !Arc::ptr_eq(&entry.watched, watched)) {
            return;
        }
        held.by_server.remove(&due.server);
        held.resting.insert(due.server, Rest { version: due.version, until, backoff });
        if held.is_short {
            self.changed.notify_one();
        }
    }

    /// Returns the number of streams.
    pub(super) fn held_now(&self) -> usize {
        self.held.lock().by_server.len()
    }

    fn is_holder(&self) -> bool {
        self.held.lock().lease.is_some()
    }

    /// Returns the lease under which this replica lists servers now.
    fn lease(&self) -> Option<ReplicaLease> {
        self.held.lock().lease.map(|(lease, _)| lease)
    }

    /// Notes that this replica holds the lease. Streams from an earlier lease are dropped: another replica has listed the
    /// servers since.
    fn confirm(&self, lease: ReplicaLease, now: Instant) {
        if self.lease().is_some_and(|before| before != lease) {
            self.let_go();
        }
        self.held.lock().lease = Some((lease, now));
    }

    /// Drops all streams, because a write showed that this lease is lost.
    fn lost(&self, lease: ReplicaLease) {
        if self.lease() == Some(lease) {
            self.let_go();
            self.changed.notify_one();
        }
    }

    /// Drops all streams, because another replica holds the lease, or may hold it after a long time without confirmation.
    fn let_go(&self) {
        let gone = std::mem::take(&mut *self.held.lock());
        drop(gone);
    }
}

impl Held {
    /// Ends the streams of servers that are no longer wanted, have changed, or are not connected. They are opened again once
    /// the servers qualify.
    fn keep_only(&mut self, wanted: &HashMap<ServerId, DueServer>) {
        let is_same = |id: &ServerId, version| {
            wanted.get(id).is_some_and(|due: &DueServer| due.is_connected && due.version == version)
        };
        self.by_server.retain(|id, entry| is_same(id, entry.version));
        self.resting.retain(|id, rest| is_same(id, rest.version));
    }

    /// Returns the servers that get a slot, each with the backoff of its earlier attempts.
    fn admit(
        &mut self,
        wanted: impl Iterator<Item = DueServer>,
        places: usize,
        now: Instant,
    ) -> Vec<(DueServer, Backoff)> {
        let capacity = Amount::items(places);
        let mut taken = Shares::default();
        for entry in self.by_server.values() {
            taken.take(entry.tenant, Amount::ONE);
        }
        self.is_short = false;
        let mut admitted = Vec::new();
        for due in wanted.filter(|due| due.is_connected) {
            let rests = self.resting.get(&due.server).is_some_and(|rest| now < rest.until);
            if rests || self.by_server.contains_key(&due.server) {
                continue;
            }
            let has_share = taken.of(&due.tenant).has_room(Amount::ONE, capacity, TENANT_PART);
            if taken.all().items >= places || !has_share {
                self.is_short = true;
                continue;
            }
            taken.take(due.tenant, Amount::ONE);
            let backoff = self.resting.remove(&due.server).map_or(BACKOFF, |rest| rest.backoff);
            admitted.push((due, backoff));
        }
        admitted
    }
}

impl Upkeep {
    /// Keeps the set of streams up to date until the gateway stops.
    pub(super) async fn hold_streams(self: Arc<Self>) {
        let mut looked = None;
        loop {
            match timeout(ADJUST_MAX, self.adjust_streams(&mut looked)).await {
                Ok(adjusted) => report("awaiting announcements", adjusted),
                Err(_) => tracing::warn!("the database did not say in time which servers to watch"),
            }
            let doubtful = Duration::from_secs_f64(HEARTBEAT_TTL_S);
            if self.streams.held.lock().lease.is_some_and(|(_, at)| at.elapsed() >= doubtful) {
                self.streams.let_go();
            }
            tokio::select! {
                () = self.life.stop.cancelled() => break,
                () = sleep(LEASE) => {}
                () = self.streams.changed.notified() => {
                    sleep(GATHER).await;
                    looked = None;
                }
            }
        }
        self.streams.let_go();
    }

    /// Opens missing streams and ends unwanted ones, if this replica holds the lease and a comparison is due.
    async fn adjust_streams(self: &Arc<Self>, looked: &mut Option<Instant>) -> Result<(), StoreError> {
        let streams = &self.streams;
        let Some(lease) = self.store.take_lease("relist", self.replica).await? else {
            *looked = None;
            streams.let_go();
            return Ok(());
        };
        if streams.lease() != Some(lease) {
            *looked = None;
        }
        streams.confirm(lease, Instant::now());
        if looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        let wanted = self.servers_to_watch().await?;
        *looked = Some(Instant::now());
        let mut held = streams.held.lock();
        held.keep_only(&wanted);
        let places = self.options.upstream_streams_max;
        for (due, backoff) in held.admit(wanted.into_values(), places, Instant::now()) {
            held.by_server.insert(due.server, self.start_stream(due, backoff));
        }
        Ok(())
    }

    fn start_stream(self: &Arc<Self>, due: DueServer, backoff: Backoff) -> Entry {
        let stop = CancellationToken::new();
        let watched = Arc::new(Watched::default());
        let entry = Entry {
            tenant: due.tenant,
            version: due.version,
            watched: Arc::clone(&watched),
            _stop: stop.clone().drop_guard(),
        };
        tokio::spawn(Arc::clone(self).watch_server(due, watched, backoff, stop));
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

    /// Returns whether a server need not be listed: its changes are announced, and it has just answered a ping.
    pub(super) async fn announces_and_answers(&self, due: &DueServer, lease: &ReplicaLease) -> bool {
        let Some(watched) = self.streams.watched(due) else { return false };
        if !watched.can_wait(Instant::now(), self.options.relist_announced_interval) {
            return false;
        }
        let Ok(Some(server)) = self.server_as_due(due).await else { return false };
        let Ok(target) = self.servers.listing_target(due.tenant, &server).await else { return false };
        if self.upstreams.connection(&target).ping().await.is_err() {
            return false;
        }
        matches!(self.store.server_answered(due.tenant, due.server, due.version, lease).await, Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::ReplicaId;

    fn server(tenant: u128, number: u128) -> DueServer {
        DueServer {
            tenant: TenantId(Uuid::from_u128(tenant)),
            server: ServerId(Uuid::from_u128(tenant * 1000 + number)),
            name: format!("s{number}"),
            version: 1,
            is_connected: true,
            is_pages: false,
        }
    }

    fn hold(streams: &UpstreamStreams, servers: &[DueServer], places: usize, now: Instant) -> Vec<DueServer> {
        let mut held = streams.held.lock();
        held.keep_only(&servers.iter().map(|due| (due.server, due.clone())).collect());
        let admitted = held.admit(servers.iter().cloned(), places, now);
        for (due, _) in &admitted {
            let stop = CancellationToken::new().drop_guard();
            let entry = Entry { tenant: due.tenant, version: 1, watched: Arc::default(), _stop: stop };
            held.by_server.insert(due.server, entry);
        }
        admitted.into_iter().map(|(due, _)| due).collect()
    }

    #[test]
    fn what_was_opened_under_another_lease_is_let_go() {
        let (streams, now) = (UpstreamStreams::default(), Instant::now());
        let lease = |epoch| ReplicaLease { name: "relist", replica: ReplicaId(Uuid::from_u128(9)), epoch };
        streams.confirm(lease(1), now);
        assert_eq!(hold(&streams, &[server(1, 1)], 8, now).len(), 1);
        streams.confirm(lease(1), now);
        streams.lost(lease(0));
        assert_eq!(streams.held.lock().by_server.len(), 1);
        streams.confirm(lease(3), now);
        assert!(streams.held.lock().by_server.is_empty() && streams.lease() == Some(lease(3)));
        assert_eq!(hold(&streams, &[server(1, 1)], 8, now).len(), 1);
        streams.lost(lease(3));
        assert!(streams.held.lock().by_server.is_empty() && !streams.is_holder());
    }

    #[test]
    fn a_tenant_has_at_most_a_quarter_of_the_places() {
        let (streams, now) = (UpstreamStreams::default(), Instant::now());
        let mut servers: Vec<DueServer> = (0..20).map(|n| server(1, n)).collect();
        assert_eq!(hold(&streams, &servers, 8, now).len(), 2);
        servers.extend([server(2, 1), server(3, 1)]);
        assert_eq!(hold(&streams, &servers, 8, now), [server(2, 1), server(3, 1)]);
        assert!(hold(&streams, &servers, 8, now).is_empty());
    }

    #[test]
    fn who_rests_or_is_not_connected_has_no_place() {
        let (streams, now) = (UpstreamStreams::default(), Instant::now());
        let mut servers = vec![server(1, 1), server(1, 2)];
        assert_eq!(hold(&streams, &servers, 1, now), [server(1, 1)]);
        let rest = |backoff| {
            let watched = Arc::clone(&streams.held.lock().by_server[&server(1, 1).server].watched);
            streams.rest(&server(1, 1), &watched, backoff, now + LEASE);
        };
        rest(BACKOFF);
        assert_eq!(hold(&streams, &servers, 1, now), [server(1, 2)]);
        servers[1].is_connected = false;
        assert!(hold(&streams, &servers, 1, now).is_empty(), "the first rests");
        assert_eq!(hold(&streams, &servers, 1, now + LEASE), [server(1, 1)]);
        rest(BACKOFF);
        servers[0].is_connected = false;
        assert!(hold(&streams, &servers, 1, now).is_empty());
        servers[0].is_connected = true;
        assert_eq!(hold(&streams, &servers, 1, now), [server(1, 1)], "who comes back is tried at once");
    }
}
