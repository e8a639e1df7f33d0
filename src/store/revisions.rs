//! Revisions: how a replica knows that its snapshot is current. Channel names live here and nowhere else.
//!
//! The database is the truth and a notice only a hint: a replica that missed one compares revisions.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sqlx::Executor;
use sqlx::postgres::PgListener;
use tokio::time::timeout;

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, leftovers};
use crate::domain::id::{KeyId, TenantId};

const CHANNEL: &str = "mcpproxy_revisions";
const CANCEL_CHANNEL: &str = "mcpproxy_cancel";
const MISLED_CHANNEL: &str = "mcpproxy_misled";
/// Most keys that one notice names, in a payload of 8000 bytes.
pub const MISLED_KEYS_MAX: usize = 100;
/// A listener that heard nothing for this long asks whether its line still stands.
const LISTEN_SILENT_MAX: Duration = Duration::from_secs(5);
/// How long the answer may take.
const LISTEN_ANSWER_MAX: Duration = Duration::from_secs(3);

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RevisionKind {
    /// Servers and tools.
    Catalogue,
    /// Keys and settings.
    Access,
    /// What an embeddings service made of definitions; no list changes for it.
    Vectors,
}

impl RevisionKind {
    fn as_str(self) -> &'static str {
        match self {
            RevisionKind::Catalogue => "catalogue",
            RevisionKind::Access => "access",
            RevisionKind::Vectors => "vectors",
        }
    }

    fn parse(text: &str) -> Option<RevisionKind> {
        [RevisionKind::Catalogue, RevisionKind::Access, RevisionKind::Vectors]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// A tenant's revision of one kind; also the payload of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Whose.
    pub tenant: TenantId,
    /// Of what.
    pub kind: RevisionKind,
    /// Counts up.
    pub rev: i64,
}

/// A handshake client took a call back that the replica it told does not run. Lost notices do no harm: the
/// call runs to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelNotice {
    /// Whose call.
    pub tenant: TenantId,
    /// The key it was made with; none for the platform's own.
    pub key: Option<KeyId>,
    /// The session's id, where there is one.
    pub session: Option<String>,
    /// The raw id of the request.
    pub request: String,
}

/// Keys were served lists that were out of date: whoever holds streams of theirs tells them once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misled {
    /// Whose.
    pub tenant: TenantId,
    /// These keys; no list means all. At most [`MISLED_KEYS_MAX`].
    pub keys: Option<Vec<MisledKey>>,
}

/// A key that was served such a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MisledKey {
    /// The key; `None` is the platform's own.
    pub key: Option<KeyId>,
    /// How long ago, in milliseconds.
    pub age_ms: u32,
    /// Which: tools, prompts, resources.
    pub kinds: [bool; 3],
}

/// What a replica hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something was changed.
    Change(Change),
    /// A call was taken back.
    Cancel(CancelNotice),
    /// Lists were out of date.
    Misled(Misled),
}

/// Takes the next revision. First in a transaction that changes something: the row lock makes writers of
/// one tenant and kind take turns, so that rows carry revisions in the order of their commits. From here on the
/// transaction is as durable as the login says: a revision that a replica has seen must not be given again to
/// another change after a standby took over. Nothing of a deleted tenant changes: [`StoreError::NotFound`].
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

/// Refuses what would change a deleted tenant. Under the lock of one of its revisions, and as a statement of its own:
/// whoever waited for that lock behind the deletion would see the tenant as it was when the waiting began.
async fn check_live(tx: &mut Unit, tenant: TenantId) -> Result<(), StoreError> {
    let live: Option<i32> =
        sqlx::query_scalar("select 1 from tenants where tenant_id = $1 and deleted_at is null")
            .bind(tenant.0)
            .fetch_optional(&mut **tx)
            .await?;
    live.map(drop).ok_or(StoreError::NotFound)
}

/// For a change without a revision: none is made of a deleted tenant.
pub(super) async fn hold(tx: &mut Unit, tenant: TenantId) -> Result<(), StoreError> {
    lock(tx, tenant, RevisionKind::Access).await?;
    check_live(tx, tenant).await
}

/// The next revision of a kind whose row is made when it is first needed.
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

/// Waits for whoever has the next revision in hand, and keeps others from taking it: for a look before a change.
pub(super) async fn lock(tx: &mut Unit, tenant: TenantId, kind: RevisionKind) -> Result<(), StoreError> {
    sqlx::query("select from revisions where tenant_id = $1 and kind = $2 for update")
        .bind(tenant.0)
        .bind(kind.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Commits a change and tells every replica.
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

/// Tells every replica of a change once it is committed.
pub(super) async fn notify(tx: &mut Unit, change: Change) -> Result<(), StoreError> {
    let payload = serde_json::json!(change).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&mut **tx).await?;
    Ok(())
}

/// Reads a revision within a snapshot.
pub(super) async fn current(tx: &mut Unit, tenant: TenantId, kind: RevisionKind) -> Result<i64, StoreError> {
    let rev = sqlx::query_scalar("select rev from revisions where tenant_id = $1 and kind = $2")
        .bind(tenant.0)
        .bind(kind.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    rev.ok_or(StoreError::NotFound)
}

impl Store {
    /// The revisions of these tenants, for the poll. A deleted tenant's are there too. A database that takes no
    /// writes confirms nothing: it may be a copy that was left behind.
    pub async fn revisions(&self, tenants: &[TenantId]) -> Result<Vec<Change>, StoreError> {
        let ids: Vec<uuid::Uuid> = tenants.iter().map(|tenant| tenant.0).collect();
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let is_read_only: bool = sqlx::query_scalar("select current_setting('transaction_read_only')::bool")
            .fetch_one(&mut *tx)
            .await?;
        if is_read_only {
            // the next one may find the primary
            tx.discard();
            return Err(StoreError::ReadOnly);
        }
        let rows: Vec<(uuid::Uuid, String, i64)> =
            sqlx::query_as("select tenant_id, kind, rev from revisions where tenant_id = any($1)")
                .bind(ids)
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        let change = |(tenant, kind, rev): (uuid::Uuid, String, i64)| {
            RevisionKind::parse(&kind).map(|kind| Change { tenant: TenantId(tenant), kind, rev })
        };
        Ok(rows.into_iter().filter_map(change).collect())
    }

    /// Tells every replica of a cancellation.
    pub async fn notify_cancel(&self, notice: &CancelNotice) -> Result<(), StoreError> {
        self.tell(notice.tenant, CANCEL_CHANNEL, serde_json::json!(notice)).await
    }

    /// Tells every replica whose lists were out of date.
    pub async fn notify_misled(&self, notice: &Misled) -> Result<(), StoreError> {
        self.tell(notice.tenant, MISLED_CHANNEL, serde_json::json!(notice)).await
    }

    /// Tells without a change. Nothing is written, so the commit waits for no standby; but notices are committed one
    /// after the other, also behind a change that does wait. Not sent while there are too many of those.
    async fn tell(
        &self,
        tenant: TenantId,
        channel: &str,
        payload: serde_json::Value,
    ) -> Result<(), StoreError> {
        if !self.changes.has_room() {
            return Err(leftovers::unconfirmed());
        }
        let payload = payload.to_string();
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        sqlx::query("select pg_notify($1, $2)").bind(channel).bind(payload).execute(&mut *tx).await?;
        tx.commit_change().await
    }

    /// A listener on a connection of its own.
    pub async fn listen(&self) -> Result<Listener, StoreError> {
        let pool =
            sqlx::postgres::PgPoolOptions::new().max_connections(1).acquire_timeout(super::CONNECT_MAX);
        let pool = pool.connect_lazy_with(self.direct.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // reconnecting is ours: whoever reconnects must compare revisions, or notices are lost unseen
        listener.eager_reconnect(false);
        timeout(LISTEN_ANSWER_MAX, listener.listen_all([CHANNEL, CANCEL_CHANNEL, MISLED_CHANNEL]))
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)??;
        Ok(Listener { listener, alive_at: Instant::now() })
    }
}

/// Notices of changes and of what else replicas tell each other. After an error or an end, take a new one and compare revisions.
pub struct Listener {
    listener: PgListener,
    /// When it was last certain that the line stands.
    alive_at: Instant,
}

impl Listener {
    /// When it was last certain that nothing was missed.
    pub fn alive_at(&self) -> Instant {
        self.alive_at
    }

    /// The next notice; `None` when the line broke. A line that stays silent is asked whether it is still there:
    /// one that was cut without a word would be silent for ever.
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
                        _ => serde_json::from_str(payload).map(Notice::Change),
                    };
                    // else of a newer release: nothing this binary keeps
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
