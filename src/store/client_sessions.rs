//! Wishes of handshake sessions: the log level, and the resources that the client subscribed to. Any replica may be told of
//! them; those that serve the session read them again after a notice.

use uuid::Uuid;

use super::revisions::{SessionNotice, tell_session};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, Stored};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::relay::LogLevel;

/// Most resources that one session may be subscribed to.
pub const SESSION_URIS_MAX: usize = 100;
/// Most sessions of one key whose wishes are kept. Beyond it, those without a stream go: first those without subscriptions,
/// then those that were not seen for the longest time. Those that are stored at the same moment may be beyond it, until the
/// key's next wish.
pub const KEY_SESSIONS_MAX: i64 = 50;
/// Time for which a session counts as one with a stream after its replica has said so, in seconds.
const LIVE_FOR_S: f64 = 90.0;
/// Longest wait for a row that another change holds, in milliseconds: connections are few, and shared by all tenants.
const LOCK_WAIT_MS: u32 = 1000;
/// Age of the last sign of life from which another one is written, in seconds.
const TOUCH_AFTER_S: f64 = 600.0;
/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;

/// Session of a handshake client.
#[derive(Clone, Copy, Debug)]
pub struct SessionOf<'a> {
    /// Tenant of the key.
    pub tenant: TenantId,
    /// Key of the session; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// Id of the session.
    pub id: &'a str,
}

/// Wishes of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionWishes {
    /// Lowest level of log messages; `None` if the client never set one.
    pub log_level: Option<LogLevel>,
    /// URIs of the resources whose updates the client wants to hear of, oldest first.
    pub uris: Vec<String>,
}

/// Outcome of a change of a session's wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WishOutcome {
    /// The wish is stored.
    Stored,
    /// The session is subscribed to [`SESSION_URIS_MAX`] other resources.
    SessionFull,
    /// The key has [`KEY_SESSIONS_MAX`] other sessions with wishes, and all of them have a stream.
    KeyFull,
}

impl SessionOf<'_> {
    fn principal(&self) -> Uuid {
        self.key.map_or(Uuid::nil(), |key| key.0)
    }

    fn notice(&self) -> SessionNotice {
        SessionNotice { tenant: self.tenant, session: self.id.to_owned() }
    }
}

impl Store {
    /// Returns the wishes of a session; none without a row.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn session_wishes(&self, session: SessionOf<'_>) -> Result<SessionWishes, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(session.tenant)).await?;
        let row: Option<(Option<Stored<LogLevel>>, Vec<String>)> = sqlx::query_as(
            "select log_level, uris from client_sessions
             where tenant_id = $1 and session_id = $2 and principal = $3",
        )
        .bind(session.tenant.0)
        .bind(session.id)
        .bind(session.principal())
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        let wishes = |(level, uris): (Option<Stored<LogLevel>>, _)| SessionWishes {
            log_level: level.and_then(|level| level.known()),
            uris,
        };
        Ok(row.map(wishes).unwrap_or_default())
    }

    /// Stores the log level of a session.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn set_log_level(
        &self,
        session: SessionOf<'_>,
        level: LogLevel,
    ) -> Result<WishOutcome, StoreError> {
        let mut tx = self.begin_wish(session).await?;
        sqlx::query(
            "insert into client_sessions (tenant_id, session_id, principal, log_level) values ($1, $2, $3, $4)
             on conflict (tenant_id, session_id) do update set log_level = $4, seen_at = now()
             where client_sessions.principal = $3",
        )
        .bind(session.tenant.0)
        .bind(session.id)
        .bind(session.principal())
        .bind(level.as_str())
        .execute(&mut *tx)
        .await?;
        end_wish(tx, session).await
    }

    /// Subscribes a session to a resource.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn subscribe_session(
        &self,
        session: SessionOf<'_>,
        uri: &str,
    ) -> Result<WishOutcome, StoreError> {
        let mut tx = self.begin_wish(session).await?;
        let stored = sqlx::query(
            "insert into client_sessions (tenant_id, session_id, principal, uris) values ($1, $2, $3, array[$4])
             on conflict (tenant_id, session_id) do update set seen_at = now(), uris =
                 case when $4 = any (client_sessions.uris) then client_sessions.uris
                      else array_append(client_sessions.uris, $4) end
             where client_sessions.principal = $3
               and ($4 = any (client_sessions.uris) or cardinality(client_sessions.uris) < $5)",
        )
        .bind(session.tenant.0)
        .bind(session.id)
        .bind(session.principal())
        .bind(uri)
        .bind(i32::try_from(SESSION_URIS_MAX).unwrap_or(i32::MAX))
        .execute(&mut *tx)
        .await?;
        if stored.rows_affected() == 0 {
            tx.rollback().await?;
            return Ok(WishOutcome::SessionFull);
        }
        end_wish(tx, session).await
    }

    /// Ends a session's subscription to a resource, if there is one.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn unsubscribe_session(&self, session: SessionOf<'_>, uri: &str) -> Result<(), StoreError> {
        let mut tx = self.begin_wish(session).await?;
        sqlx::query(
            "update client_sessions set uris = array_remove(uris, $4), seen_at = now()
             where tenant_id = $1 and session_id = $2 and principal = $3",
        )
        .bind(session.tenant.0)
        .bind(session.id)
        .bind(session.principal())
        .bind(uri)
        .execute(&mut *tx)
        .await?;
        tell_session(&mut tx, &session.notice()).await?;
        tx.commit_change().await
    }

    /// Deletes the wishes of a session that its client ended. Returns whether it had any.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_session(&self, session: SessionOf<'_>) -> Result<bool, StoreError> {
        let mut tx = self.begin_wish(session).await?;
        let deleted = sqlx::query(
            "delete from client_sessions where tenant_id = $1 and session_id = $2 and principal = $3",
        )
        .bind(session.tenant.0)
        .bind(session.id)
        .bind(session.principal())
        .execute(&mut *tx)
        .await?;
        if deleted.rows_affected() == 0 {
            tx.rollback().await?;
            return Ok(false);
        }
        tell_session(&mut tx, &session.notice()).await?;
        tx.commit_change().await?;
        Ok(true)
    }

    /// Notes that sessions of a tenant are alive.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn touch_sessions(&self, tenant: TenantId, sessions: &[String]) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        sqlx::query(
            "update client_sessions set seen_at = now()
             where tenant_id = $1 and session_id = any ($2) and seen_at < now() - make_interval(secs => $3)",
        )
        .bind(tenant.0)
        .bind(sessions)
        .bind(TOUCH_AFTER_S)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Notes of sessions of all tenants whether they have a stream at this replica. Those that have one count as seen.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn note_streams(
        &self,
        sessions: &[(TenantId, String)],
        have_one: bool,
    ) -> Result<(), StoreError> {
        let (tenants, ids): (Vec<Uuid>, Vec<&str>) =
            sessions.iter().map(|(tenant, id)| (tenant.0, id.as_str())).unzip();
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        sqlx::query(
            "update client_sessions s
             set live_until = case when $3 then now() + make_interval(secs => $4) end,
                 seen_at = case when $3 and seen_at < now() - make_interval(secs => $5) then now() else seen_at end
             from unnest($1::uuid[], $2::text[]) as k (tenant_id, session_id)
             where s.tenant_id = k.tenant_id and s.session_id = k.session_id",
        )
        .bind(tenants)
        .bind(ids)
        .bind(have_one)
        .bind(LIVE_FOR_S)
        .bind(TOUCH_AFTER_S)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Deletes a batch of wishes of sessions that were not seen for a day. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_old_sessions(&self) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        // the owner sees only rows that may go
        let deleted = sqlx::query(
            "delete from client_sessions where (tenant_id, session_id) in
                 (select tenant_id, session_id from client_sessions where seen_at < now() - interval '1 day' limit $1)",
        )
        .bind(BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }

    /// Begins a change of a session's wishes. Changes of one session wait for each other, at the session's row.
    async fn begin_wish(&self, session: SessionOf<'_>) -> Result<Unit, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(session.tenant)).await?;
        sqlx::query("select set_config('lock_timeout', $1, true)")
            .bind(LOCK_WAIT_MS.to_string())
            .execute(&mut *tx)
            .await?;
        Ok(tx)
    }
}

/// Keeps the bound on the sessions of the key, and notifies every replica of the sessions that changed.
async fn end_wish(mut tx: Unit, session: SessionOf<'_>) -> Result<WishOutcome, StoreError> {
    let (others, live): (i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where live_until > now()) from client_sessions
         where tenant_id = $1 and principal = $2 and session_id <> $3",
    )
    .bind(session.tenant.0)
    .bind(session.principal())
    .bind(session.id)
    .fetch_one(&mut *tx)
    .await?;
    if live >= KEY_SESSIONS_MAX {
        tx.rollback().await?;
        return Ok(WishOutcome::KeyFull);
    }
    let excess = others - (KEY_SESSIONS_MAX - 1);
    if excess > 0 {
        // one that is being changed is in use, and is not waited for
        let gone: Vec<String> = sqlx::query_scalar(
            "delete from client_sessions where tenant_id = $1 and session_id in
                 (select session_id from client_sessions
                  where tenant_id = $1 and principal = $2 and session_id <> $3
                      and (live_until is null or live_until <= now())
                  order by cardinality(uris) > 0, seen_at limit $4 for update skip locked)
             returning session_id",
        )
        .bind(session.tenant.0)
        .bind(session.principal())
        .bind(session.id)
        .bind(excess)
        .fetch_all(&mut *tx)
        .await?;
        for session_id in gone {
            tell_session(&mut tx, &SessionNotice { tenant: session.tenant, session: session_id }).await?;
        }
    }
    tell_session(&mut tx, &session.notice()).await?;
    tx.commit_change().await?;
    Ok(WishOutcome::Stored)
}
