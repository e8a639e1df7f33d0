//! Fetches of issuers' keys: one replica fetches for all, and the last good set stays.

use std::time::Duration;

use uuid::Uuid;

use super::issuers;
use crate::domain::id::IssuerId;
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

/// Time in seconds for which a fetch that began may still be under way.
const JWKS_LEASE_S: f64 = 15.0;

/// Cause of a fetch. Each has its own interval, so that a flood of unknown keys does not delay the periodic fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFetchCause {
    /// The interval of periodic fetches is over.
    Periodic,
    /// A token names a key that the set does not have.
    UnknownKey,
}

/// Right to fetch the keys of an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFetch {
    /// This replica is to fetch them now.
    Granted,
    /// Another fetch is under way; its end is announced with a revision.
    UnderWay,
    /// A fetch for this cause ended too short a time ago.
    TooSoon,
}

impl Store {
    /// Claims a fetch of an issuer's keys, at most one per `interval` for each cause, over all replicas.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the issuer is gone. Other errors come from the database.
    pub async fn claim_key_fetch(
        &self,
        issuer: IssuerId,
        cause: KeyFetchCause,
        interval: Duration,
    ) -> Result<KeyFetch, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let row: Option<(bool, bool)> = sqlx::query_as(
            "select coalesce(case when $2 then jwks_asked_at else jwks_tried_at end
                     > now() - make_interval(secs => $3), false),
                 coalesce(greatest(jwks_asked_at, jwks_tried_at) > greatest(jwks_ended_at, now() - make_interval(secs => $4)),
                     false)
             from issuers where issuer_id = $1 for update",
        )
        .bind(issuer.0)
        .bind(cause == KeyFetchCause::UnknownKey)
        .bind(interval.as_secs_f64())
        .bind(JWKS_LEASE_S)
        .fetch_optional(&mut *tx)
        .await?;
        let (is_too_soon, is_under_way) = row.ok_or(StoreError::NotFound)?;
        let claim = match (is_under_way, is_too_soon) {
            (true, _) => KeyFetch::UnderWay,
            (false, true) => KeyFetch::TooSoon,
            (false, false) => KeyFetch::Granted,
        };
        if claim == KeyFetch::Granted {
            sqlx::query(
                "update issuers set jwks_asked_at = case when $2 then clock_timestamp() else jwks_asked_at end,
                     jwks_tried_at = case when $2 then jwks_tried_at else clock_timestamp() end
                 where issuer_id = $1",
            )
            .bind(issuer.0)
            .bind(cause == KeyFetchCause::UnknownKey)
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(claim)
    }

    /// Stores the end of a fetch: the keys, or the error, which leaves the last good keys. Every replica is notified.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_key_fetch(
        &self,
        issuer: IssuerId,
        outcome: Result<&str, &str>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = issuers::next_rev(&mut tx).await?;
        sqlx::query(
            "update issuers set jwks = coalesce($2, jwks),
                 jwks_fetched_at = case when $2 is null then jwks_fetched_at else clock_timestamp() end,
                 jwks_ended_at = clock_timestamp(), jwks_error = $3
             where issuer_id = $1",
        )
        .bind(issuer.0)
        .bind(outcome.ok())
        .bind(outcome.err())
        .execute(&mut *tx)
        .await?;
        issuers::commit(tx, rev).await
    }

    /// Returns issuers whose last periodic fetch began longer than `interval` ago, or that never had one; where the last fetch failed,
    /// longer than `retry` ago.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn issuers_to_fetch(
        &self,
        interval: Duration,
        retry: Duration,
    ) -> Result<Vec<IssuerId>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows: Vec<Uuid> = sqlx::query_scalar(
            "select issuer_id from issuers
             where jwks_tried_at is null or jwks_tried_at < now() - make_interval(secs =>
                 case when jwks_error is null then $1 else least($1, $2) end)
             order by jwks_tried_at nulls first",
        )
        .bind(interval.as_secs_f64())
        .bind(retry.as_secs_f64())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(IssuerId).collect())
    }
}
