//! Admission of client connections to a listener: bounds in total and per address, and which connection is
//! closed for a new one.
//!
//! A connection is *exempt* once a request on it was authenticated, or when it comes from a trusted proxy.
//! Exempt connections are never closed here. All others are bounded per address, and give way when the
//! listener is full.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Wait for a closed connection to end, before another one is closed.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(50);
/// Interval of the warning about an address that has too many connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Bounds of a listener's connections.
#[derive(Clone, Debug)]
pub struct ConnectionRules {
    /// Connections at the same time; at least 1.
    pub max: usize,
    /// Connections of one address that are not exempt; at least 1.
    pub per_address_max: usize,
    /// Networks of proxies whose connections are exempt from the start.
    pub trusted_proxies: Vec<IpNet>,
}

/// Connections closed or refused since the start, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedConnections {
    /// Number of connections closed because the listener was full.
    pub full: u64,
    /// Number of connections closed or refused because their address had too many.
    pub address: u64,
}

/// Connections of one listener.
pub struct Connections {
    rules: ConnectionRules,
    permits: Arc<Semaphore>,
    accepted: AtomicU64,
    closed_full: AtomicU64,
    closed_address: AtomicU64,
    counted: Mutex<Counted>,
}

/// Connections that are not exempt.
#[derive(Default)]
struct Counted {
    /// By address, each oldest first.
    by_address: HashMap<IpAddr, BTreeMap<u64, Arc<ClientConnection>>>,
    warned_at: Option<Instant>,
}

/// No request is under way.
const IDLE: u8 = 0;
/// A request is under way.
const BUSY: u8 = 1;
/// Neither counted nor closed for others, for good.
const EXEMPT: u8 = 2;
/// Closed for another connection.
const CLOSED: u8 = 3;

/// State of one client connection.
#[derive(Debug)]
pub struct ClientConnection {
    id: u64,
    /// Address under which the connection is counted.
    address: IpAddr,
    state: AtomicU8,
    task: OnceLock<AbortHandle>,
}

impl ClientConnection {
    /// Records the task that serves the connection.
    pub(super) fn served_by(&self, task: AbortHandle) {
        // set once, after the connection was admitted
        drop(self.task.set(task));
    }

    /// Records that a request begins. `false`: the connection was closed meanwhile, and its task is about to end.
    pub(super) fn begin_request(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            EXEMPT | BUSY => true,
            _ => self.moves(IDLE, BUSY),
        }
    }

    /// Records that the answer to a request is made.
    pub(super) fn end_request(&self) {
        if self.state.load(Ordering::Acquire) == BUSY {
            self.moves(BUSY, IDLE);
        }
    }

    /// Closes the connection if it is idle. Returns whether it was closed.
    fn close(&self) -> bool {
        let Some(task) = self.task.get() else { return false };
        let closes = self.moves(IDLE, CLOSED);
        if closes {
            task.abort();
        }
        closes
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Admitted connection; gives its permit back when dropped.
pub(super) struct Admitted {
    pub(super) connection: Arc<ClientConnection>,
    connections: Arc<Connections>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.counted().remove(&self.connection);
    }
}

impl Connections {
    /// Creates the connections of a listener under `rules`; none is open.
    pub fn new(rules: ConnectionRules) -> Arc<Connections> {
        Arc::new(Connections {
            permits: Arc::new(Semaphore::new(rules.max.clamp(1, Semaphore::MAX_PERMITS))),
            rules,
            accepted: AtomicU64::new(0),
            closed_full: AtomicU64::new(0),
            closed_address: AtomicU64::new(0),
            counted: Mutex::default(),
        })
    }

    /// Returns how many connections are open.
    pub fn open(&self) -> usize {
        self.rules.max.saturating_sub(self.permits.available_permits())
    }

    /// Returns how many connections may be open.
    pub fn max(&self) -> usize {
        self.rules.max
    }

    /// Returns how many connections were closed for others, or refused, since the start.
    pub fn closed(&self) -> ClosedConnections {
        ClosedConnections {
            full: self.closed_full.load(Ordering::Relaxed),
            address: self.closed_address.load(Ordering::Relaxed),
        }
    }

    /// Returns whether an address is in `server.trusted_proxies`.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.rules.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// Exempts a connection, since a request on it was authenticated. Only the first time takes a lock.
    pub(super) fn authenticated(&self, connection: &ClientConnection) {
        if connection.state.load(Ordering::Acquire) != EXEMPT
            && connection.state.swap(EXEMPT, Ordering::AcqRel) != EXEMPT
        {
            self.counted().remove(connection);
        }
    }

    /// Waits until a new connection of `peer` may be served. `None`: it is refused, since its address has too many
    /// connections and all of them are busy.
    pub(super) async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        let permit = self.permit().await?;
        let id = self.accepted.fetch_add(1, Ordering::Relaxed);
        let is_trusted = self.is_trusted(peer);
        let connection = Arc::new(ClientConnection {
            id,
            address: counted_as(peer),
            state: AtomicU8::new(if is_trusted { EXEMPT } else { IDLE }),
            task: OnceLock::new(),
        });
        if !is_trusted {
            self.count(&connection)?;
        }
        Some(Admitted { connection, connections: Arc::clone(self), _permit: permit })
    }

    /// Closes the oldest idle connection of the address that has the most, else of any address.
    pub(super) fn close_one(&self) {
        if self.counted().close_one() {
            self.closed_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                return Some(permit);
            }
            self.close_one();
            if let Ok(permit) = timeout(CLOSE_WAIT_MAX, Arc::clone(&self.permits).acquire_owned()).await {
                return permit.ok();
            }
        }
    }

    /// Counts a connection; where its address has too many, closes the oldest idle one. `None` if none of
    /// them is idle.
    fn count(&self, connection: &Arc<ClientConnection>) -> Option<()> {
        let mut counted = self.counted();
        let same = counted.by_address.entry(connection.address).or_default();
        let mut is_let_in = true;
        if same.len() >= self.rules.per_address_max {
            is_let_in = close_oldest(same);
            self.closed_address.fetch_add(1, Ordering::Relaxed);
            counted.warn(connection.address, self.rules.per_address_max);
        }
        is_let_in.then(|| counted.insert(connection))
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock()
    }
}

impl Counted {
    fn insert(&mut self, connection: &Arc<ClientConnection>) {
        self.by_address.entry(connection.address).or_default().insert(connection.id, Arc::clone(connection));
    }

    fn remove(&mut self, connection: &ClientConnection) {
        let Some(same) = self.by_address.get_mut(&connection.address) else { return };
        same.remove(&connection.id);
        if same.is_empty() {
            self.by_address.remove(&connection.address);
        }
    }

    /// Closes the oldest idle connection of the address that has the most, else of any address. Returns
    /// whether one was closed.
    fn close_one(&mut self) -> bool {
        let largest = self.by_address.values_mut().max_by_key(|same| same.len());
        largest.is_some_and(close_oldest) || self.by_address.values_mut().any(close_oldest)
    }

    fn warn(&mut self, address: IpAddr, max: usize) {
        if self.warned_at.is_some_and(|at| at.elapsed() < WARNING_INTERVAL) {
            return;
        }
        self.warned_at = Some(Instant::now());
        tracing::warn!(
            %address, max,
            "an address has too many connections without a valid key (limits.connections_per_address_max): the oldest idle \
             ones are closed; if it is a proxy of yours, add it to server.trusted_proxies"
        );
    }
}

/// Closes the oldest idle connection of an address. Returns whether one was closed.
fn close_oldest(same: &mut BTreeMap<u64, Arc<ClientConnection>>) -> bool {
    let Some(id) = same.iter().find_map(|(id, connection)| connection.close().then_some(*id)) else {
        return false;
    };
    same.remove(&id);
    true
}

/// Returns the address under which connections of `peer` are counted. For IPv6 this is the /64 network, which one host may
/// have whole.
fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(max: usize, per_address_max: usize, trusted: &str) -> Arc<Connections> {
        let trusted_proxies = trusted.split_whitespace().map(|network| network.parse().unwrap()).collect();
        Connections::new(ConnectionRules { max, per_address_max, trusted_proxies })
    }

    /// A connection with a task that ends only when it is closed.
    async fn connect(connections: &Arc<Connections>, peer: &str) -> Option<Arc<ClientConnection>> {
        let admitted = connections.admit(peer.parse().unwrap()).await?;
        let connection = Arc::clone(&admitted.connection);
        let task = tokio::spawn(async move {
            let _admitted = admitted;
            std::future::pending::<()>().await;
        });
        connection.served_by(task.abort_handle());
        Some(connection)
    }

    fn is_closed(connection: &ClientConnection) -> bool {
        connection.state.load(Ordering::Acquire) == CLOSED
    }

    #[tokio::test]
    async fn one_more_of_an_address_closes_its_oldest_idle_one() {
        let connections = rules(100, 2, "");
        let first = connect(&connections, "192.0.2.1").await.unwrap();
        let second = connect(&connections, "::ffff:192.0.2.1").await.unwrap();
        let other = connect(&connections, "192.0.2.2").await.unwrap();
        assert!(first.begin_request());
        let third = connect(&connections, "192.0.2.1").await.unwrap();
        assert_eq!([&first, &second, &third, &other].map(|c| is_closed(c)), [false, true, false, false]);
        assert!(!second.begin_request(), "a request on a closed connection");
        // all are busy: the new one is refused
        assert!(third.begin_request());
        assert!(connect(&connections, "192.0.2.1").await.is_none());
        first.end_request();
        assert!(connect(&connections, "192.0.2.1").await.is_some());
        assert_eq!(connections.closed(), ClosedConnections { full: 0, address: 3 });
    }

    #[tokio::test]
    async fn authenticated_and_trusted_ones_do_not_count() {
        let connections = rules(100, 1, "10.0.0.0/8 2001:db8::/32");
        for _ in 0..5 {
            let connection = connect(&connections, "192.0.2.1").await.unwrap();
            assert!(connection.begin_request());
            connections.authenticated(&connection);
            connection.end_request();
        }
        for trusted in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"].repeat(3) {
            connect(&connections, trusted).await.unwrap();
        }
        assert!(connections.counted().by_address.is_empty());
        assert_eq!((connections.closed().address, connections.open()), (0, 14));
    }

    #[tokio::test]
    async fn a_full_listener_takes_from_who_has_most() {
        let connections = rules(4, 100, "");
        let quiet = connect(&connections, "192.0.2.1").await.unwrap();
        let crowd = [
            connect(&connections, "2001:db8::1").await.unwrap(),
            connect(&connections, "2001:db8::2").await.unwrap(),
            connect(&connections, "2001:db8::3").await.unwrap(),
        ];
        let new = connect(&connections, "192.0.2.3").await.unwrap();
        assert_eq!(crowd.each_ref().map(|c| is_closed(c)), [true, false, false]);
        assert!(!is_closed(&quiet) && !is_closed(&new));
        assert_eq!((connections.open(), connections.closed().full), (4, 1));
        // no connection of the crowd is idle, so another one is closed
        assert!(crowd[1].begin_request() && crowd[2].begin_request());
        connect(&connections, "192.0.2.4").await.unwrap();
        assert!(is_closed(&quiet) || is_closed(&new));
    }

    #[tokio::test]
    async fn exempt_connections_are_waited_for() {
        let connections = rules(1, 100, "192.0.2.0/24");
        let first = connect(&connections, "192.0.2.1").await.unwrap();
        let waits = timeout(3 * CLOSE_WAIT_MAX, connect(&connections, "192.0.2.2")).await;
        assert!(waits.is_err());
        first.task.get().unwrap().abort();
        assert!(connect(&connections, "192.0.2.2").await.is_some());
    }
}
