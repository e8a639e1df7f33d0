//! A unit of work on the wire: one transaction on one pooled connection, with a deadline for each statement.
//!
//! A server that vanishes without closing the connection (a cut cable, a firewall that forgot the flow) leaves a socket
//! on which nobody ever answers. The kernel takes a quarter of an hour to report that, so each statement has a
//! deadline. A connection that was cut off in the middle of a statement is never used again: the next answer on it may
//! belong to another query.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{AssertSqlSafe, Either, Error, Execute, Executor, PgConnection, Postgres, SqlStr};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::leftovers::{Fate, Leftovers, has_ended};

/// Longest time to give a connection back to its pool: a rollback and a ping.
const RELEASE_MAX: Duration = Duration::from_secs(3);
/// Longest time for a transaction to begin, which waits for no lock.
pub(super) const BEGIN_MAX: Duration = Duration::from_secs(3);

/// Lifetime of prepared statements, by the setting `database.statement_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statements {
    /// Named statements, kept per connection.
    Kept,
    /// Unnamed statements, for poolers that hand a connection's statements to another client.
    Unnamed,
}

/// State of the connection of a [`Unit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a transaction, with no statement under way.
    Idle,
    /// A statement was sent and not answered to its end.
    Busy,
    /// A statement was not answered in time.
    Late,
    /// The transaction is over.
    Done,
    /// The connection must not be used again.
    Broken,
}

/// A transaction, rolled back if it is dropped without [`Unit::commit`].
pub(super) struct Unit {
    line: PoolLine,
}

/// The connection of a [`Unit`], as an executor of statements.
pub(super) struct PoolLine {
    /// Pooled connection; `None` only while it is being dropped.
    connection: Option<PoolConnection<Postgres>>,
    state: State,
    bounds: Bounds,
    fate: Fate,
}

/// Bounds that a lane sets for a unit of work.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Lifetime of prepared statements.
    pub(super) statements: Statements,
    /// Longest wait for the answer to a statement.
    pub(super) statement_max: Duration,
    /// Owner of the connection once it is given up.
    pub(super) leftovers: Leftovers,
}

impl Unit {
    /// Takes over a connection on which nothing has begun. `fate` is what happens to it when a statement is given up.
    pub(super) fn new(connection: PoolConnection<Postgres>, bounds: Bounds, fate: Fate) -> Unit {
        Unit { line: PoolLine { connection: Some(connection), state: State::Idle, bounds, fate } }
    }

    /// Begins a transaction with the statement `text`, which may contain further statements.
    pub(super) async fn begin(&mut self, text: String) -> Result<(), Error> {
        self.line.simple(text, BEGIN_MAX).await
    }

    /// Marks the unit as done. There is nothing to commit or to roll back: each statement was its own transaction.
    pub(super) fn finish(&mut self) {
        self.line.state = State::Done;
    }

    /// Commits a change that must last, within a bound on the commits that wait for a standby. [`StoreError::Down`]
    /// means that nothing was committed; on other errors the outcome is unknown.
    pub(super) async fn commit_change(mut self) -> Result<(), StoreError> {
        self.line.fate = Fate::Beside(self.line.bounds.leftovers.reserve().await?);
        Ok(self.commit().await?)
    }

    /// Commits the transaction. On error the outcome is unknown: the commit may have happened.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        let bound = self.line.bounds.statement_max;
        self.line.simple("commit".to_owned(), bound).await?;
        self.line.state = State::Done;
        Ok(())
    }

    /// Closes the connection, which ends the transaction.
    pub(super) fn discard(mut self) {
        self.line.state = State::Broken;
    }

    /// Rolls the transaction back.
    pub(super) async fn rollback(mut self) -> Result<(), Error> {
        self.line.simple("rollback".to_owned(), BEGIN_MAX).await?;
        self.line.state = State::Done;
        Ok(())
    }
}

impl Deref for Unit {
    type Target = PoolLine;

    fn deref(&self) -> &PoolLine {
        &self.line
    }
}

impl DerefMut for Unit {
    fn deref_mut(&mut self) -> &mut PoolLine {
        &mut self.line
    }
}

impl PoolLine {
    async fn simple(&mut self, text: String, bound: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + bound;
        let (connection, state) = self.parts()?;
        *state = State::Busy;
        let done = timeout_at(deadline, connection.execute(AssertSqlSafe(text))).await;
        answered(done, state).map(drop)
    }

    fn parts(&mut self) -> Result<(&mut PgConnection, &mut State), Error> {
        match (&mut self.connection, self.state) {
            (Some(connection), State::Idle) => Ok((connection, &mut self.state)),
            _ => Err(Error::WorkerCrashed),
        }
    }
}

/// Returns the state of a connection after a failed statement.
fn after(error: &Error) -> State {
    match error {
        Error::Database(_) if !StoreError::is_broken_line(error) => State::Idle,
        Error::RowNotFound | Error::ColumnDecode { .. } | Error::Decode(_) | Error::Encode(_) => State::Idle,
        _ => State::Broken,
    }
}

/// Records in `state` how a statement ended, or that it did not end in time.
fn answered<T>(done: Result<Result<T, Error>, Elapsed>, state: &mut State) -> Result<T, Error> {
    let Ok(done) = done else {
        *state = State::Late;
        return Err(cut_off());
    };
    *state = done.as_ref().map_or_else(after, |_| State::Idle);
    done
}

/// Returns the error for a statement whose deadline has passed.
fn cut_off() -> Error {
    let text = "the database did not answer within the bound of a statement";
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}

impl Drop for PoolLine {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let fate = std::mem::replace(&mut self.fate, Fate::Closed);
        match self.state {
            // the socket is closed at once, without a message to a server that does not listen
            State::Broken => drop(connection.detach()),
            State::Done => {
                // as the pool itself does it, but with a timeout
                let back = connection.return_to_pool();
                tokio::spawn(async move { timeout(RELEASE_MAX, back).await });
            }
            State::Idle => {
                tokio::spawn(async move {
                    // the connection stays outside the future: dropped together with an unfinished rollback, it would
                    // be pinged by sqlx without a timeout
                    match timeout(RELEASE_MAX, connection.execute("rollback")).await {
                        Ok(Ok(_)) => drop(timeout(RELEASE_MAX, connection.return_to_pool()).await),
                        _ => drop(connection.detach()),
                    }
                });
            }
            State::Late => self.bounds.leftovers.take(connection, fate),
            State::Busy => {
                // the caller went away. The connection keeps its slot in the pool until the server has finished the
                // statement, so that there are never more sessions than the pool may have
                let (bound, leftovers) = (self.bounds.statement_max, self.bounds.leftovers.clone());
                tokio::spawn(async move {
                    if has_ended(&mut connection, bound).await {
                        drop(connection.detach());
                    } else {
                        leftovers.take(connection, fate);
                    }
                });
            }
        }
    }
}

impl fmt::Debug for PoolLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("state", &self.state).finish_non_exhaustive()
    }
}

type Step = Result<Either<PgQueryResult, PgRow>, Error>;

impl<'c> Executor<'c> for &'c mut PoolLine {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Step>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let query = Kept { query, statements: self.bounds.statements };
        let deadline = Instant::now() + self.bounds.statement_max;
        let (connection, state) = match self.parts() {
            Ok(parts) => parts,
            Err(error) => return stream::once(std::future::ready(Err(error))).boxed(),
        };
        *state = State::Busy;
        let steps = connection.fetch_many(query);
        stream::unfold(Some((steps, state)), move |under_way| async move {
            let (mut steps, state) = under_way?;
            match timeout_at(deadline, steps.next()).await {
                Ok(Some(Ok(step))) => Some((Ok(step), Some((steps, state)))),
                Ok(Some(Err(error))) => {
                    *state = after(&error);
                    Some((Err(error), None))
                }
                Ok(None) => {
                    *state = State::Idle;
                    None
                }
                Err(_) => {
                    *state = State::Late;
                    Some((Err(cut_off()), None))
                }
            }
        })
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let query = Kept { query, statements: self.bounds.statements };
        let deadline = Instant::now() + self.bounds.statement_max;
        Box::pin(async move {
            let (connection, state) = self.parts()?;
            *state = State::Busy;
            let row = timeout_at(deadline, connection.fetch_optional(query)).await;
            answered(row, state)
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        Box::pin(async move { self.parts()?.0.prepare_with(sql, parameters).await })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        Box::pin(async move { self.parts()?.0.describe(sql).await })
    }
}

/// A query that keeps its prepared statement or not. sqlx names every statement even when it keeps none. Without this
/// wrapper each execution would leave one on the server, and names of two clients of a pooler would collide.
struct Kept<E> {
    query: E,
    statements: Statements,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Kept<E> {
    fn sql(self) -> SqlStr {
        self.query.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, sqlx::error::BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.statements == Statements::Kept && self.query.persistent()
    }
}
