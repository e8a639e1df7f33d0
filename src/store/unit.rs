//! A unit of work on the wire: one transaction on one pooled connection, every statement with an end of its own.
//!
//! A server that is gone without a word (a cut cable, a firewall that forgot the flow) leaves a socket that
//! nobody ever answers on, and the kernel takes a quarter of an hour to say so. So each statement has a
//! deadline, and a connection that was cut off in the middle of something is never used again: what it would
//! read next may be the answer to another question.

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

/// How long giving a connection back may take: a rollback and a ping.
const RELEASE_MAX: Duration = Duration::from_secs(3);
/// How long a transaction may take to begin: it waits for no lock.
pub(super) const BEGIN_MAX: Duration = Duration::from_secs(3);

/// Whether prepared statements live longer than the statement (a setting, `database.statement_cache`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statements {
    /// Named, kept per connection.
    Kept,
    /// Unnamed: for poolers that hand a connection's statements to somebody else.
    Unnamed,
}

/// What the connection is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a transaction, nothing under way.
    Idle,
    /// A statement was sent and not answered to its end.
    Busy,
    /// A statement was not answered in time.
    Late,
    /// The transaction is over.
    Done,
    /// Not to be used again.
    Broken,
}

/// A transaction. Dropped without [`Unit::commit`], it is rolled back.
pub(super) struct Unit {
    line: PoolLine,
}

/// The connection of a [`Unit`], as an executor of statements.
pub(super) struct PoolLine {
    /// `None` only while being dropped.
    connection: Option<PoolConnection<Postgres>>,
    state: State,
    bounds: Bounds,
    fate: Fate,
}

/// What a unit of work is given by its lane.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Whether prepared statements are kept.
    pub(super) statements: Statements,
    /// How long an answer is waited for.
    pub(super) statement_max: Duration,
    /// Where the connection goes when it is given up.
    pub(super) leftovers: Leftovers,
}

impl Unit {
    /// Takes over a connection; nothing has begun on it. `fate` is what becomes of it when a statement is given up.
    pub(super) fn new(connection: PoolConnection<Postgres>, bounds: Bounds, fate: Fate) -> Unit {
        Unit { line: PoolLine { connection: Some(connection), state: State::Idle, bounds, fate } }
    }

    /// Begins a transaction with this text, which may hold further statements.
    pub(super) async fn begin(&mut self, text: String) -> Result<(), Error> {
        self.line.simple(text, BEGIN_MAX).await
    }

    /// There is nothing to commit or to take back: each statement was a transaction of its own.
    pub(super) fn finish(&mut self) {
        self.line.state = State::Done;
    }

    /// Makes it so where others than the log's writer change what must last: the commit may wait for a standby
    /// without an end, so there is a bound on how many do. An error leaves open whether it is.
    pub(super) async fn commit_change(mut self) -> Result<(), StoreError> {
        self.line.fate = Fate::Beside(self.line.bounds.leftovers.reserve().await?);
        Ok(self.commit().await?)
    }

    /// Makes it so. An error leaves open whether it is.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        let bound = self.line.bounds.statement_max;
        self.line.simple("commit".to_owned(), bound).await?;
        self.line.state = State::Done;
        Ok(())
    }

    /// Ends the transaction together with its connection.
    pub(super) fn discard(mut self) {
        self.line.state = State::Broken;
    }

    /// As if it had never been.
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

/// What a failed statement leaves behind.
fn after(error: &Error) -> State {
    match error {
        Error::Database(_) if !StoreError::is_broken_line(error) => State::Idle,
        Error::RowNotFound | Error::ColumnDecode { .. } | Error::Decode(_) | Error::Encode(_) => State::Idle,
        _ => State::Broken,
    }
}

/// Notes how a statement ended, or that it did not in time.
fn answered<T>(done: Result<Result<T, Error>, Elapsed>, state: &mut State) -> Result<T, Error> {
    let Ok(done) = done else {
        *state = State::Late;
        return Err(cut_off());
    };
    *state = done.as_ref().map_or_else(after, |_| State::Idle);
    done
}

/// The deadline of a statement is over.
fn cut_off() -> Error {
    let text = "the database did not answer within the bound of a statement";
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}

impl Drop for PoolLine {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let fate = std::mem::replace(&mut self.fate, Fate::Closed);
        match self.state {
            // the socket is closed here and now; nothing is said to a server that does not listen
            State::Broken => drop(connection.detach()),
            State::Done => {
                // the pool's own way back, but with an end
                let back = connection.return_to_pool();
                tokio::spawn(async move { timeout(RELEASE_MAX, back).await });
            }
            State::Idle => {
                tokio::spawn(async move {
                    // the connection stays out here: were it dropped with what did not end in time, sqlx would go on
                    // to ask it, without an end
                    match timeout(RELEASE_MAX, connection.execute("rollback")).await {
                        Ok(Ok(_)) => drop(timeout(RELEASE_MAX, connection.return_to_pool()).await),
                        _ => drop(connection.detach()),
                    }
                });
            }
            State::Late => self.bounds.leftovers.take(connection, fate),
            State::Busy => {
                // whoever asked went away. The place in the pool stays taken until the server has come to the end
                // of the statement, so that there are never more sessions than the pool may have
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

/// A query whose prepared statement is kept or not. sqlx names every statement even when it keeps none, so that
/// without this each execution would leave one on the server, and two clients of a pooler would meet in a name.
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
