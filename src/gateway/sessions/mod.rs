//! Wishes of handshake sessions (log level, subscriptions to resources), and the streams on which servers announce updates of
//! resources ([decision 55](../../../docs/decisions/0055-resource-subscriptions.md)).
//!
//! A session's requests and its stream may be on different replicas, so wishes are rows. The replica that has a stream
//! watches the servers for it.

mod levels;
mod news;
mod streams;
mod turns;
mod watches;
mod watching;

pub use self::news::{ResourceNews, UpdatesDue};
pub use self::streams::SessionStreamHold;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use self::levels::Levels;
use self::streams::SessionStreams;
use self::turns::WriteTurns;
use self::watches::Watches;
use super::Ground;
use super::catalog::{Catalog, ServerEntry, ViewKey};
use super::tenants::Caller;
use crate::domain::id::TenantId;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::relay::LogLevel;
use crate::domain::tenant::Action;
use crate::domain::tool::PinState;
use crate::store::{KEY_SESSIONS_MAX, SessionNotice, SessionOf, Store, StoreError, WishOutcome};
use crate::upstream::{Pool, URI_BYTES_MAX};

/// Most reads of wishes for streams at the same time: many streams may come back at once.
const READS_MAX: usize = 4;
/// Most wishes that are stored at the same time: others need the database's few connections as well.
const WRITES_MAX: usize = 2;
/// Longest wait of a call for the log level of its session.
const LEVEL_WAIT_MAX: Duration = Duration::from_millis(200);

/// Tenant and id of a session.
type SessionKey = (TenantId, String);

/// Wishes of handshake sessions, and watches of resources.
pub struct ClientSessions {
    store: Store,
    upstreams: Arc<Pool>,
    levels: Levels,
    reads: Semaphore,
    writes: WriteTurns,
    watches: Arc<Watches>,
    /// Streams of this replica that follow the subscriptions of their sessions.
    followed: Mutex<HashMap<SessionKey, Vec<Arc<StreamLine>>>>,
    streams: Mutex<SessionStreams>,
}

/// Line to one stream, by which it learns that there is news for it.
#[derive(Debug, Default)]
struct StreamLine {
    told: Notify,
    /// True if the wishes of the session may be others than those that were read.
    is_behind: AtomicBool,
}

impl StreamLine {
    fn wishes_changed(&self) {
        self.is_behind.store(true, Ordering::SeqCst);
        self.told.notify_one();
    }
}

impl ClientSessions {
    pub(super) fn new(ground: &Ground) -> ClientSessions {
        let Ground { store, upstreams, options, life } = ground.clone();
        ClientSessions {
            store,
            watches: Watches::new(&upstreams, &life, options.upstream_streams_max),
            upstreams,
            levels: Levels::default(),
            reads: Semaphore::new(READS_MAX),
            writes: WriteTurns::new(WRITES_MAX),
            followed: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    /// Returns the lowest level of log messages that a session wants; `None` if its client never set one, or if that cannot be
    /// read now. Asks the database only for sessions that were not asked for in the last minutes.
    pub async fn log_level(&self, caller: &Caller, session: &str) -> Option<LogLevel> {
        let key = (caller.tenant_id(), session.to_owned());
        let asked = match self.levels.get(&key) {
            Ok(level) => return level,
            Err(asked) => asked,
        };
        let of = session_of(caller, session);
        let read = timeout(LEVEL_WAIT_MAX, self.store.session_wishes(of));
        match read.await.unwrap_or_else(|_| Err(StoreError::Down("it was slow".to_owned()))) {
            Ok(wishes) => {
                // levels are asked for by calls, which are a sign of life
                let (store, tenant, session) = (self.store.clone(), of.tenant, key.1.clone());
                tokio::spawn(async move {
                    if let Err(error) = store.touch_sessions(tenant, &[session]).await {
                        tracing::debug!(%error, "a session's sign of life could not be written");
                    }
                });
                self.levels.put(key, wishes.log_level, asked);
                wishes.log_level
            }
            Err(error) => {
                tracing::debug!(tenant = %of.tenant, %error, "a session's log level could not be read");
                None
            }
        }
    }

    /// Stores the log level of a session.
    ///
    /// # Errors
    /// A refusal if the key has too many sessions, or the database cannot store it now.
    pub async fn set_log_level(
        &self,
        caller: &Caller,
        session: &str,
        level: LogLevel,
    ) -> Result<(), Refusal> {
        let _turn = self.writes.take(caller.tenant_id()).await;
        let stored = self.store.set_log_level(session_of(caller, session), level).await;
        match stored.map_err(|error| unstored(caller, &error))? {
            WishOutcome::KeyFull => Err(too_many_sessions()),
            WishOutcome::Stored | WishOutcome::SessionFull => Ok(()),
        }
    }

    /// Ends a session's subscription to a resource, if there is one.
    ///
    /// # Errors
    /// A refusal if the database cannot store it now.
    pub async fn unsubscribe(&self, caller: &Caller, session: &str, uri: &str) -> Result<(), Refusal> {
        // nothing of the kind can be subscribed to, and no text of the database can hold it
        if uri.len() > URI_BYTES_MAX || uri.contains('\0') {
            return Ok(());
        }
        let _turn = self.writes.take(caller.tenant_id()).await;
        let stored = self.store.unsubscribe_session(session_of(caller, session), uri).await;
        stored.map_err(|error| unstored(caller, &error))
    }

    /// Subscribes a session to a resource whose server was checked. Returns `false` if it has too many others.
    pub(in crate::gateway) async fn subscribe(
        &self,
        caller: &Caller,
        session: &str,
        uri: &str,
    ) -> Result<bool, Refusal> {
        let _turn = self.writes.take(caller.tenant_id()).await;
        let stored = self.store.subscribe_session(session_of(caller, session), uri).await;
        match stored.map_err(|error| unstored(caller, &error))? {
            WishOutcome::Stored => Ok(true),
            WishOutcome::SessionFull => Ok(false),
            WishOutcome::KeyFull => Err(too_many_sessions()),
        }
    }

    /// Deletes the wishes of a session that its client ended. If that fails, they go a day later.
    pub async fn end(&self, caller: &Caller, session: &str) {
        let _turn = self.writes.take(caller.tenant_id()).await;
        if let Err(error) = self.store.end_session(session_of(caller, session)).await {
            tracing::debug!(tenant = %caller.tenant_id(), %error, "the wishes of a session are left to expire");
        }
    }

    /// Notes a notice of other wishes of a session.
    pub(in crate::gateway) fn heard(&self, notice: SessionNotice) {
        let key = (notice.tenant, notice.session);
        self.levels.forget(&key);
        self.streams.lock().wishes_changed(&key);
        if let Some(lines) = self.followed.lock().get(&key) {
            lines.iter().for_each(|line| line.wishes_changed());
        }
    }

    /// Notes that notices may have been lost: all wishes are read again.
    pub(in crate::gateway) fn deaf(&self) {
        self.levels.forget_all();
        self.followed.lock().values().flatten().for_each(|line| line.wishes_changed());
    }

    fn follow_session(&self, key: &SessionKey, line: &Arc<StreamLine>) {
        self.followed.lock().entry(key.clone()).or_default().push(Arc::clone(line));
    }

    fn unfollow_session(&self, key: &SessionKey, line: &Arc<StreamLine>) {
        let mut followed = self.followed.lock();
        let Some(lines) = followed.get_mut(key) else { return };
        lines.retain(|known| !Arc::ptr_eq(known, line));
        if lines.is_empty() {
            followed.remove(key);
        }
    }
}

/// Returns the server whose resource a caller may read under this URI now; `None` if it may not.
pub(in crate::gateway) fn readable(
    caller: &Caller,
    catalogue: &Catalog,
    uri: &str,
) -> Option<Arc<ServerEntry>> {
    if uri.len() > URI_BYTES_MAX || caller.authorise(Action::UseTools).is_err() {
        return None;
    }
    let offer = catalogue.offers().route(uri)?;
    let server = &offer.server;
    let is_open = server.enabled && !server.quarantined && offer.state == PinState::Approved;
    let is_seen = ViewKey::of(&caller.settings).sees_offer(&format!("{}:{uri}", server.name));
    (is_open && is_seen).then(|| Arc::clone(server))
}

fn session_of<'a>(caller: &Caller, session: &'a str) -> SessionOf<'a> {
    SessionOf { tenant: caller.tenant_id(), key: caller.key, id: session }
}

fn too_many_sessions() -> Refusal {
    let text = format!(
        "This key has {KEY_SESSIONS_MAX} other sessions with subscriptions or a log level, and all of them are connected; end \
         one of them first"
    );
    Refusal::new(Code::Overloaded, text)
}

fn unstored(caller: &Caller, error: &StoreError) -> Refusal {
    tracing::warn!(tenant = %caller.tenant_id(), %error, "a wish of a session could not be stored");
    Refusal::new(Code::CacheUnavailable, "This could not be stored now; a retry may help later")
}
