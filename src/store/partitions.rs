//! Daily partitions of the activity log: created stand-alone and attached ahead of their day, detached and dropped when
//! they are too old. No write waits for this: a statement that cannot have its lock within [`LOCK_WAIT_MAX`] gives up,
//! and is retried.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use chrono::{Days, NaiveDate};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};
use tokio::time::timeout;

use super::activity_columns::{NOT_COMPARED, STATISTICS};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::backoff::{Backoff, chance};

/// Number of days ahead for which partitions are attached.
const DAYS_AHEAD: u64 = 14;
/// Advisory lock that serializes upkeep between replicas: an arbitrary number.
const UPKEEP_LOCK: i64 = 0x6d63_7070_6163_7401;
/// Lock timeout: a statement that waits for a lock makes those behind it wait as well.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(50);
/// Attempts to get a lock before upkeep fails until its next pass.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_MIN: Duration = Duration::from_millis(50);
const LOCK_RETRY_MAX: Duration = Duration::from_secs(1);
/// Statement timeout of upkeep at the server; [`ANSWER_MAX`] bounds the wait for its answer.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
const ANSWER_MAX: Duration = Duration::from_secs(35);
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Relation of a partition to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The partition is part of the log.
    Attached,
    /// The partition is half detached: detaching was interrupted.
    Detaching,
    /// The partition is a table of its own.
    Alone,
}

impl Store {
    /// Creates the missing partitions from yesterday to 14 days ahead, by the database's clock, and bounds the statistics of all. Returns how many
    /// were missing. A replica whose clock differs creates the days that it needs itself.
    ///
    /// # Errors
    /// [`StoreError::Schema`] if a pooler is in front of `direct_url`. Other errors come from the database, among them
    /// a lock that others hold for too long.
    pub async fn upkeep_partitions(&self) -> Result<usize, StoreError> {
        let now = self.database_time().await?;
        let today = now.date_naive();
        let first = today.checked_sub_days(Days::new(1)).unwrap_or(today);
        let made = self.ensure_partitions(first.iter_days().take(DAYS_AHEAD as usize + 2)).await?;
        let last_day = today.checked_add_days(Days::new(DAYS_AHEAD)).unwrap_or(today);
        self.noted.has_partitions_until(last_day, now);
        self.bound_statistics().await?;
        Ok(made)
    }

    /// Creates the missing partitions of these days. Returns how many.
    ///
    /// # Errors
    /// As [`Store::upkeep_partitions`].
    pub async fn ensure_partitions(
        &self,
        days: impl Iterator<Item = NaiveDate>,
    ) -> Result<usize, StoreError> {
        let attached = self.attached_partitions().await?;
        let missing: Vec<NaiveDate> = days.filter(|day| !attached.contains(&name_of(*day))).collect();
        if missing.is_empty() {
            return Ok(0);
        }
        let mut session = self.owner_session().await?;
        for day in &missing {
            session.attach(*day).await?;
        }
        session.close().await;
        Ok(missing.len())
    }

    /// Writes to the log. If it has no partition for a record's day (a clock far off, or upkeep that failed for days), those
    /// of `days` are created, and `write` is repeated: it must be one transaction.
    ///
    /// # Errors
    /// Errors of `write` and of `days`, or as [`Store::upkeep_partitions`].
    pub async fn with_partitions<T, F>(
        &self,
        days: impl Future<Output = Result<BTreeSet<NaiveDate>, StoreError>> + Send,
        write: impl Fn() -> F + Send,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        match write().await {
            Err(error) if error.is_missing_partition() => {}
            written => return written,
        }
        self.ensure_partitions(days.await?.into_iter()).await?;
        write().await
    }

    /// Bounds what Postgres does for the statistics of each day, also of one that another release made, and of columns that came later. A
    /// day whose lock is not free waits for the next pass.
    async fn bound_statistics(&self) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let changes: Vec<String> = sqlx::query_scalar(
            "select format('alter table %s ', i.inhrelid::regclass)
                 || string_agg(format('alter column %I set statistics %s', a.attname, w.target), ', ')
             from pg_inherits i join pg_attribute a on a.attrelid = i.inhrelid and a.attnum > 0 and not a.attisdropped
             cross join lateral (select case when a.attname = any($1) then 0 else $2 end) w (target)
             where i.inhparent = 'activity'::regclass and not i.inhdetachpending
                and coalesce(a.attstattarget, -1) <> w.target
             group by i.inhrelid",
        )
        .bind(NOT_COMPARED)
        .bind(STATISTICS)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        if changes.is_empty() {
            return Ok(());
        }
        let mut session = self.owner_session().await?;
        for change in &changes {
            match session.run(change).await {
                Err(error) if !is_contention(&error) => {
                    tracing::warn!(%error, "the statistics of a day of the log are not bounded yet");
                }
                Ok(()) | Err(_) => {}
            }
        }
        session.close().await;
        Ok(())
    }

    async fn attached_partitions(&self) -> Result<HashSet<String>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let names: Vec<String> = sqlx::query_scalar(
            "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = 'activity'::regclass and not i.inhdetachpending",
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(names.into_iter().collect())
    }

    /// Drops the partitions of all days before `first_kept`. Returns how many. Days with open records stay, because
    /// their final records go there. A partition that was left half detached is finished.
    ///
    /// # Errors
    /// As [`Store::upkeep_partitions`].
    pub async fn drop_partitions(&self, first_kept: NaiveDate) -> Result<usize, StoreError> {
        let open = self.open_days(first_kept).await?;
        let mut session = self.owner_session().await?;
        let mut dropped = 0;
        for (name, standing) in session.partitions().await? {
            let is_expired = day_of(&name).is_some_and(|day| day < first_kept && !open.contains(&day));
            match standing {
                // Postgres detaches no second one while one is half detached
                Standing::Detaching if !is_expired => session.finish_detaching(&name).await?,
                _ if is_expired => {
                    session.remove(&name).await?;
                    dropped += 1;
                }
                _ => {}
            }
        }
        session.close().await;
        Ok(dropped)
    }

    async fn open_days(&self, before: NaiveDate) -> Result<HashSet<NaiveDate>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let days: Vec<NaiveDate> = sqlx::query_scalar(
            "select distinct (started_at at time zone 'UTC')::date from activity_open
             where started_at < $1::timestamp at time zone 'UTC'",
        )
        .bind(before)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(days.into_iter().collect())
    }

    /// Opens a session of the owner, without a pooler: detaching cannot be part of a transaction, and a pooler must not
    /// see the session's settings.
    async fn owner_session(&self) -> Result<OwnerSession, StoreError> {
        let options = self.direct.clone().options([
            ("role", "mcpproxy_owner".to_owned()),
            ("lock_timeout", LOCK_WAIT_MAX.as_millis().to_string()),
            ("statement_timeout", STATEMENT_MAX.as_millis().to_string()),
        ]);
        let connected = timeout(CONNECT_MAX, options.connect()).await;
        let connection = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        let mut session = OwnerSession { connection };
        let role: String = session.ask("select current_user::text").await?;
        if role != "mcpproxy_owner" {
            return Err(StoreError::Schema(
                "database.direct_url must lead to Postgres itself: what is in between keeps settings from it"
                    .to_owned(),
            ));
        }
        Ok(session)
    }
}

/// Returns the name of a day's partition.
fn name_of(day: NaiveDate) -> String {
    format!("activity_{}", day.format("%Y%m%d"))
}

/// Returns the day of a partition; `None` for other tables.
fn day_of(name: &str) -> Option<NaiveDate> {
    NaiveDate::parse_from_str(name.strip_prefix("activity_")?, "%Y%m%d").ok()
}

struct OwnerSession {
    connection: PgConnection,
}

impl OwnerSession {
    async fn run(&mut self, statement: &str) -> Result<(), sqlx::Error> {
        let done = self.connection.execute(AssertSqlSafe(statement.to_owned()));
        timeout(ANSWER_MAX, done).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(drop)
    }

    async fn ask(&mut self, query: &'static str) -> Result<String, sqlx::Error> {
        let answer = sqlx::query_scalar(query).fetch_one(&mut self.connection);
        timeout(ANSWER_MAX, answer).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Returns every partition of the log with its standing: half detached ones first, then the oldest first.
    async fn partitions(&mut self) -> Result<Vec<(String, Standing)>, sqlx::Error> {
        let rows = sqlx::query_as(
            "select c.relname::text, i.inhrelid is not null, coalesce(i.inhdetachpending, false)
             from pg_class c left join pg_inherits i on i.inhrelid = c.oid
             where c.relnamespace = (select relnamespace from pg_class where oid = 'activity'::regclass)
                and c.relkind = 'r' and c.relname ~ '^activity_[0-9]{8}$'
             order by 3 desc, 1",
        )
        .fetch_all(&mut self.connection);
        let rows: Vec<(String, bool, bool)> =
            timeout(ANSWER_MAX, rows).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        let standing = |attached, detaching| match (attached, detaching) {
            (_, true) => Standing::Detaching,
            (true, false) => Standing::Attached,
            (false, false) => Standing::Alone,
        };
        Ok(rows.into_iter().map(|(name, a, d)| (name, standing(a, d))).collect())
    }

    async fn standing(&mut self, name: &str) -> Result<Option<Standing>, sqlx::Error> {
        let all = self.partitions().await?;
        Ok(all.into_iter().find(|(known, _)| known == name).map(|(_, standing)| standing))
    }

    /// Creates the partition of a day, empty and stand-alone, and attaches it. A half detached partition is detached
    /// completely first.
    async fn attach(&mut self, day: NaiveDate) -> Result<(), StoreError> {
        let name = name_of(day);
        let next = day.succ_opt().unwrap_or(day);
        let statements = format!(
            "select pg_advisory_xact_lock({UPKEEP_LOCK});
             create table if not exists {name} (like activity including defaults including indexes);
             alter table {name} enable row level security, force row level security;
             alter table activity attach partition {name} for values from ('{day}Z') to ('{next}Z')"
        );
        let mut patience = Patience::new();
        loop {
            let tried = match self.standing(&name).await? {
                // another replica was faster
                Some(Standing::Attached) => return Ok(()),
                Some(Standing::Detaching) => self.run(&finalize(&name)).await,
                // several statements in one message are one transaction
                Some(Standing::Alone) | None => self.run(&statements).await,
            };
            patience.after(tried).await?;
        }
    }

    /// Finishes detaching a partition.
    async fn finish_detaching(&mut self, name: &str) -> Result<(), StoreError> {
        let mut patience = Patience::new();
        while self.standing(name).await? == Some(Standing::Detaching) {
            let tried = self.run(&finalize(name)).await;
            patience.after(tried).await?;
        }
        Ok(())
    }

    /// Detaches and drops a partition, whatever its standing is now.
    async fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        let mut patience = Patience::new();
        while let Some(standing) = self.standing(name).await? {
            let statement = match standing {
                // takes no lock that readers or writers of the log would wait for
                Standing::Attached => format!("alter table activity detach partition {name} concurrently"),
                Standing::Detaching => finalize(name),
                Standing::Alone => format!("drop table {name}"),
            };
            let tried = self.run(&statement).await;
            patience.after(tried).await?;
        }
        Ok(())
    }

    async fn close(self) {
        // a failed goodbye does not matter
        drop(timeout(CONNECT_MAX, self.connection.close()).await);
    }
}

fn finalize(name: &str) -> String {
    format!("alter table activity detach partition {name} finalize")
}

/// Retries and backoff for a lock that others hold.
struct Patience {
    attempts_left: u32,
    backoff: Backoff,
}

impl Patience {
    fn new() -> Patience {
        Patience { attempts_left: LOCK_ATTEMPTS, backoff: Backoff::new(LOCK_RETRY_MIN, LOCK_RETRY_MAX) }
    }

    /// Waits for the backoff after a lock conflict. Other errors, and the last lock conflict, are returned.
    async fn after(&mut self, tried: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
        match tried {
            Err(error) if self.attempts_left > 1 && is_contention(&error) => {
                self.attempts_left -= 1;
                tokio::time::sleep(self.backoff.jittered(chance())).await;
                Ok(())
            }
            other => other,
        }
    }
}

/// Returns whether other sessions are in the way. 55P03: the lock was not free in time; 40P01: a deadlock; 42P07,
/// 23505, XX000: another replica created the same table at the same moment; 42809: another replica attached it.
fn is_contention(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| {
        matches!(code.as_ref(), "55P03" | "40P01" | "42P07" | "42809" | "23505" | "XX000")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_days() {
        let day = NaiveDate::from_ymd_opt(2026, 3, 9).unwrap();
        assert_eq!(name_of(day), "activity_20260309");
        assert_eq!(day_of("activity_20260309"), Some(day));
        for other in ["activity_open", "activity_20261399", "activity", "tools"] {
            assert_eq!(day_of(other), None, "{other}");
        }
    }
}
