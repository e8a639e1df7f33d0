//! Watches of resources on this replica: one per server, shared by all streams that are about its resources.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::StreamLine;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::gateway::Lifecycle;
use crate::gateway::catalog::ServerEntry;
use crate::upstream::{Pool, Target, WATCHED_MAX};

/// Most streams to servers being opened at the same time.
const OPENING_MAX: usize = 32;

/// Tenant and id of a server.
pub(super) type WatchKey = (TenantId, ServerId);

/// Watches that this replica holds.
pub(super) struct Watches {
    pub(super) upstreams: Arc<Pool>,
    life: Arc<Lifecycle>,
    /// Most servers that are watched; of one tenant at most a quarter.
    places: usize,
    pub(super) opening: Semaphore,
    held: Mutex<HeldWatches>,
}

#[derive(Default)]
struct HeldWatches {
    by_server: HashMap<WatchKey, ServerWatch>,
    taken: Shares<TenantId>,
}

struct ServerWatch {
    target: Target,
    resources: HashMap<String, WatchedResource>,
    /// Notified when the target or the set of resources has changed.
    moved: Arc<Notify>,
    _stop: DropGuard,
}

#[derive(Default)]
struct WatchedResource {
    /// Number of updates so far; 0 until the resource is watched for the first time.
    version: Arc<AtomicU64>,
    lines: Vec<Arc<StreamLine>>,
}

/// Address of a watched server, and the resources in question.
pub(super) struct WatchOrder {
    pub(super) target: Target,
    /// URIs, sorted.
    pub(super) uris: Vec<String>,
}

impl WatchOrder {
    /// Returns whether another order leads to the same server in the same way.
    pub(super) fn has_target_of(&self, other: &WatchOrder) -> bool {
        is_same(&self.target, &other.target)
    }
}

fn is_same(one: &Target, other: &Target) -> bool {
    one.version == other.version && one.upstream.credential() == other.upstream.credential()
}

/// Hold of one stream on the watch of one resource, which ends with its last hold.
pub(super) struct WatchHold {
    watches: Arc<Watches>,
    key: WatchKey,
    uri: String,
    version: Arc<AtomicU64>,
    line: Arc<StreamLine>,
}

impl Watches {
    pub(super) fn new(upstreams: &Arc<Pool>, life: &Arc<Lifecycle>, places: usize) -> Arc<Watches> {
        Arc::new(Watches {
            upstreams: Arc::clone(upstreams),
            life: Arc::clone(life),
            places,
            opening: Semaphore::new(OPENING_MAX),
            held: Mutex::default(),
        })
    }

    /// Watches a resource for a stream, from now on or from when its server can be reached. Returns `None` if there is no
    /// room for one more.
    pub(super) fn hold(
        self: &Arc<Self>,
        server: &ServerEntry,
        uri: &str,
        line: &Arc<StreamLine>,
    ) -> Option<WatchHold> {
        // programs say nothing of updates
        if server.target.upstream.is_run_here() || server.has_own_logins() {
            return None;
        }
        let key = key_of(server);
        let mut held = self.held.lock();
        if !held.by_server.contains_key(&key) {
            let capacity = Amount::items(self.places);
            let has_share = held.taken.of(&key.0).has_room(Amount::ONE, capacity, TENANT_PART);
            if held.taken.all().items >= self.places || !has_share {
                return None;
            }
            held.taken.take(key.0, Amount::ONE);
            let watch = self.begin(key, &server.target);
            held.by_server.insert(key, watch);
        }
        let watch = held.by_server.get_mut(&key)?;
        let is_known = watch.resources.contains_key(uri);
        if !is_known && watch.resources.len() >= WATCHED_MAX {
            return None;
        }
        let resource = watch.resources.entry(uri.to_owned()).or_default();
        resource.lines.push(Arc::clone(line));
        let version = Arc::clone(&resource.version);
        watch.follow(server);
        if !is_known {
            watch.moved.notify_one();
        }
        Some(WatchHold {
            watches: Arc::clone(self),
            key,
            uri: uri.to_owned(),
            version,
            line: Arc::clone(line),
        })
    }

    fn begin(self: &Arc<Self>, key: WatchKey, target: &Target) -> ServerWatch {
        let stop = self.life.stop.child_token();
        let moved = Arc::new(Notify::new());
        self.spawn(key, &moved, &stop);
        ServerWatch { target: target.clone(), resources: HashMap::new(), moved, _stop: stop.drop_guard() }
    }

    fn spawn(self: &Arc<Self>, key: WatchKey, moved: &Arc<Notify>, stop: &CancellationToken) {
        let (watches, moved, stop) = (Arc::clone(self), Arc::clone(moved), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = watches.watch_server(key, &moved) => {}
            }
        });
    }

    /// Returns what is to be watched at a server; `None` if nothing is.
    pub(super) fn order(&self, key: &WatchKey) -> Option<WatchOrder> {
        let held = self.held.lock();
        let watch = held.by_server.get(key)?;
        let mut uris: Vec<String> = watch.resources.keys().cloned().collect();
        uris.sort_unstable();
        Some(WatchOrder { target: watch.target.clone(), uris })
    }

    /// Notes updates of resources, and tells the streams that are about them.
    pub(super) fn updated<'a>(&self, key: &WatchKey, uris: impl IntoIterator<Item = &'a String>) {
        let held = self.held.lock();
        let Some(watch) = held.by_server.get(key) else { return };
        for resource in uris.into_iter().filter_map(|uri| watch.resources.get(uri)) {
            resource.version.fetch_add(1, Ordering::SeqCst);
            resource.lines.iter().for_each(|line| line.told.notify_one());
        }
    }

    fn release(&self, hold: &WatchHold) {
        let mut held = self.held.lock();
        let Some(watch) = held.by_server.get_mut(&hold.key) else { return };
        if let Some(resource) = watch.resources.get_mut(&hold.uri) {
            let own = resource.lines.iter().position(|line| Arc::ptr_eq(line, &hold.line));
            own.map(|at| resource.lines.swap_remove(at));
            if resource.lines.is_empty() {
                watch.resources.remove(&hold.uri);
                watch.moved.notify_one();
            }
        }
        if watch.resources.is_empty() {
            held.by_server.remove(&hold.key);
            held.taken.give_back(&hold.key.0, Amount::ONE);
        }
    }
}

impl ServerWatch {
    /// Takes over the address and the credential that a server has now.
    fn follow(&mut self, server: &ServerEntry) {
        // a stream that is behind knows an older version
        if server.target.version >= self.target.version && !is_same(&self.target, &server.target) {
            self.target = server.target.clone();
            self.moved.notify_one();
        }
    }
}

impl WatchHold {
    /// Returns the number of updates of the resource so far, since it is watched; 0 while it is not.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Returns whether the resource is watched at this server.
    pub(super) fn is_of(&self, server: &ServerEntry) -> bool {
        self.key == key_of(server)
    }

    /// Goes on at the address that the server has now.
    pub(super) fn keep(&self, server: &ServerEntry) {
        if let Some(watch) = self.watches.held.lock().by_server.get_mut(&self.key) {
            watch.follow(server);
        }
    }
}

impl Drop for WatchHold {
    fn drop(&mut self) {
        self.watches.release(self);
    }
}

fn key_of(server: &ServerEntry) -> WatchKey {
    (TenantId(server.target.tenant), server.id)
}

#[cfg(test)]
pub(super) mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::relay::Relay;
    use crate::gateway::example::limits;
    use crate::upstream::{Credential, Egress, HttpServer, Upstream};

    pub fn server(tenant: u128, number: u128, version: i64) -> ServerEntry {
        // never reached: loopback is refused
        let http = HttpServer {
            url: "http://127.0.0.1:1/".to_owned(),
            credential: Credential::None,
            headers: Vec::new(),
            login: None,
            caller_token: None,
        };
        let (tenant, id) = (Uuid::from_u128(tenant), Uuid::from_u128(tenant * 100 + number));
        let upstream = Upstream::Http(http);
        ServerEntry {
            id: ServerId(id),
            name: "s".to_owned(),
            enabled: true,
            quarantined: false,
            baselined: true,
            connected: true,
            login: None,
            target: Target {
                tenant,
                server: id,
                version,
                upstream,
                era: None,
                limits: limits(),
                relay: Relay::NOTHING,
            },
        }
    }

    fn watches(places: usize) -> Arc<Watches> {
        let pool = Pool::new(Arc::new(Egress::new(Vec::new(), Vec::new())), None);
        Watches::new(&Arc::new(pool), &Arc::default(), places)
    }

    #[tokio::test]
    async fn servers_share_the_places_and_give_them_back() {
        let (watches, line) = (watches(8), Arc::default());
        let hold = |tenant, number| watches.hold(&server(tenant, number, 1), "a://1", &line);
        let (one, two) = (hold(1, 1).unwrap(), hold(1, 2).unwrap());
        assert!(hold(1, 3).is_none(), "a tenant has a quarter");
        let again = hold(1, 1).unwrap();
        let _other = hold(2, 1).unwrap();
        drop(one);
        assert!(hold(1, 3).is_none(), "another stream holds it");
        drop(again);
        let _third = hold(1, 3).unwrap();
        drop(two);
        let held = watches.held.lock();
        assert_eq!((held.taken.all().items, held.by_server.len()), (2, 2));
        drop(held);
    }

    #[tokio::test]
    async fn resources_of_a_server_are_bounded() {
        let (watches, line, server) = (watches(4), Arc::default(), server(1, 1, 1));
        let hold = |number: usize| watches.hold(&server, &format!("a://{number}"), &line);
        let mut held: Vec<WatchHold> = (0..WATCHED_MAX).filter_map(hold).collect();
        assert!(held.len() == WATCHED_MAX && hold(WATCHED_MAX).is_none());
        assert!(hold(0).is_some(), "a known one costs nothing");
        held.pop();
        assert!(hold(WATCHED_MAX).is_some());
    }

    #[tokio::test]
    async fn updates_reach_those_who_hold_the_resource() {
        let (watches, server) = (watches(4), server(1, 1, 1));
        let lines: [Arc<StreamLine>; 2] = Default::default();
        let one = watches.hold(&server, "a://1", &lines[0]).unwrap();
        let two = watches.hold(&server, "a://2", &lines[1]).unwrap();
        let key = key_of(&server);
        watches.updated(&key, [&"a://1".to_owned(), &"a://3".to_owned()]);
        assert_eq!((one.version(), two.version()), (1, 0));
        lines[0].told.notified().await;
        let order = watches.order(&key).unwrap();
        assert_eq!(order.uris, ["a://1", "a://2"]);
        drop(one);
        watches.updated(&key, &order.uris);
        assert_eq!(two.version(), 1);
        drop(two);
        assert!(watches.order(&key).is_none());
    }

    #[tokio::test]
    async fn a_watch_follows_its_server_and_never_goes_back() {
        let (watches, line) = (watches(4), Arc::default());
        let hold = watches.hold(&server(1, 1, 2), "a://1", &line).unwrap();
        let key = key_of(&server(1, 1, 2));
        let version = || watches.order(&key).unwrap().target.version;
        hold.keep(&server(1, 1, 1));
        assert_eq!(version(), 2, "of a stream that is behind");
        let before = watches.order(&key).unwrap();
        hold.keep(&server(1, 1, 3));
        assert!(version() == 3 && !watches.order(&key).unwrap().has_target_of(&before));
        assert!(hold.is_of(&server(1, 1, 3)) && !hold.is_of(&server(1, 2, 3)));
    }
}
