//! Sessions of people at the console. They are the platform's, since a cookie says nothing of its tenant: each query runs as
//! `mcpproxy_system`, and those of one holder name tenant and principal.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::{IssuerId, TenantId};

/// Interval in seconds at which the use of a session is written.
const SEEN_S: i32 = 60;

/// Lifetime of sessions, and their number.
#[derive(Clone, Copy, Debug)]
pub struct WebSessionRules {
    /// Time without a request after which a session ends.
    pub idle: Duration,
    /// Longest time that a session lasts.
    pub lifetime: Duration,
    /// Most sessions of one principal. The oldest ends for a further one.
    pub per_principal_max: i64,
}

/// Holder of sessions: an API key, a person, or the bootstrap key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHolder {
    /// Tenant of the holder; `None` for the bootstrap key.
    pub tenant: Option<TenantId>,
    /// API key or identity; nil for the bootstrap key.
    pub principal: Uuid,
}

/// Login of a person, as a session keeps it.
#[derive(Clone, Debug)]
pub struct SessionLogin {
    /// Id of the issuer.
    pub issuer: Uuid,
    /// Claim `sub`, which the provider's notices of a logout name.
    pub sub: String,
    /// Session at the provider, which a logout there names; `None` if the ID token named none.
    pub sid: Option<String>,
    /// URL where the provider ends its own session; `None` if it has none.
    pub logout_url: Option<String>,
    /// Id of the data key that seals the ID token.
    pub data_key: Uuid,
    /// Envelope of the ID token.
    pub sealed: Vec<u8>,
}

/// Session to be stored.
#[derive(Clone, Debug)]
pub struct NewWebSession {
    /// SHA-256 of the cookie's secret.
    pub hash: [u8; 32],
    /// Id by which its holder sees and ends the session.
    pub id: Uuid,
    /// Kind of the credential, as a word.
    pub kind: &'static str,
    /// Holder of the session.
    pub holder: SessionHolder,
    /// Digest of the bootstrap key under the cookie's secret; `None` for others.
    pub proof: Option<[u8; 32]>,
    /// Login of a person; `None` for keys.
    pub login: Option<SessionLogin>,
    /// Address that the login came from; `None` if it is unknown.
    pub address: Option<String>,
}

/// Session as stored, without its hash.
#[derive(Clone, Debug, FromRow)]
pub struct WebSessionRow {
    /// Id by which its holder sees and ends the session.
    #[sqlx(rename = "session_id")]
    pub id: Uuid,
    /// Kind of the credential, as a word.
    pub kind: String,
    /// Tenant of the holder; `None` for the bootstrap key.
    pub for_tenant: Option<Uuid>,
    /// API key or identity; nil for the bootstrap key.
    pub principal_id: Uuid,
    /// Digest of the bootstrap key under the cookie's secret.
    pub proof: Option<Vec<u8>>,
    /// Issuer of a person.
    pub issuer_id: Option<Uuid>,
    /// URL where a person's provider ends its own session.
    pub logout_url: Option<String>,
    /// Id of the data key that seals the ID token.
    pub data_key_id: Option<Uuid>,
    /// Envelope of the ID token.
    pub sealed: Option<Vec<u8>>,
    /// Address that the login came from.
    pub address: Option<String>,
    /// Time of the login.
    pub created_at: DateTime<Utc>,
    /// Time of the last request, written at most once a minute.
    pub seen_at: DateTime<Utc>,
    /// End of the session.
    pub expires_at: DateTime<Utc>,
}

/// Reason why a session is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTouch {
    /// The holder does something: the time without use begins again.
    Use,
    /// A page asks by itself: the session ends when it would have.
    Look,
}

macro_rules! session_columns {
    () => {
        "session_id, kind, for_tenant, principal_id, proof, issuer_id, logout_url, data_key_id, sealed, address, created_at,
         seen_at, expires_at"
    };
}

impl Store {
    /// Stores a session. The oldest ones of its holder go, so that there are never more than the rules allow.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn begin_web_session(
        &self,
        new: &NewWebSession,
        rules: WebSessionRules,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        // concurrent logins must see each other's rows, or the bound would be exceeded
        sqlx::query("select pg_advisory_xact_lock(hashtextextended('web_sessions ' || $1::text, 0))")
            .bind(new.holder.principal)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "delete from web_sessions where principal_id = $1 and for_tenant is not distinct from $2
               and session_hash not in (
                 select session_hash from web_sessions
                 where principal_id = $1 and for_tenant is not distinct from $2 and expires_at > now()
                 order by created_at desc, session_id desc limit $3)",
        )
        .bind(new.holder.principal)
        .bind(new.holder.tenant.map(|tenant| tenant.0))
        .bind((rules.per_principal_max - 1).max(0))
        .execute(&mut *tx)
        .await?;
        let login = new.login.as_ref();
        sqlx::query(
            "insert into web_sessions (session_hash, session_id, kind, for_tenant, principal_id, proof, issuer_id, subject,
                 sid, logout_url, data_key_id, sealed, address, expires_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now() + make_interval(secs => $14))",
        )
        .bind(new.hash.as_slice())
        .bind(new.id)
        .bind(new.kind)
        .bind(new.holder.tenant.map(|tenant| tenant.0))
        .bind(new.holder.principal)
        .bind(new.proof.as_ref().map(<[u8; 32]>::as_slice))
        .bind(login.map(|login| login.issuer))
        .bind(login.map(|login| login.sub.as_str()))
        .bind(login.and_then(|login| login.sid.as_deref()))
        .bind(login.and_then(|login| login.logout_url.as_deref()))
        .bind(login.map(|login| login.data_key))
        .bind(login.map(|login| login.sealed.as_slice()))
        .bind(&new.address)
        .bind(rules.lifetime.as_secs_f64())
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Returns a session by the hash of its secret; `None` if there is none, or it has ended. A use lengthens it.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn web_session(
        &self,
        hash: &[u8; 32],
        rules: WebSessionRules,
        touch: SessionTouch,
    ) -> Result<Option<WebSessionRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let found: Option<WebSessionRow> = sqlx::query_as(concat!(
            "select ",
            session_columns!(),
            " from web_sessions
             where session_hash = $1 and expires_at > now() and seen_at > now() - make_interval(secs => $2)"
        ))
        .bind(hash.as_slice())
        .bind(rules.idle.as_secs_f64())
        .fetch_optional(&mut *tx)
        .await?;
        if found.is_some() && touch == SessionTouch::Use {
            sqlx::query(
                "update web_sessions set seen_at = now()
                 where session_hash = $1 and seen_at < now() - make_interval(secs => $2)",
            )
            .bind(hash.as_slice())
            .bind(f64::from(SEEN_S))
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(found)
    }

    /// Returns the sessions of a holder that have not ended, the newest first.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn web_sessions_of(
        &self,
        holder: SessionHolder,
        rules: WebSessionRules,
    ) -> Result<Vec<WebSessionRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows = sqlx::query_as(concat!(
            "select ",
            session_columns!(),
            " from web_sessions
             where principal_id = $1 and for_tenant is not distinct from $2 and expires_at > now()
               and seen_at > now() - make_interval(secs => $3)
             order by created_at desc, session_id desc limit $4"
        ))
        .bind(holder.principal)
        .bind(holder.tenant.map(|tenant| tenant.0))
        .bind(rules.idle.as_secs_f64())
        .bind(rules.per_principal_max)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Ends a session by the hash of its secret.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_web_session(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        sqlx::query("delete from web_sessions where session_hash = $1")
            .bind(hash.as_slice())
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    /// Ends a session of a holder by its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the holder has no such session. Other errors come from the database.
    pub async fn end_web_session_of(&self, holder: SessionHolder, id: Uuid) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let done = sqlx::query(
            "delete from web_sessions
             where session_id = $1 and principal_id = $2 and for_tenant is not distinct from $3",
        )
        .bind(id)
        .bind(holder.principal)
        .bind(holder.tenant.map(|tenant| tenant.0))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        if done.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
    }

    /// Ends the sessions that a provider's notice of a logout names: of a person, of a session there, or of both. Sessions that were
    /// begun after `until` stay. Returns their number.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_web_sessions_at(
        &self,
        issuer: IssuerId,
        (sub, sid): (Option<&str>, Option<&str>),
        until: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let done = sqlx::query(
            "delete from web_sessions where issuer_id = $1 and ($2::text is not null or $3::text is not null)
               and ($2 is null or subject = $2)
               and ($3 is null or sid = $3 or (sid is null and $2 is not null)) and created_at <= $4",
        )
        .bind(issuer.0)
        .bind(sub)
        .bind(sid)
        .bind(until)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// Deletes a batch of expired sessions. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_expired_web_sessions(&self) -> Result<bool, StoreError> {
        let expired = sqlx::query(
            "delete from web_sessions where session_hash in (
                 select session_hash from web_sessions where expires_at < now() order by expires_at limit $1)",
        );
        self.delete_expired(expired).await
    }
}
