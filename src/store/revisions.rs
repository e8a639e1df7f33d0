//! Revisions: how a replica knows that its snapshot is current. Channel names live here and nowhere else.
//!
//! The database is the truth and a notice only a hint: a replica that missed one compares revisions.

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgListener;
use sqlx::{PgPool, Postgres, Transaction};

use super::tx::{Access, Lane};
use super::{Store, StoreError};
use crate::domain::id::{KeyId, TenantId};

const CHANNEL: &str = "mcpproxy_revisions";
const CANCEL_CHANNEL: &str = "mcpproxy_cancel";

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Servers and tools.
    Catalogue,
    /// Keys and settings.
    Access,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Catalogue => "catalogue",
            Kind::Access => "access",
        }
    }

    fn parse(text: &str) -> Option<Kind> {
        [Kind::Catalogue, Kind::Access].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A tenant's revision of one kind; also the payload of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Whose.
    pub tenant: TenantId,
    /// Of what.
    pub kind: Kind,
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

/// What a replica hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something was changed.
    Change(Change),
    /// A call was taken back.
    Cancel(CancelNotice),
}

/// Takes the next revision. First in a transaction that changes something: the row lock makes writers of
/// one tenant and kind take turns, so that rows carry revisions in the order of their commits.
pub(super) async fn bump(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    kind: Kind,
) -> Result<i64, StoreError> {
    let rev = sqlx::query_scalar(
        "update revisions set rev = rev + 1 where tenant_id = $1 and kind = $2 returning rev",
    )
    .bind(tenant.0)
    .bind(kind.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    rev.ok_or(StoreError::NotFound)
}

/// Commits a change and tells every replica.
pub(super) async fn commit(
    mut tx: Transaction<'static, Postgres>,
    tenant: TenantId,
    kind: Kind,
    rev: i64,
) -> Result<i64, StoreError> {
    let payload = serde_json::json!({"tenant": tenant, "kind": kind, "rev": rev}).to_string();
    sqlx::query("select pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(rev)
}

/// Reads a revision within a snapshot.
pub(super) async fn current(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    kind: Kind,
) -> Result<i64, StoreError> {
    let rev = sqlx::query_scalar("select rev from revisions where tenant_id = $1 and kind = $2")
        .bind(tenant.0)
        .bind(kind.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    rev.ok_or(StoreError::NotFound)
}

impl Store {
    /// The revisions of these tenants, for the poll. A deleted tenant's are there too.
    pub async fn revisions(&self, tenants: &[TenantId]) -> Result<Vec<Change>, StoreError> {
        let ids: Vec<uuid::Uuid> = tenants.iter().map(|tenant| tenant.0).collect();
        let mut tx = self.begin(Lane::Control, Access::System).await?;
        let rows: Vec<(uuid::Uuid, String, i64)> =
            sqlx::query_as("select tenant_id, kind, rev from revisions where tenant_id = any($1)")
                .bind(ids)
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        let change = |(tenant, kind, rev): (uuid::Uuid, String, i64)| {
            Kind::parse(&kind).map(|kind| Change { tenant: TenantId(tenant), kind, rev })
        };
        Ok(rows.into_iter().filter_map(change).collect())
    }

    /// Tells every replica of a cancellation. Nothing is written, so no commit waits for it.
    pub async fn notify_cancel(&self, notice: &CancelNotice) -> Result<(), StoreError> {
        let payload = serde_json::json!(notice).to_string();
        let mut tx = self.begin(Lane::Control, Access::Tenant(notice.tenant)).await?;
        sqlx::query("select pg_notify($1, $2)").bind(CANCEL_CHANNEL).bind(payload).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    /// A listener on a connection of its own.
    pub async fn listen(&self) -> Result<Listener, StoreError> {
        let pool: PgPool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(super::ACQUIRE_TIMEOUT)
            .connect_with(self.direct.clone())
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        // reconnecting is ours: whoever reconnects must compare revisions, or notices are lost unseen
        listener.eager_reconnect(false);
        listener.listen_all([CHANNEL, CANCEL_CHANNEL]).await?;
        Ok(Listener(listener))
    }
}

/// Notices of changes and cancellations. After an error or an end, take a new one and compare revisions.
pub struct Listener(PgListener);

impl Listener {
    /// The next notice; `None` when the line broke.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.0.try_recv().await {
                Ok(Some(notice)) => {
                    let payload = notice.payload();
                    let read = match notice.channel() {
                        CANCEL_CHANNEL => serde_json::from_str(payload).map(Notice::Cancel),
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
