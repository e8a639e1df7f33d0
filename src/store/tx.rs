//! Units of work: one transaction, one role, nothing that outlives it.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, timeout};

use super::leftovers::{Fate, Leftovers};
use super::unit::{Bounds, Unit};
use super::vitals::PoolKind;
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// As whom a unit of work runs.
#[derive(Clone, Copy, Debug)]
pub enum TxAccess {
    /// One tenant's rows, by row-level security.
    Tenant(TenantId),
    /// One tenant's rows in one consistent picture, read only.
    TenantSnapshot(TenantId),
    /// Cross-tenant jobs only (`store/system`).
    System,
    /// Partition upkeep.
    Owner,
}

/// Which connections a unit of work may use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    /// Short work of requests and background tasks.
    Control,
    /// Work on the same connections that is done again by itself should it be lost with the primary: its commits
    /// wait for no standby. What makes a revision waits all the same ([`super::revisions::bump`]).
    Upkeep,
    /// Commits of the activity log.
    Commit,
    /// Reading the activity log.
    Report,
    /// What was cut off results: on the same connections, since a row may be large. Its commits wait for no standby:
    /// what is lost can be called for again.
    Cache,
}

/// How long Postgres works on one statement.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// How long upkeep waits for a row that somebody else changes: a change may wait for a standby, and must not keep the
/// connections of those who come after it.
const UPKEEP_LOCK_MAX: Duration = Duration::from_secs(3);
/// What a bound is longer than the one inside it.
const SLACK: Duration = Duration::from_secs(2);
/// How long the log's writer waits for an answer before it tries on another connection, which does no harm: all
/// that it does may be repeated. Were it as long as a call waits, a connection that died in silence would cost
/// every call meanwhile its record.
const COMMIT_ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long Postgres works on a statement of the log's writer: by then no call may wait for it any more. It does not
/// bound a commit that waits for a standby ([`super::leftovers`]).
pub(super) fn commit_statement_max(commit_max: Duration) -> Duration {
    commit_max + SLACK
}

/// Why a unit of work did not begin.
enum Failed {
    /// There was no connection.
    ToOpen(sqlx::Error),
    /// There was one, and it is of no use.
    ToBegin(sqlx::Error),
}

impl Lane {
    /// Where its connections come from.
    fn pool(self) -> PoolKind {
        match self {
            Lane::Control | Lane::Upkeep => PoolKind::Control,
            Lane::Commit => PoolKind::Commit,
            Lane::Report | Lane::Cache => PoolKind::Report,
        }
    }

    /// How long a unit of work waits for its turn and a connection before it fails.
    fn acquire_max(self) -> Duration {
        match self {
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => Duration::from_secs(5),
            // as long as a call waits for its record
            Lane::Commit => Duration::from_secs(10),
        }
    }

    /// What becomes of a connection on which an answer did not come in time.
    fn fate(self) -> Fate {
        match self {
            // the server's own timeout ends a statement; a commit that none ends has a place reserved
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => Fate::Closed,
            Lane::Commit => Fate::Kept,
        }
    }
}

impl Store {
    /// Begins a unit of work: isolation, role and tenant in one round trip, all of it local to the
    /// transaction, since poolers leak whatever is not. Tries until the lane's bound is over.
    pub(super) async fn begin(&self, lane: Lane, access: TxAccess) -> Result<Unit, StoreError> {
        let text = format!("{}{}", begin_statement(access), self.local_settings(lane));
        self.acquire(lane, Some(text)).await
    }

    /// A connection for one statement that is its own transaction; hand it back with [`Store::end`].
    pub(super) async fn connect(&self, lane: Lane) -> Result<Unit, StoreError> {
        self.acquire(lane, None).await
    }

    /// Ends what was done on a connection without a transaction.
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
                // after a restart of Postgres every idle connection is as stale as this one; that no further one can
                // be opened says nothing about them
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

    /// Whether all connections of a lane are at work.
    fn is_exhausted(&self, lane: Lane) -> bool {
        let pool = self.pool(lane);
        pool.size() >= pool.options().get_max_connections() && pool.num_idle() == 0
    }

    /// Closes the idle connections of every lane; nothing is said on them.
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

    /// How long Postgres works on one statement before it gives up by itself.
    fn server_statement_max(&self, lane: Lane) -> Duration {
        match lane {
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => STATEMENT_MAX,
            Lane::Commit => commit_statement_max(self.commit_max),
        }
    }

    /// How long an answer is waited for.
    fn statement_max(&self, lane: Lane) -> Duration {
        match lane {
            Lane::Control | Lane::Upkeep | Lane::Report | Lane::Cache => STATEMENT_MAX + SLACK,
            Lane::Commit => COMMIT_ANSWER_MAX,
        }
    }

    /// What holds for the length of the transaction, whatever the login's own settings are.
    fn local_settings(&self, lane: Lane) -> String {
        // a session whose line was cut in silence must not sit on its locks: whoever repeats its work needs them
        let bound = format!(
            ", set_config('statement_timeout', '{}', true), \
             set_config('idle_in_transaction_session_timeout', '{}', true)",
            self.server_statement_max(lane).as_millis(),
            self.statement_max(lane).as_millis()
        );
        match lane {
            Lane::Control => bound,
            // which way is short depends on what is looked for
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

/// The statement holds no text of a caller: a uuid and names of ours.
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

    /// However many begin anew, a server that is away is asked by one at a time, with pauses.
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
        // the pauses double from 50 ms on, each at least half as long
        let knocks = knocks.load(Ordering::Relaxed) - asked;
        assert!((1..=12).contains(&knocks), "{knocks} connections in a second");
    }
}
