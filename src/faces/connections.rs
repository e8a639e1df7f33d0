//! Admission of client connections to a listener: bounds in total, per address, key and tenant, and which
//! connection is closed for a new one.
//!
//! A connection counts for the API key of its last request that was authenticated, and for its address before the
//! first. Those of an address are bounded and give way first when the listener is full. Those of a key have shares
//! once they are many. Connections of trusted proxies are never closed here. They count for a key only while a request
//! of it is under way.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::domain::id::{KeyId, TenantId};
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::gateway::Caller;

/// Wait for a closed connection to end, before another one is closed.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(50);
/// Interval of the warning about an address, or a tenant, that has too many connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Addresses and tenants together that are warned about within [`WARNING_INTERVAL`].
const WARNED_MAX: usize = 100;
/// Part of all connections that have a valid key from which on shares hold: a half.
const CROWDED_PART: usize = 2;
/// Part of its tenant's share that one API key holds at most: a half.
const KEY_PART: usize = 2;

/// Bounds of a listener's connections.
#[derive(Clone, Debug)]
pub struct ConnectionRules {
    /// Connections at the same time; at least 1.
    pub max: usize,
    /// Connections of one address that count for it; at least 1.
    pub per_address_max: usize,
    /// Networks of proxies whose connections are never closed for others.
    pub trusted_proxies: Vec<IpNet>,
}

impl ConnectionRules {
    fn tenant_share(&self) -> usize {
        (self.max / TENANT_PART).max(1)
    }
}

/// Connections closed or refused since the start, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedConnections {
    /// Number of connections closed because the listener was full.
    pub full: u64,
    /// Number of connections closed or refused because their address had too many.
    pub address: u64,
    /// Number of connections closed or refused because their key or tenant had its share.
    pub share: u64,
}

/// Connections of one listener.
pub struct Connections {
    rules: ConnectionRules,
    permits: Arc<Semaphore>,
    accepted: AtomicU64,
    closed_full: AtomicU64,
    closed_address: AtomicU64,
    closed_share: AtomicU64,
    counted: Mutex<Counted>,
}

/// Address or API key that connections count for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Address(IpAddr),
    /// Key and its tenant; without an id the platform's own key.
    Key(TenantId, Option<KeyId>),
}

impl Holder {
    fn tenant(&self) -> Option<TenantId> {
        match self {
            Holder::Address(_) => None,
            Holder::Key(tenant, _) => Some(*tenant),
        }
    }
}

/// Connections by who holds them.
#[derive(Default)]
struct Counted {
    /// Connections of each holder, oldest first.
    by_holder: HashMap<Holder, BTreeMap<u64, Arc<ClientConnection>>>,
    /// Number of connections with a valid key, by tenant.
    with_key: Shares<TenantId>,
    /// Time of the last warning about an address, or a tenant.
    warned_at: HashMap<Holder, Instant>,
}

/// No request is under way.
const IDLE: u8 = 0;
/// A request is under way.
const BUSY: u8 = 1;
/// Closed for another connection.
const CLOSED: u8 = 2;

/// State of one client connection.
#[derive(Debug)]
pub struct ClientConnection {
    id: u64,
    /// Address for which the connection counts as long as no request on it was authenticated.
    address: IpAddr,
    /// True if a trusted proxy opened the connection.
    is_trusted: bool,
    state: AtomicU8,
    /// Holder for whom the connection counts; `None` for a trusted proxy's without a request under way.
    holder: Mutex<Option<Holder>>,
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
        self.state.load(Ordering::Acquire) == BUSY || self.moves(IDLE, BUSY)
    }

    /// Closes the connection if it is idle and was not opened by a trusted proxy. Returns whether it was closed.
    fn close(&self) -> bool {
        let Some(task) = self.task.get() else { return false };
        let closes = !self.is_trusted && self.moves(IDLE, CLOSED);
        if closes {
            task.abort();
        }
        closes
    }

    fn holder(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock()
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
            closed_share: AtomicU64::new(0),
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
            share: self.closed_share.load(Ordering::Relaxed),
        }
    }

    /// Returns whether an address is in `server.trusted_proxies`.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.rules.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// Counts a connection for the key of its request. Takes the common lock only if its last request had another key.
    /// `false`: the key or its tenant has its share, and all of them are at work.
    pub(super) fn authenticated(&self, connection: &Arc<ClientConnection>, caller: &Caller) -> bool {
        // the platform acts for tenants, whose shares are for their own keys
        let tenant = caller.key.map_or(TenantId::PLATFORM, |_| caller.tenant_id());
        self.count(connection, Holder::Key(tenant, caller.key))
    }

    /// Counts a connection for its address again, since the key of its request is not served.
    /// `false`: the address has too many, and all of them are at work.
    pub(super) fn not_authenticated(&self, connection: &Arc<ClientConnection>) -> bool {
        connection.is_trusted || self.count(connection, Holder::Address(connection.address))
    }

    /// Notes that a request has been answered, up to the end of the body.
    pub(super) fn end_request(&self, connection: &ClientConnection) {
        connection.moves(BUSY, IDLE);
        if connection.is_trusted && connection.holder().is_some() {
            self.counted().remove(connection);
        }
    }

    /// Waits until a new connection of `peer` may be served. `None`: it is refused, since its address has too many
    /// connections and all of them are busy.
    pub(super) async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        let permit = self.permit().await?;
        let id = self.accepted.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(ClientConnection {
            id,
            address: counted_as(peer),
            is_trusted: self.is_trusted(peer),
            state: AtomicU8::new(IDLE),
            holder: Mutex::default(),
            task: OnceLock::new(),
        });
        let is_let_in = self.not_authenticated(&connection);
        is_let_in.then(|| Admitted { connection, connections: Arc::clone(self), _permit: permit })
    }

    /// Closes an idle connection for a new one.
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

    /// Counts a connection for a holder; where that has too many, closes an idle one. `false` if none of them is idle:
    /// then nothing changes.
    fn count(&self, connection: &Arc<ClientConnection>, holder: Holder) -> bool {
        if *connection.holder() == Some(holder) {
            return true;
        }
        let mut counted = self.counted();
        let made = counted.make_room(holder, &self.rules);
        if made.is_some() {
            let closed = if holder.tenant().is_some() { &self.closed_share } else { &self.closed_address };
            closed.fetch_add(1, Ordering::Relaxed);
            counted.warn(holder, &self.rules);
        }
        let is_let_in = made.unwrap_or(true);
        if is_let_in {
            counted.remove(connection);
            counted.insert(connection, holder);
        }
        is_let_in
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock()
    }
}

impl Counted {
    fn insert(&mut self, connection: &Arc<ClientConnection>, holder: Holder) {
        self.by_holder.entry(holder).or_default().insert(connection.id, Arc::clone(connection));
        *connection.holder() = Some(holder);
        if let Some(tenant) = holder.tenant() {
            self.with_key.take(tenant, Amount::ONE);
        }
    }

    fn remove(&mut self, connection: &ClientConnection) {
        let Some(holder) = connection.holder().take() else { return };
        if let Entry::Occupied(mut same) = self.by_holder.entry(holder) {
            same.get_mut().remove(&connection.id);
            if same.get().is_empty() {
                same.remove();
            }
        }
        if let Some(tenant) = holder.tenant() {
            self.with_key.give_back(&tenant, Amount::ONE);
        }
    }

    /// Makes room for one more connection of a holder. `None`: there is enough, else whether an idle one was closed.
    fn make_room(&mut self, holder: Holder, rules: &ConnectionRules) -> Option<bool> {
        let open = self.by_holder.get(&holder).map_or(0, BTreeMap::len);
        let (tenant, share) = match holder {
            Holder::Address(_) if open < rules.per_address_max => return None,
            Holder::Key(..) if self.with_key.all().items < rules.max / CROWDED_PART => return None,
            Holder::Address(_) => return Some(self.close_oldest(|of| *of == holder)),
            Holder::Key(tenant, _) => (tenant, rules.tenant_share()),
        };
        if open >= (share / KEY_PART).max(1) {
            return Some(self.close_oldest(|of| *of == holder));
        }
        let of_tenant = self.with_key.of(&tenant).items;
        (of_tenant >= share).then(|| self.close_oldest(|of| of.tenant() == Some(tenant)))
    }

    /// Closes the oldest idle connection of the address that has the most, else of any address, else of the tenant that
    /// has the most, else of any tenant. Returns whether one was closed.
    fn close_one(&mut self) -> bool {
        let largest = self.with_key.largest().copied();
        self.close_oldest(|of| of.tenant().is_none())
            || self.close_oldest(|of| of.tenant() == largest)
            || self.close_oldest(|_| true)
    }

    /// Closes the oldest idle connection of the one of these holders that has the most, else of any of them. Returns
    /// whether one was closed.
    fn close_oldest(&mut self, of: impl Fn(&Holder) -> bool) -> bool {
        let held = || self.by_holder.iter().filter(|(holder, _)| of(holder)).map(|(_, same)| same);
        let largest = held().max_by_key(|same| same.len());
        let mut oldest_first = largest.into_iter().chain(held()).flat_map(BTreeMap::values);
        let closed = oldest_first.find(|connection| connection.close()).map(Arc::clone);
        if let Some(connection) = &closed {
            self.remove(connection);
        }
        closed.is_some()
    }

    fn warn(&mut self, holder: Holder, rules: &ConnectionRules) {
        // a tenant is warned about once, whichever of its keys it is
        let named = holder.tenant().map_or(holder, |tenant| Holder::Key(tenant, None));
        self.warned_at.retain(|_, at| at.elapsed() < WARNING_INTERVAL);
        if self.warned_at.len() >= WARNED_MAX || self.warned_at.contains_key(&named) {
            return;
        }
        self.warned_at.insert(named, Instant::now());
        match named {
            Holder::Address(address) => tracing::warn!(
                %address, max = rules.per_address_max,
                "an address has too many connections without a valid key (limits.connections_per_address_max): the oldest idle \
                 ones are closed; if it is a proxy of yours, add it to server.trusted_proxies"
            ),
            Holder::Key(tenant, _) => tracing::warn!(
                %tenant, max = rules.tenant_share(),
                "a tenant, or one of its keys, has its share of the connections (limits.connections_max): the oldest idle \
                 ones are closed, and requests are refused where none is idle"
            ),
        }
    }
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
    use uuid::Uuid;

    use super::*;

    fn rules(max: usize, per_address_max: usize, trusted: &str) -> Arc<Connections> {
        let trusted_proxies = trusted.split_whitespace().map(|network| network.parse().unwrap()).collect();
        Connections::new(ConnectionRules { max, per_address_max, trusted_proxies })
    }

    /// A connection with a task that ends only when it is closed.
    async fn connect(connections: &Arc<Connections>, peer: &str) -> Option<Arc<ClientConnection>> {
        // what was closed ends before
        tokio::task::yield_now().await;
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
        connections.end_request(&first);
        assert!(connect(&connections, "192.0.2.1").await.is_some());
        assert_eq!(connections.closed(), ClosedConnections { full: 0, address: 3, share: 0 });
    }

    fn key(tenant: u128, key: u128) -> Holder {
        Holder::Key(TenantId(Uuid::from_u128(tenant)), Some(KeyId(Uuid::from_u128(key))))
    }

    /// A connection, after a request with this key.
    async fn with_key(connections: &Arc<Connections>, key: Holder) -> Option<Arc<ClientConnection>> {
        let connection = connect(connections, "192.0.2.1").await?;
        assert!(connection.begin_request());
        let is_let_in = connections.count(&connection, key);
        connections.end_request(&connection);
        is_let_in.then_some(connection)
    }

    #[tokio::test]
    async fn authenticated_and_trusted_ones_do_not_count_for_an_address() {
        let connections = rules(100, 1, "10.0.0.0/8 2001:db8::/32");
        for _ in 0..5 {
            with_key(&connections, key(1, 1)).await.unwrap();
        }
        for trusted in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"].repeat(3) {
            connect(&connections, trusted).await.unwrap();
        }
        let counted = connections.counted();
        assert_eq!((counted.by_holder.len(), counted.with_key.all().items), (1, 5));
        assert_eq!((connections.closed().address, connections.open()), (0, 14));
    }

    #[tokio::test]
    async fn beyond_a_half_a_tenant_has_a_quarter_and_a_key_an_eighth() {
        let connections = rules(80, 100, "");
        let mut many = Vec::new();
        for _ in 0..60 {
            many.push(with_key(&connections, key(1, 1)).await.unwrap());
        }
        // the 41st and those after it, each for the oldest of the key
        assert!(many.iter().enumerate().all(|(n, connection)| is_closed(connection) == (n < 20)));
        let mut others = Vec::new();
        for _ in 0..12 {
            others.push(with_key(&connections, key(2, 2)).await.unwrap());
        }
        assert!(
            others.iter().enumerate().all(|(n, connection)| is_closed(connection) == (n < 2)),
            "an eighth"
        );
        for number in 0..12 {
            others.push(with_key(&connections, key(2, 3 + number)).await.unwrap());
        }
        // a quarter is 20: the largest key of the tenant gives two more
        assert!(others.iter().enumerate().all(|(n, connection)| is_closed(connection) == (n < 4)));
        assert_eq!(many.iter().filter(|connection| is_closed(connection)).count(), 20);
        assert_eq!(connections.closed(), ClosedConnections { full: 0, address: 0, share: 24 });
        // all at work: one more is refused
        assert!(others.iter().skip(4).all(|connection| connection.begin_request()));
        assert!(with_key(&connections, key(2, 2)).await.is_none());
        assert!(with_key(&connections, key(2, 99)).await.is_none());
        assert!(with_key(&connections, key(3, 4)).await.is_some());
    }

    #[tokio::test]
    async fn a_connection_counts_for_its_last_key_or_its_address() {
        let connections = rules(100, 1, "10.0.0.0/8");
        let first = with_key(&connections, key(1, 1)).await.unwrap();
        let trusted = connect(&connections, "10.1.2.3").await.unwrap();
        let holders = || {
            let counted = connections.counted();
            let mut holders: Vec<Holder> = counted.by_holder.keys().copied().collect();
            holders.sort_by_key(|holder| holder.tenant());
            let keys: usize =
                holders.iter().filter_map(Holder::tenant).map(|t| counted.with_key.of(&t).items).sum();
            assert_eq!(counted.with_key.all().items, keys);
            holders
        };
        assert!(first.begin_request() && trusted.begin_request());
        assert!(connections.count(&first, key(2, 2)) && connections.count(&trusted, key(3, 3)));
        assert_eq!(holders(), [key(2, 2), key(3, 3)]);
        connections.end_request(&first);
        connections.end_request(&trusted);
        assert_eq!(holders(), [key(2, 2)]);
        assert!(first.begin_request() && trusted.begin_request());
        assert!(connections.not_authenticated(&first) && connections.not_authenticated(&trusted));
        assert_eq!(holders(), [Holder::Address(first.address)]);
        // another one of that address is busy: it has to go
        let second = connect(&connections, "192.0.2.2").await.unwrap();
        assert!(second.begin_request());
        assert!(!connections.count(&second, Holder::Address(first.address)));
    }

    #[tokio::test]
    async fn a_full_listener_takes_from_the_tenant_with_most_when_all_have_keys() {
        let connections = rules(8, 100, "");
        let mut many = Vec::new();
        for number in 0..4 {
            many.push(with_key(&connections, key(1, number)).await.unwrap());
        }
        let few = [2, 3, 4, 5].map(|tenant| with_key(&connections, key(tenant, 9)));
        let few = futures_util::future::join_all(few).await;
        assert_eq!(connections.open(), 8);
        connect(&connections, "192.0.2.9").await.unwrap();
        assert_eq!(many.iter().filter(|connection| is_closed(connection)).count(), 1);
        // who has no key gives way before those who have one
        connect(&connections, "192.0.2.10").await.unwrap();
        assert_eq!(many.iter().filter(|connection| is_closed(connection)).count(), 1);
        assert!(few.iter().flatten().all(|connection| !is_closed(connection)) && few.len() == 4);
        assert_eq!(connections.closed().full, 2);
    }

    #[tokio::test]
    async fn warnings_name_each_once_and_are_bounded() {
        let connections = rules(100, 1, "");
        let warned = |number: usize| {
            let mut counted = connections.counted();
            for address in 0..number {
                let address = Ipv6Addr::from_bits(u128::try_from(address).unwrap() << 64).into();
                counted.warn(Holder::Address(address), &connections.rules);
            }
            counted.warn(key(1, 1), &connections.rules);
            counted.warn(key(1, 2), &connections.rules);
            counted.warned_at.len()
        };
        assert_eq!((warned(2), warned(2), warned(2 * WARNED_MAX)), (3, 3, WARNED_MAX));
        let long_ago = Instant::now().checked_sub(WARNING_INTERVAL).unwrap();
        connections.counted().warned_at.values_mut().for_each(|at| *at = long_ago);
        assert_eq!(warned(1), 2);
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
