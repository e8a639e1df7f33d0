//! Retention of the activity log, for the deployment and each tenant, on the one replica that holds the lease for it.

use std::time::Duration;

use chrono::{DateTime, Days, NaiveTime, Utc};

use super::Upkeep;
use crate::domain::id::TenantId;
use crate::store::StoreError;

/// Pause between two batches, so that the log's own commits are not delayed.
pub(super) const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// Most batches of one tenant in one pass; the rest is left to the next.
pub(super) const BATCHES_MAX: u32 = 1000;

impl Upkeep {
    /// Creates partitions ahead (on any replica), then deletes old rows (on the replica with the lease). A failure is logged
    /// once and retried at the next pass, without delaying the other jobs.
    pub(super) async fn keep_partitions(&self) {
        let made = self.store.upkeep_partitions().await.map(drop);
        self.report_once("partition upkeep", made);
        let forgotten = self.store.forget_replicas().await.map(drop);
        self.report_once("replica upkeep", forgotten);
        self.report_once("expired results", self.delete_expired_texts().await);
        self.report_once("expired drafts", self.delete_expired_drafts().await);
        self.report_once("expired cookies", self.delete_expired_cookies().await);
        self.report_once("expired web sessions", self.delete_expired_web_sessions().await);
        match self.store.take_lease("retention", self.replica).await {
            Ok(None) => {}
            Ok(Some(_)) => {
                self.report_once("retention of days", self.drop_old_days().await);
                self.report_once("retention of tenants", self.delete_for_tenants().await);
                self.report_once("revoked keys", self.delete_old_keys().await);
                self.report_once("people not seen for long", self.delete_old_people().await);
                self.report_once("replaced policies", self.delete_old_policies().await);
                self.report_once("permission requests", self.delete_old_consent().await);
                self.report_once("wishes of sessions", self.delete_old_sessions().await);
                self.report_once("removed servers", self.delete_removed_servers().await);
                self.report_once("deleted tenants, again", self.purge_again().await);
                self.report_once("old embeddings", self.delete_old_embeddings().await);
            }
            Err(error) => self.report_once("retention", Err(error)),
        }
    }

    /// Deletes cached texts of results that have expired.
    async fn delete_expired_texts(&self) -> Result<(), StoreError> {
        self.batches(|| self.store.delete_expired_texts()).await.map(drop)
    }

    /// Deletes drafts of forms that have expired.
    async fn delete_expired_drafts(&self) -> Result<(), StoreError> {
        self.batches(|| self.store.delete_expired_drafts()).await.map(drop)
    }

    /// Deletes kept cookies of web pages that have expired.
    async fn delete_expired_cookies(&self) -> Result<(), StoreError> {
        self.batches(|| self.store.delete_expired_cookies()).await.map(drop)
    }

    /// Deletes sessions of the console, and logins under way, that have expired.
    async fn delete_expired_web_sessions(&self) -> Result<(), StoreError> {
        self.batches(|| self.store.delete_expired_flows()).await?;
        self.batches(|| self.store.delete_expired_web_logins()).await?;
        self.batches(|| self.store.delete_expired_web_sessions()).await.map(drop)
    }

    /// Deletes vectors that no replica uses.
    async fn delete_old_embeddings(&self) -> Result<(), StoreError> {
        self.batches(|| self.store.delete_old_embeddings()).await.map(drop)
    }

    async fn drop_old_days(&self) -> Result<(), StoreError> {
        let now = self.store.database_time().await?;
        let first_kept = kept_since(now, self.options.defaults.activity_retention_days).date_naive();
        let dropped = self.store.drop_partitions(first_kept).await?;
        if dropped > 0 {
            tracing::info!(dropped, %first_kept, "dropped days of the activity log");
        }
        let until = first_kept.and_time(NaiveTime::MIN).and_utc();
        self.batches(|| self.store.delete_provenance(None, until)).await.map(drop)
    }

    /// Deletes records that their tenant's retention no longer covers. A failure for one tenant does not stop the others,
    /// unless the database is unreachable; the first failure is returned at the end.
    async fn delete_for_tenants(&self) -> Result<(), StoreError> {
        let deployment = self.options.defaults.activity_retention_days;
        let now = self.store.database_time().await?;
        let mut outcome = Ok(());
        for (tenant, days) in self.store.tenants_retention().await? {
            // a value that no version of the gateway wrote deletes nothing
            let Some(days) = u32::try_from(days).ok().filter(|days| (1..deployment).contains(days)) else {
                continue;
            };
            let deleted = self.delete_until(tenant, kept_since(now, days)).await.map(drop);
            go_on(&mut outcome, deleted)?;
        }
        outcome
    }

    /// Deletes a tenant's records and ledgers from before a moment. Returns `true` when none is left.
    pub(super) async fn delete_until(
        &self,
        tenant: TenantId,
        until: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        // records first: one without its ledger would read as tampered with
        if !self.batches(|| self.store.delete_activity(tenant, until)).await? {
            return Ok(false);
        }
        self.batches(|| self.store.delete_provenance(Some(tenant), until)).await
    }

    /// Logs a job's failure if it differs from the last one: a lasting failure, such as a missing privilege, does not fill
    /// the log.
    pub(super) fn report_once(&self, job: &'static str, outcome: Result<(), StoreError>) {
        let text = outcome.err().map(|error| error.to_string());
        let Some(error) = &text else {
            self.complaints.forget(job);
            return;
        };
        if self.complaints.is_new(job, error) {
            tracing::warn!(job, error, "a background job failed; it is tried again");
        }
    }
}

/// Returns the first moment that is kept for so many days, by the database's clock.
fn kept_since(now: DateTime<Utc>, days: u32) -> DateTime<Utc> {
    now.checked_sub_days(Days::new(u64::from(days))).unwrap_or(DateTime::UNIX_EPOCH)
}

/// Keeps the first failure in `outcome`. Returns an error if the database is unreachable, because further work would fail
/// too.
pub(super) fn go_on(
    outcome: &mut Result<(), StoreError>,
    done: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match done {
        Err(error) if error.is_away() => Err(error),
        done => {
            if outcome.is_ok() {
                *outcome = done;
            }
            Ok(())
        }
    }
}
