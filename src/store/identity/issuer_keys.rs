//! Fetches of issuers' keys: one replica fetches for all, and the last good set stays.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::issuers;
use crate::domain::id::IssuerId;
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

/// Time in seconds for which a fetch that began may still be under way; longer than the deadline of a fetch.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFetch {
    /// This replica is to fetch them now.
    Granted(KeyFetchClaim),
    /// Another fetch is under way; its end is announced with a revision.
    UnderWay,
    /// A fetch for this cause ended too short a time ago.
    TooSoon,
}

/// Fetch that a replica claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFetchClaim {
    /// Issuer whose keys are fetched.
    pub issuer: IssuerId,
    /// URL of the key set, as configured at that time; `None` to discover it.
    pub jwks_uri: Option<String>,
    /// Time of the claim.
    began_at: DateTime<Utc>,
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
        let row: Option<(bool, bool, Option<String>)> = sqlx::query_as(
            "select coalesce(case when $2 then jwks_asked_at else jwks_tried_at end
                     > now() - make_interval(secs => $3), false),
                 coalesce(greatest(jwks_asked_at, jwks_tried_at) > greatest(jwks_ended_at, now() - make_interval(secs => $4)),
                     false),
                 jwks_uri
             from issuers where issuer_id = $1 for update",
        )
        .bind(issuer.0)
        .bind(cause == KeyFetchCause::UnknownKey)
        .bind(interval.as_secs_f64())
        .bind(JWKS_LEASE_S)
        .fetch_optional(&mut *tx)
        .await?;
        let (is_too_soon, is_under_way, jwks_uri) = row.ok_or(StoreError::NotFound)?;
        match (is_under_way, is_too_soon) {
            (true, _) => return Ok(KeyFetch::UnderWay),
            (false, true) => return Ok(KeyFetch::TooSoon),
            (false, false) => {}
        }
        let began_at = sqlx::query_scalar(
            "with began as (select clock_timestamp() as at)
             update issuers set jwks_asked_at = case when $2 then began.at else jwks_asked_at end,
                 jwks_tried_at = case when $2 then jwks_tried_at else began.at end
             from began where issuer_id = $1 returning began.at",
        )
        .bind(issuer.0)
        .bind(cause == KeyFetchCause::UnknownKey)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(KeyFetch::Granted(KeyFetchClaim { issuer, jwks_uri, began_at }))
    }

    /// Stores the end of a fetch: the keys, or the error, which leaves the last good keys. Every replica is notified. Nothing is
    /// stored if the URL of the keys was changed since the claim, or a later fetch has begun: its keys are newer.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_key_fetch(
        &self,
        claim: &KeyFetchClaim,
        outcome: Result<&str, &str>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = issuers::next_rev(&mut tx).await?;
        let stored = sqlx::query(
            "update issuers set jwks = coalesce($2, jwks),
                 jwks_fetched_at = case when $2 is null then jwks_fetched_at else clock_timestamp() end,
                 jwks_ended_at = clock_timestamp(), jwks_error = $3
             where issuer_id = $1 and jwks_uri is not distinct from $4
               and greatest(jwks_asked_at, jwks_tried_at) <= $5",
        )
        .bind(claim.issuer.0)
        .bind(outcome.ok())
        .bind(outcome.err())
        .bind(&claim.jwks_uri)
        .bind(claim.began_at)
        .execute(&mut *tx)
        .await?;
        if stored.rows_affected() == 0 {
            tracing::info!(issuer = %claim.issuer, "fetched keys were not stored: their URL was changed, or there are newer ones");
            return Ok(());
        }
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
