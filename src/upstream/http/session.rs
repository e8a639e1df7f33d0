//! Session with an upstream: opened once, shared by all its calls, opened again when it has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::domain::end::End;
use crate::domain::era::Era;
use crate::domain::measure::{Between, Measures, Transport};
use crate::domain::relay::Relay;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::discover;
use crate::upstream::http::post::{Http, Post, Reply};
use crate::upstream::http::refused::{explained, says};
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::hello::{HELLO_BYTES_MAX, VERSIONS, version_of};
use crate::upstream::protocol::jsonrpc::{self, Answer, MODERN};
use crate::upstream::protocol::measures::{Life, OwnRequest};
use crate::upstream::protocol::offers::{Declared, DeclaredOffers};
use crate::upstream::protocol::sent::Sent;

/// Longest wait for the answer to `server/discover`.
const DISCOVER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a session, connecting and detecting the era included.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest wait for an upstream to take the wish for its log messages.
const LOG_WISH_WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest session id accepted, in bytes.
const SESSION_ID_BYTES_MAX: usize = 4096;

const ERA_UNKNOWN: u8 = 0;
const ERA_MODERN: u8 = 1;
const ERA_HANDSHAKE: u8 = 2;

/// Session with an upstream, or its stateless equivalent in the modern era.
pub(in crate::upstream) struct UpstreamSession {
    pub(in crate::upstream) era: Era,
    /// Headers of every request.
    pub(in crate::upstream) headers: HeaderMap,
    /// Whether the upstream named a session that can end.
    pub(in crate::upstream) has_id: bool,
    /// Declaration of the upstream. Empty while only its era is known: it is asked for when it is needed.
    pub(in crate::upstream) declared: Declared,
    /// Protocol revision that is spoken.
    pub(in crate::upstream) version: &'static str,
    /// Measure of how long the session lasts; `None` in the modern era and until the handshake is complete.
    pub(in crate::upstream) life: Option<Life>,
}

impl UpstreamSession {
    /// Returns what the upstream declares, if that is known and not stale. In a session with an id it is never stale:
    /// such a session ends with its server.
    pub(in crate::upstream) fn offers(&self) -> Option<DeclaredOffers> {
        if self.has_id { self.declared.last() } else { self.declared.fresh(Instant::now()) }
    }

    /// Returns what the upstream declares, as of `then` or later. The upstream must just have answered a request that
    /// was sent later than `then`.
    pub(in crate::upstream) fn offers_since(&self, then: Instant) -> Option<DeclaredOffers> {
        if self.has_id { self.declared.last() } else { self.declared.since(then) }
    }
}

/// Current session of a connection, and the means to open it.
pub(in crate::upstream) struct UpstreamSessions {
    http: Http,
    base: HeaderMap,
    /// Messages to callers that are allowed, which the handshake declares.
    relay: Relay,
    discover_wait: Duration,
    /// Longest wait for a session, which callers share: afterwards all of them fail, and the next caller tries again.
    open_wait: Duration,
    current: RwLock<Option<Arc<UpstreamSession>>>,
    /// Lock held while a session is opened, with time and error of the last attempt if that failed.
    opening: Mutex<Option<(Instant, UpstreamError)>>,
    era: AtomicU8,
    next_id: AtomicU64,
    pub(in crate::upstream) measures: Arc<Measures>,
}

impl UpstreamSessions {
    /// Creates the sessions of a connection, of which none is open yet. Opening one takes at most `wait`. A known
    /// `era` is not detected first.
    pub(in crate::upstream) fn new(
        http: Http,
        base: HeaderMap,
        (era, relay): (Option<Era>, Relay),
        wait: Duration,
        measures: &Arc<Measures>,
    ) -> Self {
        let sessions = Self {
            http,
            base,
            relay,
            discover_wait: DISCOVER_WAIT_MAX.min(wait / 4),
            open_wait: OPEN_WAIT_MAX.min(wait),
            current: RwLock::new(None),
            opening: Mutex::new(None),
            era: AtomicU8::new(ERA_UNKNOWN),
            next_id: AtomicU64::new(1),
            measures: Arc::clone(measures),
        };
        if let Some(era) = era {
            sessions.remember(era);
        }
        sessions
    }

    /// Returns the era, if it was detected or given.
    pub(in crate::upstream) fn era(&self) -> Option<Era> {
        match self.era.load(Ordering::Relaxed) {
            ERA_MODERN => Some(Era::Modern),
            ERA_HANDSHAKE => Some(Era::Handshake),
            _ => None,
        }
    }

    fn remember(&self, era: Era) {
        let code = if era == Era::Modern { ERA_MODERN } else { ERA_HANDSHAKE };
        self.era.store(code, Ordering::Relaxed);
    }

    /// Returns an id for a request; no id is used twice on this connection.
    pub(in crate::upstream) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the session, opened if there is none. Callers that come meanwhile wait and share the outcome.
    pub(in crate::upstream) async fn get(
        &self,
        of: ExchangeFor,
    ) -> Result<Arc<UpstreamSession>, UpstreamError> {
        match self.current() {
            Some(session) => Ok(session),
            // boxed: large and rare, it must not be part of every call's future
            None => Box::pin(self.get_opened(of)).await,
        }
    }

    async fn get_opened(&self, of: ExchangeFor) -> Result<Arc<UpstreamSession>, UpstreamError> {
        let asked = Instant::now();
        let mut last_failure = self.opening.lock().await;
        if let Some(session) = self.current() {
            return Ok(session);
        }
        // A caller that waited during a failed attempt shares the failure.
        if let Some((when, error)) = last_failure.as_ref().filter(|(when, _)| *when >= asked) {
            tracing::trace!(?when, "sharing the failure of another call");
            return Err(UpstreamError { is_shared: true, ..error.clone() });
        }
        let opened = timeout(self.open_wait, self.open(&self.http.of(of))).await;
        match opened
            .unwrap_or_else(|_| Err(UpstreamError::unsent(FailureKind::Timeout, "no session was opened")))
        {
            Ok(session) => {
                *last_failure = None;
                Ok(self.set(session))
            }
            Err(error) => {
                let error = error.before_dispatch();
                *last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Forgets a session that the upstream no longer knows.
    pub(in crate::upstream) fn end(&self, ended: &Arc<UpstreamSession>) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|session| Arc::ptr_eq(session, ended)) {
            *current = None;
            if let Some(life) = &ended.life {
                life.broke(FailureKind::Lost.name());
            }
        }
    }

    /// Opens a session that replaces `old`, which has no id and serves until then. Callers that come meanwhile get
    /// the same new session.
    pub(in crate::upstream) async fn renew(
        &self,
        old: &Arc<UpstreamSession>,
    ) -> Result<Arc<UpstreamSession>, UpstreamError> {
        let _opening = self.opening.lock().await;
        if let Some(session) = self.current().filter(|session| !Arc::ptr_eq(session, old)) {
            return Ok(session);
        }
        let opened = timeout(self.open_wait, self.open(&self.http)).await;
        let session = opened
            .unwrap_or_else(|_| Err(UpstreamError::unsent(FailureKind::Timeout, "no session was opened")));
        session.map(|session| self.set(session)).map_err(UpstreamError::before_dispatch)
    }

    /// Detects the era again, after a modern request was refused in a way of old servers. Returns true if the era was
    /// wrong and a session of the other era is open.
    pub(in crate::upstream) async fn leave_modern(
        &self,
        refused: &Arc<UpstreamSession>,
    ) -> Result<bool, UpstreamError> {
        let _opening = self.opening.lock().await;
        if self.current().is_some_and(|session| !Arc::ptr_eq(&session, refused)) {
            return Ok(true);
        }
        if self.discover(&self.http).await?.is_some() {
            return Ok(false);
        }
        let session = self.handshake(&self.http).await?;
        self.remember(Era::Handshake);
        self.set(session);
        Ok(true)
    }

    pub(in crate::upstream) fn current(&self) -> Option<Arc<UpstreamSession>> {
        self.current.read().clone()
    }

    fn set(&self, session: UpstreamSession) -> Arc<UpstreamSession> {
        let session = Arc::new(session);
        *self.current.write() = Some(Arc::clone(&session));
        session
    }

    async fn open(&self, http: &Http) -> Result<UpstreamSession, UpstreamError> {
        if let Some(login) = &http.login {
            // not within the short wait for the first answer
            login.token().await?;
        }
        let session = match self.era() {
            Some(Era::Modern) => self.modern(Declared::default()),
            Some(Era::Handshake) => match self.handshake(http).await {
                Ok(session) => session,
                // The server answers, but not to the handshake: perhaps it has moved on to the modern era.
                Err(error) if error.kind == FailureKind::Invalid => match self.discover(http).await? {
                    Some(declared) => self.modern(declared),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            },
            None => match self.discover(http).await? {
                Some(declared) => self.modern(declared),
                None => self.handshake(http).await?,
            },
        };
        self.remember(session.era);
        Ok(session)
    }

    async fn discover(&self, http: &Http) -> Result<Option<Declared>, UpstreamError> {
        let asked = Instant::now();
        let found = discover::discover(http, &self.base, self.id(), self.discover_wait).await?;
        Ok(found.map(|offers| Declared::new(offers, asked)))
    }

    fn modern(&self, declared: Declared) -> UpstreamSession {
        let headers = discover::modern_headers(&self.base);
        UpstreamSession { era: Era::Modern, headers, has_id: false, declared, version: MODERN, life: None }
    }

    async fn handshake(&self, http: &Http) -> Result<UpstreamSession, UpstreamError> {
        let id = self.id();
        let [offered, ..] = VERSIONS;
        let sent = Sent::default();
        let post = Post {
            id,
            headers: self.base.clone(),
            body: jsonrpc::initialize(id, offered, &self.relay.capabilities()),
            bytes_max: HELLO_BYTES_MAX,
            key: None,
            ear: None,
            reply_headers: None,
            dispatched: &sent.dispatched,
        };
        let asked = OwnRequest::begin(&self.measures, "initialize", Transport::Tcp, &sent);
        let began = Instant::now();
        let reply = http.post(post).await;
        let refused = reply.as_ref().ok().and_then(refused);
        let without_answer =
            reply.as_ref().ok().filter(|reply| reply.answer.is_none()).map(|reply| reply.status);
        let session = reply.and_then(|reply| self.accept(reply, began));
        match &session {
            Ok(session) => {
                sent.goes_out(id, session.version);
                asked.ended(End::Well);
            }
            Err(error) => asked.ended(refused.unwrap_or(End::Failed(error.kind.name()))),
        }
        let mut session = match without_answer {
            Some(status) => return Err(explained(http, &self.base, status).await),
            None => session?,
        };
        let body = jsonrpc::notification("notifications/initialized");
        let status = http.tell(session.headers.clone(), body).await?;
        if !status.is_success() {
            return Err(UpstreamError::invalid(format!(
                "initialized was answered with HTTP status {status}"
            )));
        }
        if self.relay.logging && session.declared.last().is_some_and(|offers| offers.logging) {
            let (http, headers) = (self.http.clone(), session.headers.clone());
            let body = jsonrpc::log_everything(self.id());
            // a wish, on which no call waits
            drop(tokio::spawn(async move { timeout(LOG_WISH_WAIT_MAX, http.tell(headers, body)).await }));
        }
        let between = Between { transport: Transport::Tcp, version: Some(session.version) };
        session.life = Some(Life::begin(&self.measures, between));
        Ok(session)
    }

    /// Returns the session that an answer to `initialize`, sent at `began`, opens.
    fn accept(&self, reply: Reply, began: Instant) -> Result<UpstreamSession, UpstreamError> {
        let result = match reply.answer {
            Some(Answer::Result(result)) => result,
            Some(Answer::Error { code, .. }) => {
                return Err(UpstreamError::invalid(format!("initialize was refused with code {code}")));
            }
            None => {
                return Err(UpstreamError::invalid(says("initialize was answered with ", reply.status)));
            }
        };
        let version = version_of(&result)?;
        let mut headers = self.base.clone();
        headers.insert("mcp-protocol-version", HeaderValue::from_static(version));
        let has_id = reply.session_id.is_some();
        if let Some(id) = reply.session_id {
            headers.insert("mcp-session-id", checked_id(id)?);
        }
        let declared = Declared::new(DeclaredOffers::of(&result), began);
        Ok(UpstreamSession { era: Era::Handshake, headers, has_id, declared, version, life: None })
    }
}

/// Returns how `initialize` ended, if it was refused.
fn refused(reply: &Reply) -> Option<End> {
    match &reply.answer {
        Some(Answer::Error { code, .. }) => Some(End::asked(*code)),
        _ => None,
    }
}

/// Returns a session id that can be sent back, marked as sensitive: it works as a credential, so no log shows it.
pub(in crate::upstream) fn checked_id(mut id: HeaderValue) -> Result<HeaderValue, UpstreamError> {
    if id.len() > SESSION_ID_BYTES_MAX || !id.as_bytes().iter().all(u8::is_ascii_graphic) {
        return Err(UpstreamError::invalid("the session id is too long or not plain text"));
    }
    id.set_sensitive(true);
    Ok(id)
}
