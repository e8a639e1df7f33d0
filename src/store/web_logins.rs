//! Logins by browser that are under way. They are the platform's, since nobody knows their tenant yet: each query runs as
//! `mcpproxy_system`.

use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::IssuerId;

/// Most logins under way. The oldest ends for a further one.
const LOGINS_MAX: i64 = 10_000;
/// Most logins under way that one browser began.
const LOGINS_OF_BROWSER_MAX: i64 = 10;

/// Login to be stored.
#[derive(Clone, Debug)]
pub struct NewWebLogin {
    /// SHA-256 of `state`.
    pub state: [u8; 32],
    /// SHA-256 of the browser's cookie.
    pub browser: [u8; 32],
    /// Issuer that the login is at.
    pub issuer: IssuerId,
    /// True if the provider's answer must name it.
    pub require_iss: bool,
    /// Envelope of what completes the login.
    pub sealed: Vec<u8>,
    /// Page to return to.
    pub return_to: String,
    /// Time for which the login can be completed, in seconds.
    pub keep_s: f64,
}

/// Login under way.
#[derive(Clone, Debug, FromRow)]
pub struct WebLogin {
    /// Issuer that the login is at.
    pub issuer_id: Uuid,
    /// True if the provider's answer must name it.
    pub require_iss: bool,
    /// Envelope of what completes the login.
    pub sealed: Vec<u8>,
    /// Page to return to.
    pub return_to: String,
}

impl Store {
    /// Stores a login that begins. Above the bounds, the oldest ones end.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn begin_web_login(&self, new: &NewWebLogin) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        sqlx::query(
            "delete from web_logins where state_hash in (
                 (select state_hash from web_logins where browser_hash = $1 order by created_at desc offset $2)
                 union all (select state_hash from web_logins order by created_at desc offset $3))",
        )
        .bind(new.browser.as_slice())
        .bind(LOGINS_OF_BROWSER_MAX - 1)
        .bind(LOGINS_MAX - 1)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "insert into web_logins (state_hash, browser_hash, issuer_id, require_iss, sealed, return_to, expires_at)
             values ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7))",
        )
        .bind(new.state.as_slice())
        .bind(new.browser.as_slice())
        .bind(new.issuer.0)
        .bind(new.require_iss)
        .bind(&new.sealed)
        .bind(&new.return_to)
        .bind(new.keep_s)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Returns a login of this `state` that this browser began; `None` if there is none, or its time is over. It stays.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn web_login(
        &self,
        state: &[u8; 32],
        browser: &[u8; 32],
    ) -> Result<Option<WebLogin>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let found = sqlx::query_as(
            "select issuer_id, require_iss, sealed, return_to from web_logins
             where state_hash = $1 and browser_hash = $2 and expires_at > now()",
        )
        .bind(state.as_slice())
        .bind(browser.as_slice())
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Ends a login of this `state` that this browser began. Returns whether it was under way: only one request gets `true`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn take_web_login(&self, state: &[u8; 32], browser: &[u8; 32]) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let taken: Option<Vec<u8>> = sqlx::query_scalar(
            "delete from web_logins where state_hash = $1 and browser_hash = $2 and expires_at > now()
             returning state_hash",
        )
        .bind(state.as_slice())
        .bind(browser.as_slice())
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(taken.is_some())
    }

    /// Deletes a batch of logins whose time is over. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_expired_web_logins(&self) -> Result<bool, StoreError> {
        let expired = sqlx::query(
            "delete from web_logins where state_hash in (
                 select state_hash from web_logins where expires_at < now() order by expires_at limit $1)",
        );
        self.delete_expired(expired).await
    }
}
