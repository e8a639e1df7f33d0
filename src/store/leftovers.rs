//! Connections that were given up while the server may still be at work on them. Neither a timeout nor closing the
//! socket ends a commit that waits for a standby. Such sessions count against a bound until the server has answered.
//! Otherwise their number would grow for as long as the standby is away.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgConnection, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::StoreError;

/// Longest wait for an answer that no caller needs any more. The kernel gives up a silent connection about as late.
/// Beyond that, a lost network path would hold a permit for ever.
const LISTEN_MAX: Duration = Duration::from_secs(15 * 60);

/// Longest wait of a change for a permit to commit; it holds a connection meanwhile.
const RESERVE_MAX: Duration = Duration::from_secs(1);

/// Permit to wait for a commit outside the pool.
pub(super) type LeftoverLeave = OwnedSemaphorePermit;

/// Bound on the connections beside a pool that were given up.
#[derive(Clone, Debug)]
pub(super) struct Leftovers {
    room: Arc<Semaphore>,
}

/// Treatment of a connection whose answer did not come in time.
#[derive(Debug)]
pub(super) enum Fate {
    /// The connection is closed: the server ends the statement by itself.
    Closed,
    /// The connection waits for its answer beside the pool if a permit is free, else in its slot of the pool.
    Kept,
    /// The connection waits for its answer beside the pool, under the permit that it has reserved.
    Beside(LeftoverLeave),
}

impl Leftovers {
    /// Creates a bound with `room` permits.
    pub(super) fn new(room: u32) -> Leftovers {
        Leftovers { room: Arc::new(Semaphore::new(room as usize)) }
    }

    /// Reserves a permit before it is needed.
    pub(super) async fn reserve(&self) -> Result<LeftoverLeave, StoreError> {
        match timeout(RESERVE_MAX, Arc::clone(&self.room).acquire_owned()).await {
            Ok(Ok(leave)) => Ok(leave),
            _ => Err(unconfirmed()),
        }
    }

    /// Returns whether a permit is free at this moment.
    pub(super) fn has_room(&self) -> bool {
        self.room.available_permits() > 0
    }

    /// Takes over a connection that was given up.
    pub(super) fn take(&self, mut connection: PoolConnection<Postgres>, fate: Fate) {
        let leave = match fate {
            Fate::Closed => return drop(connection.detach()),
            Fate::Kept => Arc::clone(&self.room).try_acquire_owned().ok(),
            Fate::Beside(leave) => Some(leave),
        };
        match leave {
            Some(leave) => {
                let mut connection = connection.detach();
                tokio::spawn(async move {
                    has_ended(&mut connection, LISTEN_MAX).await;
                    drop((connection, leave));
                });
            }
            None => {
                tokio::spawn(async move {
                    has_ended(&mut connection, LISTEN_MAX).await;
                    drop(connection.detach());
                });
            }
        }
    }
}

/// Returns the error for a missing permit.
pub(super) fn unconfirmed() -> StoreError {
    StoreError::Down("it does not confirm the changes that were made before".to_owned())
}

/// Waits until the server has finished the statement, or the connection breaks. Returns false after `bound`.
pub(super) async fn has_ended(connection: &mut PgConnection, bound: Duration) -> bool {
    let ended = timeout(bound, connection.ping()).await.is_ok();
    tracing::debug!(ended, "a statement was abandoned, its connection is closed");
    ended
}
