//! Units of work: one transaction under one role, with settings that end with it.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, timeout};

use super::leftovers::{Fate, Leftovers};
use super::unit::{Bounds, Unit};
use super::vitals::PoolKind;
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Role and isolation of a unit of work.
#[derive(Clone, Copy, Debug)]
pub enum TxAccess {
    /// Rows of one tenant, by row-level security.
    Tenant(TenantId),
    /// Rows of one tenant in one consistent snapshot, read-only.
    TenantSnapshot(TenantId),
    /// Cross-tenant jobs, within the policies of `mcpproxy_system`.
    System,
    /// Upkeep as the owner of the tables: deletion in batches, and the schema check.
    Owner,
}

/// Class of a unit of work: decides its pool, its timeouts and how durable its commit is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    /// Short work of requests and background tasks.
    Control,
    /// Background work on the control pool that is repeated if it is lost with the primary: its commits wait for no
    /// standby. Transactions that take a revision wait all the same ([`super::revisions::bump`]).
    Upkeep,
    /// Commits of the activity log.
    Commit,
    /// Reads of the activity log.
    Report,
    /// Reads and writes of the response cache, on the report pool since a row may be large. Commits wait for no
    /// standby: if a cached text is lost, the tool can be called again.
    Cache,
}

/// Statement timeout at the server, on all lanes but [`Lane::Commit`].
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// Lock timeout of upkeep and of the response cache. The change that holds the lock may wait for a standby; work queued
/// behind it must not occupy the pool.
const UPKEEP_LOCK_MAX: Duration = Duration::from_secs(3);
/// Margin of a timeout over the one inside it.
const SLACK: Duration = Duration::from_secs(2);
/// Longest wait of the activity writer for an answer before it retries on another connection; all its work can be
/// repeated. If it waited as long as a call does, a connection that died silently would cost every call meanwhile its
/// record.
const COMMIT_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Returns the statement timeout of the activity writer: by then no call waits for its record any more. The timeout
/// does not bound a commit that waits for a standby ([`super::leftovers`]).
pub(super) fn commit_statement_max(commit_max: Duration) -> Duration {
    commit_max + SLACK
}

/// Failed attempt to begin a unit of work.
enum Failed {
    /// No connection was available.
    ToOpen(sqlx::Error),
    /// A connection was available but is unusable.
    ToBegin(sqlx::Error),
}

impl Lane {
    /// Returns the pool that the lane's connections come from.
    fn pool(self) -> PoolKind {
        match self {
            Lane::Control | Lane::Upkeep => PoolKind::Control,
            Lane::Commit => PoolKind::Commit,
            Lane::Report | Lane::Cache => PoolKind::Report,
        }
    }

    /// Returns the longest wait for admission and a connection, after which a unit of work fails.
    fn acquire_max(self) -> Duration {
        match self {
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => Duration::from_secs(5),
            // as long as a call waits for its record
            Lane::Commit => Duration::from_secs(10),
        }
    }

    /// Returns the fate of a connection on which an answer did not come in time.
    fn fate(self) -> Fate {
        match self {
            // the server's own timeout ends a statement; a commit, which no timeout ends, has reserved a permit
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => Fate::Closed,
            Lane::Commit => Fate::Kept,
        }
    }
}

impl Store {
    /// Begins a unit of work. Isolation, role and tenant are set in one round trip and local to the transaction, since
    /// poolers leak everything else. Retries until the lane's bound on waiting is over.
    pub(super) async fn begin(&self, lane: Lane, access: TxAccess) -> Result<Unit, StoreError> {
        let text = format!("{}{}", begin_statement(access), self.local_settings(lane));
        self.acquire(lane, Some(text)).await
    }

    /// Takes a connection for one statement that is its own transaction; hand it back with [`Store::end`].
    pub(super) async fn connect(&self, lane: Lane) -> Result<Unit, StoreError> {
        self.acquire(lane, None).await
    }

    /// Ends the work on a connection without a transaction. If the connection broke, the idle ones are closed too.
    pub(super) fn end<T>(&self, mut unit: Unit, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        match &outcome {
            Ok(_) => unit.finish(),
            Err(error) if StoreError::is_broken_line(error) => self.discard_idle(),
            Err(_) => {}
        }
        outcome
    }

    async fn acquire(&self, lane: Lane, begin: Option<String>) -> Result<Unit, StoreError> {
        self.acquire_until(lane, begin, Instant::now() + lane.acquire_max()).await
    }

    async fn acquire_until(
        &self,
        lane: Lane,
        begin: Option<String>,
        deadline: Instant,
    ) -> Result<Unit, StoreError> {
        let mut is_first = true;
        loop {
            let turn = self.reach.turn(deadline).await.map_err(StoreError::Down)?;
            let begun = self.try_begin(lane, begin.clone());
            let begun = match turn.patience() {
                None => begun.await,
                Some(max) => {
                    let begun = timeout(max, begun).await;
                    begun.unwrap_or(Err(Failed::ToOpen(sqlx::Error::PoolTimedOut)))
                }
            };
            let (error, was_open) = match begun {
                Ok(unit) => {
                    turn.succeeded();
                    return Ok(unit);
                }
                Err(Failed::ToOpen(error)) => (error, false),
                Err(Failed::ToBegin(error)) => (error, true),
            };
            let is_busy = matches!(error, sqlx::Error::PoolTimedOut) && self.is_exhausted(lane);
            if is_busy {
                drop(turn);
            } else if !StoreError::is_broken_line(&error) {
                return Err(error.into());
            } else {
                // after a restart of Postgres every idle connection is as stale as this one; a failure to open a new
                // one says nothing about them
                if was_open {
                    self.discard_idle();
                }
                let is_forgiven = std::mem::take(&mut is_first) && !turn.is_probe();
                if !is_forgiven {
                    turn.failed(&error);
                }
            }
            if Instant::now() >= deadline {
                return Err(error.into());
            }
        }
    }

    async fn try_begin(&self, lane: Lane, begin: Option<String>) -> Result<Unit, Failed> {
        let waiting = self.noted.waits(lane.pool());
        let connection = self.pool(lane).acquire().await.map_err(Failed::ToOpen)?;
        drop(waiting);
        let bounds = Bounds {
            statements: self.statements,
            statement_max: self.statement_max(lane),
            leftovers: self.leftovers(lane).clone(),
        };
        let mut unit = Unit::new(connection, bounds, lane.fate());
        if let Some(text) = begin {
            unit.begin(text).await.map_err(Failed::ToBegin)?;
        }
        Ok(unit)
    }

    /// Returns whether all connections of a lane's pool are in use.
    fn is_exhausted(&self, lane: Lane) -> bool {
        let pool = self.pool(lane);
        pool.size() >= pool.options().get_max_connections() && pool.num_idle() == 0
    }

    /// Closes the idle connections of all pools without a message to the server.
    fn discard_idle(&self) {
        for lane in [Lane::Control, Lane::Commit, Lane::Report] {
            while let Some(connection) = self.pool(lane).try_acquire() {
                drop(connection.detach());
            }
        }
    }

    fn pool(&self, lane: Lane) -> &PgPool {
        match lane.pool() {
            PoolKind::Control => &self.control,
            PoolKind::Commit => &self.commit,
            PoolKind::Report => &self.report,
        }
    }

    fn leftovers(&self, lane: Lane) -> &Leftovers {
        match lane {
            Lane::Commit => &self.late_records,
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => &self.changes,
        }
    }

    /// Returns the statement timeout that Postgres itself enforces on this lane.
    fn server_statement_max(&self, lane: Lane) -> Duration {
        match lane {
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => STATEMENT_MAX,
            Lane::Commit => commit_statement_max(self.commit_max),
        }
    }

    /// Returns the longest wait for the answer to a statement on this lane.
    fn statement_max(&self, lane: Lane) -> Duration {
        match lane {
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => STATEMENT_MAX + SLACK,
            Lane::Commit => COMMIT_ANSWER_MAX,
        }
    }

    /// Returns the SQL that sets timeouts and durability for the transaction, whatever the login's own settings are.
    fn local_settings(&self, lane: Lane) -> String {
        // a session whose connection was cut silently must not keep its locks: the retry needs them
        let bound = format!(
            ", set_config('statement_timeout', '{}', true), \
             set_config('idle_in_transaction_session_timeout', '{}', true)",
            self.server_statement_max(lane).as_millis(),
            self.statement_max(lane).as_millis()
        );
        match lane {
            Lane::Control => bound,
            // the best plan depends on the values of the filter
            Lane::Report => format!("{bound}, set_config('plan_cache_mode', 'force_custom_plan', true)"),
            Lane::Upkeep | Lane::Cache => format!(
                "{bound}, set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '{}', true)",
                UPKEEP_LOCK_MAX.as_millis()
            ),
            // a record that is said to be committed survives a crash of the database (behaviour, section 9)
            Lane::Commit => format!("{bound}, set_config('synchronous_commit', 'on', true)"),
        }
    }
}

/// Returns the statement that begins a transaction and sets its role. It contains no text of a caller: a UUID and
/// constants.
fn begin_statement(access: TxAccess) -> String {
    match access {
        TxAccess::Tenant(tenant) => format!(
            "begin; select set_config('role', 'mcpproxy_app', true), set_config('app.tenant', '{tenant}', true)"
        ),
        TxAccess::TenantSnapshot(tenant) => format!(
            "begin isolation level repeatable read read only; \
             select set_config('role', 'mcpproxy_app', true), set_config('app.tenant', '{tenant}', true)"
        ),
        TxAccess::System => "begin; select set_config('role', 'mcpproxy_system', true)".to_owned(),
        TxAccess::Owner => "begin; select set_config('role', 'mcpproxy_owner', true)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;
    use crate::store::StoreOptions;

    /// However many units of work begin, an unreachable server is tried by one at a time, with backoff.
    #[tokio::test]
    async fn whoever_begins_does_not_skip_the_pause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://nobody@{}/none", listener.local_addr().unwrap());
        let knocks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&knocks);
        tokio::spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                drop(line);
            }
        });
        let options = StoreOptions {
            direct_url: url.clone(),
            url,
            statement_cache: 10,
            commit_connections: 1,
            control_connections: 8,
            report_connections: 1,
            commit_max: Duration::from_secs(1),
        };
        let store = Store::new(&options).unwrap();
        let within = |bound_ms| Instant::now() + Duration::from_millis(bound_ms);
        assert!(store.acquire_until(Lane::Control, None, within(100)).await.is_err());
        let asked = knocks.load(Ordering::Relaxed);
        let deadline = within(1000);
        let begun = (0..100).map(|_| store.acquire_until(Lane::Control, None, deadline));
        for one in futures_util::future::join_all(begun).await {
            assert!(one.is_err());
        }
        // the backoff doubles from 50 ms on, and jitter leaves at least half of each pause
        let knocks = knocks.load(Ordering::Relaxed) - asked;
        assert!((1..=12).contains(&knocks), "{knocks} connections in a second");
    }
}
