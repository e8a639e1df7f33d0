//! Revisions, by which a replica knows that its snapshot is current. Only this file knows the names of the channels.
//!
//! The database is the truth and a notice only a hint: a replica that missed one compares revisions.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::Executor;
use sqlx::postgres::PgListener;
use tokio::time::timeout;

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, Stored, leftovers};
use crate::domain::id::{KeyId, ReplicaId, TenantId};
use crate::domain::text_enum::text_enum;

const CHANNEL: &str = "mcpproxy_revisions";
const CANCEL_CHANNEL: &str = "mcpproxy_cancel";
const MISLED_CHANNEL: &str = "mcpproxy_misled";
const CONSENT_CHANNEL: &str = "mcpproxy_consent";
const TURN_CHANNEL: &str = "mcpproxy_turn";
const REPLY_CHANNEL: &str = "mcpproxy_reply";
const SESSION_CHANNEL: &str = "mcpproxy_session";
const RELOAD_CHANNEL: &str = "mcpproxy_reload";
/// Most keys in one notice, whose payload has at most 8000 bytes.
pub const MISLED_KEYS_MAX: usize = 100;
/// Silence after which a listener checks its connection.
const LISTEN_SILENT_MAX: Duration = Duration::from_secs(5);
/// Longest wait of a listener for an answer of the server.
const LISTEN_ANSWER_MAX: Duration = Duration::from_secs(3);

text_enum! {
    /// Kind of data with a revision of its own.
    pub enum RevisionKind {
        /// Servers, and what they offer.
        Catalogue = "catalogue",
        /// Keys, settings, quotas and suspension.
        Access = "access",
        /// Vectors of definitions from an embeddings service. No list of a client changes with them.
        Vectors = "vectors",
        /// Issuers of tokens, their keys and assignments: of the reserved tenant `platform` alone.
        Issuers = "issuers",
    }
}

/// A tenant's revision of one kind; also the payload of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Tenant whose data changed.
    pub tenant: TenantId,
    /// Kind of the data.
    pub kind: RevisionKind,
    /// Revision, which grows with each change.
    pub rev: i64,
}

/// Notice that a handshake client has cancelled a call at a replica that does not run it. A lost notice does no harm:
/// the call runs to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelNotice {
    /// Tenant of the call.
    pub tenant: TenantId,
    /// Key that made the call; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// Id of the session; `None` without a session.
    pub session: Option<String>,
    /// Raw id of the request.
    pub request: String,
}

/// Notice that keys were served outdated lists. Replicas that hold streams of these keys notify their clients again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misled {
    /// Tenant of the keys.
    pub tenant: TenantId,
    /// Keys concerned, at most [`MISLED_KEYS_MAX`]; `None` for all.
    pub keys: Option<Vec<MisledKey>>,
    /// Revisions of catalogue and keys with which the lists were compared; zeros from replicas of the release before.
    #[serde(default)]
    pub revs: (i64, i64),
}

/// A key that was served an outdated list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MisledKey {
    /// Id of the key; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// Time since the list was served, in milliseconds.
    pub age_ms: u32,
    /// Kinds of lists concerned: tools, prompts, resources.
    pub kinds: [bool; 3],
}

/// Notice that a permission request was made or has moved. A lost notice costs whoever waits a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsentNotice {
    /// Tenant of the request.
    pub tenant: TenantId,
    /// Id of the request.
    pub id: uuid::Uuid,
}

/// Notice that a person has ended a turn. A lost notice leaves the calls under way on a replica to their end: the fence
/// stops those that come later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnNotice {
    /// Tenant of the turn.
    pub tenant: TenantId,
    /// Key whose turn it is; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// Session that is meant, with those that began later; `None` for all of the key.
    pub session: Option<String>,
    /// Time at which the turn ended.
    pub began_at: DateTime<Utc>,
    /// Beginning of the comment of the person who ended it, of at most [`NOTICE_COMMENT_BYTES_MAX`]; `None` without one, and from an older release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Longest comment in a notice, in bytes: Postgres takes notices of at most 8000, and JSON may need six bytes for one.
pub const NOTICE_COMMENT_BYTES_MAX: usize = 1024;

/// Notice about those who wait for replies of a client. A lost one costs a poll, or leaves them to the end of their time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyNotice {
    /// Tenant of the client.
    pub tenant: TenantId,
    /// News.
    pub news: ReplyNews,
}

/// News for those who wait for replies of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyNews {
    /// A reply is stored.
    Kept {
        /// Replica that waits for it.
        replica: ReplicaId,
        /// Id of whoever waits.
        id: uuid::Uuid,
    },
    /// The client has ended its session.
    SessionEnded {
        /// Key of the session; `None` for the bootstrap key.
        key: Option<KeyId>,
        /// Id of the session.
        session: String,
    },
}

impl ReplyNotice {
    pub(super) fn kept(tenant: TenantId, replica: ReplicaId, id: uuid::Uuid) -> ReplyNotice {
        ReplyNotice { tenant, news: ReplyNews::Kept { replica, id } }
    }
}

/// Notice that the wishes of a handshake session have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNotice {
    /// Tenant of the session.
    pub tenant: TenantId,
    /// Id of the session.
    pub session: String,
}

/// Notice that a replica has read its settings file again, and that the others should read theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadNotice {
    /// Replica that was told to.
    pub replica: ReplicaId,
}

/// Notice that a replica receives from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The data of a tenant changed.
    Change(Change),
    /// A client has cancelled a call.
    Cancel(CancelNotice),
    /// Outdated lists were served.
    Misled(Misled),
    /// A permission request has moved.
    Consent(ConsentNotice),
    /// A person has ended a turn.
    Turn(TurnNotice),
    /// A client has replied, or ended its session.
    Reply(ReplyNotice),
    /// A session has other wishes.
    Session(SessionNotice),
    /// Settings files are to be read again.
    Reload(ReloadNotice),
}

/// Takes the next revision; must be first in a transaction that changes something. The row lock serializes writers of
/// one tenant and kind, so that rows carry revisions in the order of their commits. From here on the transaction is as
/// durable as the login says. Otherwise, after a failover, a revision that a replica has seen could be given to another
/// change. [`StoreError::NotFound`] if the tenant is deleted.
pub(super) async fn bump(tx: &mut Unit, tenant: TenantId, kind: RevisionKind) -> Result<i64, StoreError> {
    let rev = sqlx::query_scalar(
        "update revisions set rev = rev + 1 where tenant_id = $1 and kind = $2 returning rev, set_config('synchronous_commit', null, true)",
    )
    .bind(tenant.0)
    .bind(kind.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    let rev = rev.ok_or(StoreError::NotFound)?;
    check_live(tx, tenant).await?;
    Ok(rev)
}

/// Refuses a change of a deleted tenant. It runs under the lock of one of the tenant's revisions, and as a statement of
/// its own. A statement that had waited for that lock would see the tenant as it was before the wait.
async fn check_live(tx: &mut Unit, tenant: TenantId) -> Result<(), StoreError> {
    let live: Option<i32> =
        sqlx::query_scalar("select 1 from tenants where tenant_id = $1 and deleted_at is null")
            .bind(tenant.0)
            .fetch_optional(&mut **tx)
            .await?;
    live.map(drop).ok_or(StoreError::NotFound)
}

/// Locks a tenant for a change without a revision; [`StoreError::NotFound`] if the tenant is deleted.
pub(super) async fn hold(tx: &mut Unit, tenant: TenantId) -> Result<(), StoreError> {
    lock(tx, tenant, RevisionKind::Access).await?;
    check_live(tx, tenant).await
}

/// Takes the next revision of a kind whose row is created when it is first needed.
pub(super) async fn bump_or_begin(
    tx: &mut Unit,
    tenant: TenantId,
    kind: RevisionKind,
) -> Result<i64, StoreError> {
    sqlx::query("insert into revisions (tenant_id, kind, rev) values ($1, $2, 0) on conflict do nothing")
        .bind(tenant.0)
        .bind(kind.as_str())
        .execute(&mut **tx)
        .await?;
    bump(tx, tenant, kind).await
}

/// Locks a tenant's revision without taking the next one, for a read before a change.
pub(super) async fn lock(tx: &mut Unit, tenant: TenantId, kind: RevisionKind) -> Result<(), StoreError> {
    sqlx::query("select from revisions where tenant_id = $1 and kind = $2 for update")
        .bind(tenant.0)
        .bind(kind.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Commits a change and notifies every replica.
pub(super) async fn commit(
    mut tx: Unit,
    tenant: TenantId,
    kind: RevisionKind,
    rev: i64,
) -> Result<i64, StoreError> {
    notify(&mut tx, Change { tenant, kind, rev }).await?;
    tx.commit_change().await?;
    Ok(rev)
}

/// Notifies every replica of a change once the transaction is committed.
pub(super) async fn notify(tx: &mut Unit, change: Change) -> Result<(), StoreError> {
    let payload = serde_json::json!(change).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&mut **tx).await?;
    Ok(())
}

/// Notifies every replica of a permission request that moves, once the transaction is committed.
pub(super) async fn tell_consent(tx: &mut Unit, tenant: TenantId, id: uuid::Uuid) -> Result<(), StoreError> {
    let payload = serde_json::json!(ConsentNotice { tenant, id }).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(CONSENT_CHANNEL).bind(payload).execute(&mut **tx).await?;
    Ok(())
}

/// Notifies every replica of the end of a turn, once the transaction is committed.
pub(super) async fn tell_turn(tx: &mut Unit, notice: &TurnNotice) -> Result<(), StoreError> {
    let payload = serde_json::json!(notice).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(TURN_CHANNEL).bind(payload).execute(&mut **tx).await?;
    Ok(())
}

/// Notifies every replica of news about replies, once the transaction is committed.
pub(super) async fn tell_reply(tx: &mut Unit, notice: &ReplyNotice) -> Result<(), StoreError> {
    let payload = serde_json::json!(notice).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(REPLY_CHANNEL).bind(payload).execute(&mut **tx).await?;
    Ok(())
}

/// Notifies every replica that a session has other wishes, once the transaction is committed.
pub(super) async fn tell_session(tx: &mut Unit, notice: &SessionNotice) -> Result<(), StoreError> {
    let payload = serde_json::json!(notice).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(SESSION_CHANNEL).bind(payload).execute(&mut **tx).await?;
    Ok(())
}

/// Returns a revision within a snapshot.
pub(super) async fn current(tx: &mut Unit, tenant: TenantId, kind: RevisionKind) -> Result<i64, StoreError> {
    let rev = sqlx::query_scalar("select rev from revisions where tenant_id = $1 and kind = $2")
        .bind(tenant.0)
        .bind(kind.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    rev.ok_or(StoreError::NotFound)
}

impl Store {
    /// Returns the revisions of these tenants, deleted ones included, for polling.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`] if the database takes no writes: it may be an outdated copy. Other errors come from the
    /// database.
    pub async fn revisions(&self, tenants: &[TenantId]) -> Result<Vec<Change>, StoreError> {
        let ids: Vec<uuid::Uuid> = tenants.iter().map(|tenant| tenant.0).collect();
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let is_read_only: bool = sqlx::query_scalar("select current_setting('transaction_read_only')::bool")
            .fetch_one(&mut *tx)
            .await?;
        if is_read_only {
            // the next connection may lead to the primary
            tx.discard();
            return Err(StoreError::ReadOnly);
        }
        let rows: Vec<(uuid::Uuid, Stored<RevisionKind>, i64)> =
            sqlx::query_as("select tenant_id, kind, rev from revisions where tenant_id = any($1)")
                .bind(ids)
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        let change = |(tenant, kind, rev): (_, Stored<_>, _)| {
            Some(Change { tenant: TenantId(tenant), kind: kind.known()?, rev })
        };
        Ok(rows.into_iter().filter_map(change).collect())
    }

    /// Notifies every replica of a cancellation.
    ///
    /// # Errors
    /// [`StoreError::Down`] while too many commits are unconfirmed. Other errors come from the database.
    pub async fn notify_cancel(&self, notice: &CancelNotice) -> Result<(), StoreError> {
        self.tell(TxAccess::Tenant(notice.tenant), CANCEL_CHANNEL, serde_json::json!(notice)).await
    }

    /// Notifies every replica that keys were served outdated lists.
    ///
    /// # Errors
    /// [`StoreError::Down`] while too many commits are unconfirmed. Other errors come from the database.
    pub async fn notify_misled(&self, notice: &Misled) -> Result<(), StoreError> {
        self.tell(TxAccess::Tenant(notice.tenant), MISLED_CHANNEL, serde_json::json!(notice)).await
    }

    /// Notifies every replica that settings files are to be read again.
    ///
    /// # Errors
    /// [`StoreError::Down`] while too many commits are unconfirmed. Other errors come from the database.
    pub async fn notify_reload(&self, notice: ReloadNotice) -> Result<(), StoreError> {
        self.tell(TxAccess::System, RELOAD_CHANNEL, serde_json::json!(notice)).await
    }

    /// Sends a notice without a change. Nothing is written, so the commit waits for no standby. But Postgres commits
    /// notices one after the other, also behind a change that waits. So none is sent while too many changes wait.
    async fn tell(
        &self,
        access: TxAccess,
        channel: &str,
        payload: serde_json::Value,
    ) -> Result<(), StoreError> {
        if !self.changes.has_room() {
            return Err(leftovers::unconfirmed());
        }
        let payload = payload.to_string();
        let mut tx = self.begin(Lane::Control, access).await?;
        sqlx::query("select pg_notify($1, $2)").bind(channel).bind(payload).execute(&mut *tx).await?;
        tx.commit_change().await
    }

    /// Opens a listener on a connection of its own.
    ///
    /// # Errors
    /// The database is out of reach, or does not answer in time.
    pub async fn listen(&self) -> Result<Listener, StoreError> {
        let pool =
            sqlx::postgres::PgPoolOptions::new().max_connections(1).acquire_timeout(super::CONNECT_MAX);
        let pool = pool.connect_lazy_with(self.direct.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // the caller reconnects: it must then compare revisions, or notices are lost unseen
        listener.eager_reconnect(false);
        let channels = [
            CHANNEL,
            CANCEL_CHANNEL,
            MISLED_CHANNEL,
            CONSENT_CHANNEL,
            TURN_CHANNEL,
            REPLY_CHANNEL,
            SESSION_CHANNEL,
            RELOAD_CHANNEL,
        ];
        timeout(LISTEN_ANSWER_MAX, listener.listen_all(channels))
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)??;
        Ok(Listener { listener, alive_at: Instant::now() })
    }
}

/// Receiver of notices from other replicas. After an error or an end, open a new one and compare revisions.
pub struct Listener {
    listener: PgListener,
    /// Last time at which the connection was known to work.
    alive_at: Instant,
}

impl Listener {
    /// Returns the last time at which no notice was missed for certain.
    pub fn alive_at(&self) -> Instant {
        self.alive_at
    }

    /// Waits for the next notice; `None` when the connection broke. A silent connection is checked, since one that was
    /// cut off would stay silent for ever.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            let Ok(received) = timeout(LISTEN_SILENT_MAX, self.listener.try_recv()).await else {
                match timeout(LISTEN_ANSWER_MAX, self.listener.execute("select 1")).await {
                    Ok(Ok(_)) => {
                        self.alive_at = Instant::now();
                        continue;
                    }
                    _ => {
                        tracing::warn!("the change listener's connection is dead");
                        return None;
                    }
                }
            };
            match received {
                Ok(Some(notice)) => {
                    self.alive_at = Instant::now();
                    let payload = notice.payload();
                    let read = match notice.channel() {
                        CANCEL_CHANNEL => serde_json::from_str(payload).map(Notice::Cancel),
                        MISLED_CHANNEL => serde_json::from_str(payload).map(Notice::Misled),
                        CONSENT_CHANNEL => serde_json::from_str(payload).map(Notice::Consent),
                        TURN_CHANNEL => serde_json::from_str(payload).map(Notice::Turn),
                        REPLY_CHANNEL => serde_json::from_str(payload).map(Notice::Reply),
                        SESSION_CHANNEL => serde_json::from_str(payload).map(Notice::Session),
                        RELOAD_CHANNEL => serde_json::from_str(payload).map(Notice::Reload),
                        _ => serde_json::from_str(payload).map(Notice::Change),
                    };
                    // a notice of a newer release concerns data that this binary does not hold
                    if let Ok(notice) = read {
                        return Some(notice);
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(%error, "the change listener lost its connection");
                    return None;
                }
            }
        }
    }
}
