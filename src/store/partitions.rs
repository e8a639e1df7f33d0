//! Daily partitions of the activity log: created stand-alone, then attached, so that nobody waits.

use chrono::{Days, NaiveDate, Utc};
use sqlx::AssertSqlSafe;

use super::tx::{Access, Lane};
use super::{Store, StoreError};

/// How far ahead partitions are attached, in days.
pub const DAYS_AHEAD: u64 = 14;
/// Serialises upkeep between replicas: an arbitrary number of ours.
const UPKEEP_LOCK: i64 = 0x6d63_7070_6163_7401;

impl Store {
    /// Makes sure that the partitions from yesterday to [`DAYS_AHEAD`] days ahead exist; gives how many
    /// were made.
    pub async fn upkeep_partitions(&self) -> Result<usize, StoreError> {
        let today = Utc::now().date_naive();
        let first = today.checked_sub_days(Days::new(1)).unwrap_or(today);
        let mut made = 0;
        for day in first.iter_days().take(DAYS_AHEAD as usize + 2) {
            made += usize::from(self.ensure_partition(day).await?);
        }
        Ok(made)
    }

    /// Makes sure that the partition of one day exists; `true` when it was made.
    pub async fn ensure_partition(&self, day: NaiveDate) -> Result<bool, StoreError> {
        let name = format!("activity_{}", day.format("%Y%m%d"));
        let mut tx = self.begin(Lane::Control, Access::Owner).await?;
        sqlx::query("select pg_advisory_xact_lock($1)").bind(UPKEEP_LOCK).execute(&mut *tx).await?;
        let attached: bool = sqlx::query_scalar(
            "select exists (select from pg_inherits where inhrelid = to_regclass($1)
                            and inhparent = 'activity'::regclass)",
        )
        .bind(&name)
        .fetch_one(&mut *tx)
        .await?;
        if attached {
            tx.rollback().await?;
            return Ok(false);
        }
        let next = day.succ_opt().unwrap_or(day);
        for statement in [
            format!("create table if not exists {name} (like activity including defaults including indexes)"),
            format!("alter table {name} enable row level security, force row level security"),
            format!("alter table activity attach partition {name} for values from ('{day}Z') to ('{next}Z')"),
        ] {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(true)
    }
}
