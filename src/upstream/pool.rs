//! Pool of connections to the upstreams of all tenants on this replica.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::admission::breaker::BreakerState;
use super::admission::egress::Egress;
use super::admission::shares::{INLINE_BYTES_MAX, MemoryHold, MemoryLimits, MemoryPurpose, MemoryVitals};
use super::connection::Connection;
use super::error::UpstreamError;
use super::http::challenge;
use super::http::connect::Dialer;
use super::http::document::{self, DocumentError};
use super::http::login::TokenSource;
use super::http::rmcp::{ResourceWatcher, WatchEnd, Watcher};
use super::http::token::{self, TokenAnswer, TokenError, TokenRequest};
use super::http::webhook::{self, WebhookError, WebhookPost};
use super::kinds;
use super::protocol::offers::Announced;
use super::stdio::{Children, Journal, StdioRules};
use super::target::Target;
use crate::domain::measure::Measures;
use crate::domain::server_login::TokenChallenge;
use crate::domain::shares::make_room;

/// Most upstreams that are kept, a quarter of them of one tenant; beyond it, unused ones are dropped.
pub const CONNECTIONS_MAX: usize = 10_000;

/// Tenant, server, and the principal whose login the server is reached with; nil for the tenant's, or none.
type Key = (Uuid, Uuid, Uuid);

fn key_of(target: &Target) -> Key {
    (target.tenant, target.server, target.principal().unwrap_or_default())
}

/// Returns the key of a server that is reached in one way for all callers, as programs are.
fn common_key(tenant: Uuid, server: Uuid) -> Key {
    (tenant, server, Uuid::nil())
}

/// State of the connections of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolVitals {
    /// Servers whose circuit breaker is closed: calls pass.
    pub closed: usize,
    /// Servers whose circuit breaker is open: no calls pass.
    pub open: usize,
    /// Servers whose circuit breaker is half-open: a probe is under way.
    pub half_open: usize,
    /// Memory of requests and answers.
    pub memory: MemoryVitals,
    /// Programs that have a slot: they run, start or end.
    pub programs: usize,
    /// TCP connections opened so far.
    pub tcp_connects: u64,
}

/// Means to ask token endpoints.
#[derive(Clone, Debug)]
pub struct TokenClient(Dialer);

impl TokenClient {
    /// Sends a request to a token endpoint.
    ///
    /// # Errors
    /// [`TokenError`], unless the answer is 200 and has the form of a token endpoint's.
    pub async fn request(&self, request: TokenRequest<'_>) -> Result<TokenAnswer, TokenError> {
        token::request(&self.0, request).await
    }
}

/// Pool of one [`Connection`] per (tenant, server), or per (tenant, server, principal) where each caller has a login of its own.
/// Tenants share no connection, whatever their URLs.
#[derive(Debug)]
pub struct Pool {
    pub(super) dialer: Dialer,
    children: Arc<Children>,
    connections: RwLock<HashMap<Key, Arc<Connection>>>,
}

impl Pool {
    /// Creates an empty pool. Without `tls` (see [`super::native_tls`]), https upstreams are unreachable.
    pub fn new(egress: Arc<Egress>, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        let dialer = Dialer::new(egress, tls);
        let children = Children::new(StdioRules::default(), None, &dialer.measures);
        Self { dialer, children, connections: RwLock::default() }
    }

    /// Sets the source of the tokens that servers are called with.
    pub fn with_tokens(self, source: Arc<dyn TokenSource>) -> Self {
        Self { dialer: self.dialer.with_tokens(source), ..self }
    }

    /// Returns the means to ask token endpoints, without the pool.
    pub fn token_client(&self) -> TokenClient {
        TokenClient(self.dialer.clone())
    }

    /// Sets the rules for programs, and the journal of their logs.
    pub fn with_programs(self, rules: StdioRules, journal: Journal) -> Self {
        Self { children: Children::new(rules, Some(journal), &self.dialer.measures), ..self }
    }

    /// Sets the bounds on the memory of requests and answers.
    pub fn with_memory(self, limits: MemoryLimits) -> Self {
        Self { dialer: self.dialer.with_memory(limits), ..self }
    }

    /// Returns the connection of a server. A newer version, another URL or another credential than last time replaces
    /// it; the old connection ends with its last call.
    ///
    /// A caller with an older version gets the newer version's connection. If that leads elsewhere, it gets one that
    /// sends nothing.
    pub fn connection(&self, target: &Target) -> Arc<Connection> {
        self.dialer.note_logins(target);
        let key = key_of(target);
        let known = |connections: &HashMap<Key, Arc<Connection>>| {
            let found = connections.get(&key)?;
            if found.is_for(target) {
                return Some(Arc::clone(found));
            }
            let is_newer = found.is_newer_than(target);
            is_newer.then(|| match found.has_place_of(target) {
                true => Arc::clone(found),
                false => Arc::new(Connection::moved(target)),
            })
        };
        if let Some(found) = known(&self.read()) {
            return found;
        }
        let mut connections = self.write();
        // Another call may have been faster.
        if let Some(found) = known(&connections) {
            return found;
        }
        let connection = Arc::new(Connection::new(
            &self.dialer,
            &self.children,
            target,
            connections.get(&key).map(|kept| &**kept),
        ));
        let is_own = |key: &Key| key.0 == target.tenant;
        let (has_room, dropped) = match connections.contains_key(&key) {
            true => (true, Vec::new()),
            false => make_room(&mut connections, CONNECTIONS_MAX, is_own),
        };
        // Without room, because all are in use, this one lives as long as its caller keeps it.
        let replaced = has_room.then(|| connections.insert(key, Arc::clone(&connection)));
        drop(connections);
        // Outside the lock: it may close sockets.
        drop((replaced, dropped));
        connection
    }

    /// Runs work whose time grows with `bytes`: at once if they are few, else as [`Self::in_turn`] does.
    pub async fn aside<T: Send>(&self, tenant: Uuid, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        match bytes <= INLINE_BYTES_MAX {
            true => work(),
            false => self.in_turn(tenant, work).await,
        }
    }

    /// Runs long work: one piece per tenant at a time, and on at most half of the processors. Other tasks of the
    /// thread move to another thread meanwhile.
    pub async fn in_turn<T: Send>(&self, tenant: Uuid, work: impl FnOnce() -> T + Send) -> T {
        self.dialer.share_of(tenant).in_turn(work).await
    }

    /// Returns a hold for the memory of a caller's request or answer, in the shares of the API key, its tenant and
    /// the replica. It holds nothing yet; without a `key`, it counts against the other two only.
    pub fn memory(&self, tenant: Uuid, key: Option<Uuid>, purpose: MemoryPurpose) -> MemoryHold {
        self.dialer.memory(tenant, key, purpose)
    }

    /// Drops the connection of a server; calls in flight still end.
    pub fn forget(&self, tenant: Uuid, server: Uuid) {
        let mut connections = self.write();
        let gone: Vec<_> = connections.extract_if(|key, _| (key.0, key.1) == (tenant, server)).collect();
        drop(connections);
        // Outside the lock: it may close sockets.
        drop(gone);
    }

    /// Sends a request to a token endpoint of an identity provider or authorization server.
    ///
    /// # Errors
    /// [`TokenError`], unless the answer is 200 and has the form of a token endpoint's.
    pub async fn token_request(&self, request: TokenRequest<'_>) -> Result<TokenAnswer, TokenError> {
        token::request(&self.dialer, request).await
    }

    /// Sends a request to a revocation endpoint (RFC 7009).
    ///
    /// # Errors
    /// [`TokenError`], unless the answer is 200.
    pub async fn revoke(&self, request: TokenRequest<'_>) -> Result<(), TokenError> {
        token::revoke(&self.dialer, request).await
    }

    /// Posts a JSON document to an authorization server, on a connection of its own, within 5 s, and returns the document of its
    /// answer.
    ///
    /// # Errors
    /// [`DocumentError`], unless the answer is 200 or 201 with a text of at most `bytes_max` bytes.
    pub async fn post_document(
        &self,
        tenant: Uuid,
        url: &str,
        body: String,
        bytes_max: usize,
    ) -> Result<String, DocumentError> {
        document::post(self.dialer.for_issuers_of(Some(tenant)), url, body, bytes_max).await
    }

    /// Asks the server at a URL without credentials, within 5 s, and returns its challenge; `None` if it has none.
    ///
    /// # Errors
    /// The URL is refused, or the server does not answer.
    pub async fn challenge(&self, tenant: Uuid, url: &str) -> Result<Option<TokenChallenge>, UpstreamError> {
        challenge::ask(&self.dialer, tenant, url).await
    }

    /// Returns the tokens that a server was called with in the last minutes; empty without a login.
    pub fn sent_tokens(&self, target: &Target) -> Vec<Zeroizing<String>> {
        self.dialer.sent_tokens(target)
    }

    /// Opens a stream, over connections of its own, on which a server announces changes of all or some of `wanted`.
    ///
    /// # Errors
    /// [`WatchEnd::Unsupported`] if the server is a program or announces nothing of that; [`WatchEnd::Lost`] if the
    /// stream could not be opened.
    pub async fn watch(&self, target: &Target, wanted: &[Announced]) -> Result<Watcher, WatchEnd> {
        kinds::watch(&self.dialer, target, wanted).await
    }

    /// Checks a URL that is about to be stored; its name is checked whenever something connects to it.
    ///
    /// # Errors
    /// The URL is malformed or unsupported, or the egress guard refuses its address.
    pub fn check_url(&self, url: &str) -> Result<(), UpstreamError> {
        self.dialer.check_url(url).map(drop)
    }

    /// Posts an event to the receiver of a webhook, on a connection of its own. The caller bounds the time.
    ///
    /// # Errors
    /// [`WebhookError`], unless the receiver answered with a 2xx status.
    pub async fn post_event(&self, post: WebhookPost<'_>) -> Result<(), WebhookError> {
        webhook::deliver(&self.dialer, post).await
    }

    /// Checks the URL of an identity provider, or of its keys, that is about to be stored.
    ///
    /// # Errors
    /// The URL is malformed or unsupported, or the egress guard refuses its address.
    pub fn check_issuer_url(&self, url: &str) -> Result<(), UpstreamError> {
        self.dialer.check_issuer_url(url)
    }

    /// Fetches a document of an identity provider or authorization server, on a connection of its own, within 5 s, in the share
    /// of a tenant; `None` for the platform's own.
    ///
    /// # Errors
    /// [`DocumentError`], unless the answer is 200 with a text of at most `bytes_max` bytes.
    pub async fn fetch_document(
        &self,
        tenant: Option<Uuid>,
        url: &str,
        bytes_max: usize,
    ) -> Result<String, DocumentError> {
        document::fetch(self.dialer.for_issuers_of(tenant), url, bytes_max).await
    }

    /// Opens a stream, over connections of its own, on which a server announces updates of these resources, of which the
    /// first [`WATCHED_MAX`](super::WATCHED_MAX) count.
    ///
    /// # Errors
    /// [`WatchEnd::Unsupported`] if the server is a program or announces no such updates; [`WatchEnd::Lost`] if the stream
    /// could not be opened.
    pub async fn watch_resources(
        &self,
        target: &Target,
        uris: &[String],
    ) -> Result<ResourceWatcher, WatchEnd> {
        kinds::watch_resources(&self.dialer, target, uris).await
    }

    /// Forgets tokens of servers that have ended.
    pub fn sweep_logins(&self) {
        self.dialer.sweep_logins();
    }

    /// Drops all connections of a tenant, with its breakers; calls in flight still end.
    pub fn forget_tenant(&self, tenant: Uuid) {
        self.dialer.forget_logins(tenant);
        let mut connections = self.write();
        let gone: Vec<_> = connections.extract_if(|key, _| key.0 == tenant).collect();
        drop(connections);
        drop(gone);
    }

    /// Returns the tenants of which a connection is kept here.
    pub fn tenants(&self) -> HashSet<Uuid> {
        self.read().keys().map(|key| key.0).collect()
    }

    /// Returns whether a connection of a tenant is kept here.
    pub fn knows(&self, tenant: Uuid) -> bool {
        self.read().keys().any(|key| key.0 == tenant)
    }

    /// Closes the circuit breaker of a server, and ends the backoff of its program: the next call is sent.
    pub fn reset_breaker(&self, tenant: Uuid, server: Uuid) {
        self.dialer.reset_login(tenant, server);
        for (_, connection) in self.read().iter().filter(|(key, _)| (key.0, key.1) == (tenant, server)) {
            connection.reset_breaker();
        }
    }

    /// Restarts a server: ends its program, which the next request starts again, or drops its connection if it has no
    /// program.
    pub async fn restart(&self, tenant: Uuid, server: Uuid) {
        let connection = self.read().get(&common_key(tenant, server)).cloned();
        let was_here = match connection {
            Some(connection) => connection.restart().await,
            None => false,
        };
        if !was_here {
            self.forget(tenant, server);
        }
    }

    /// Returns whether a server, as of `version`, is a program that was ended here for lack of calls. The next call
    /// starts it again.
    pub fn is_asleep(&self, tenant: Uuid, server: Uuid, version: i64) -> bool {
        let connections = self.read();
        connections
            .get(&common_key(tenant, server))
            .filter(|connection| connection.has_version(version))
            .is_some_and(|connection| connection.is_asleep())
    }

    /// Returns tenant and server of each running program that was not listed since its start, or not for `interval`.
    /// They count as listed from now on.
    pub fn take_unlisted_programs(&self, interval: Duration) -> Vec<(Uuid, Uuid)> {
        self.children.take_unlisted(interval)
    }

    /// Returns tenant and server of each running program that announced a change of a list since the last call of
    /// this function.
    pub fn take_announced_programs(&self) -> Vec<(Uuid, Uuid)> {
        self.children.take_announced()
    }

    /// Returns whether a tenant has programs here.
    pub fn has_programs_of(&self, tenant: Uuid) -> bool {
        self.read().iter().any(|(key, kept)| key.0 == tenant && kept.is_run_here())
    }

    /// Drops the programs of a tenant, except those of `servers` in the given version; calls in flight still end.
    pub fn keep_programs_of(&self, tenant: Uuid, servers: &HashMap<Uuid, i64>) {
        let mut connections = self.write();
        let is_gone = |key: &Key, kept: &mut Arc<Connection>| {
            let stays = servers.get(&key.1).is_some_and(|version| kept.has_version(*version));
            key.0 == tenant && kept.is_run_here() && !stays
        };
        let gone: Vec<_> = connections.extract_if(is_gone).collect();
        drop(connections);
        drop(gone);
    }

    /// Ends all programs, and waits until they have ended.
    pub async fn close(&self) {
        self.children.close().await;
    }

    /// Returns the measures of the requests to upstreams.
    pub fn measures(&self) -> &Measures {
        &self.dialer.measures
    }

    /// Returns the state of the connections.
    pub fn vitals(&self) -> PoolVitals {
        let mut vitals = PoolVitals {
            closed: 0,
            open: 0,
            half_open: 0,
            memory: self.dialer.memory_vitals(),
            programs: self.children.count(),
            tcp_connects: self.tcp_connects(),
        };
        for connection in self.read().values() {
            *match connection.breaker() {
                BreakerState::Closed => &mut vitals.closed,
                BreakerState::Open => &mut vitals.open,
                BreakerState::HalfOpen => &mut vitals.half_open,
            } += 1;
        }
        vitals
    }

    /// Returns the number of TCP connections opened since the start.
    pub fn tcp_connects(&self) -> u64 {
        self.dialer.connects()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Key, Arc<Connection>>> {
        self.connections.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Key, Arc<Connection>>> {
        self.connections.write()
    }
}
