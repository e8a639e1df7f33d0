//! Connections that were given up while the server may still be at work on them. No timeout ends a commit that
//! waits for a standby, and closing the socket does not either: such a session counts until the server has
//! answered, or there would be more and more of them for as long as the standby is away.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgConnection, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::StoreError;

/// How long an answer that nobody asks for any more is listened for. The kernel gives up a silent line about as
/// late; beyond that a place would be lost to what lies between us and Postgres.
const LISTEN_MAX: Duration = Duration::from_secs(15 * 60);

/// How long a change waits until it may be committed; it holds a connection meanwhile.
const RESERVE_MAX: Duration = Duration::from_secs(1);

/// Leave to wait for a commit outside the pool.
pub(super) type LeftoverLeave = OwnedSemaphorePermit;

/// Room beside a pool for connections that were given up.
#[derive(Clone, Debug)]
pub(super) struct Leftovers {
    room: Arc<Semaphore>,
}

/// What becomes of a connection whose answer did not come in time.
#[derive(Debug)]
pub(super) enum Fate {
    /// It is closed: the server ends what it is at by itself.
    Closed,
    /// It is listened on beside the pool while there is room, else in its place in the pool.
    Kept,
    /// It is listened on beside the pool, where its room is.
    Beside(LeftoverLeave),
}

impl Leftovers {
    /// Room for so many.
    pub(super) fn new(room: u32) -> Leftovers {
        Leftovers { room: Arc::new(Semaphore::new(room as usize)) }
    }

    /// Room for one more, reserved before it is needed.
    pub(super) async fn reserve(&self) -> Result<LeftoverLeave, StoreError> {
        match timeout(RESERVE_MAX, Arc::clone(&self.room).acquire_owned()).await {
            Ok(Ok(leave)) => Ok(leave),
            _ => Err(unconfirmed()),
        }
    }

    /// Whether there is room for one more at this moment.
    pub(super) fn has_room(&self) -> bool {
        self.room.available_permits() > 0
    }

    /// Takes a connection that was cut off.
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

/// There is no room.
pub(super) fn unconfirmed() -> StoreError {
    StoreError::Down("it does not confirm the changes that were made before".to_owned())
}

/// Waits until the server has come to the end of what it was at, or the line breaks; `false` after `bound`.
pub(super) async fn has_ended(connection: &mut PgConnection, bound: Duration) -> bool {
    let ended = timeout(bound, connection.ping()).await.is_ok();
    tracing::debug!(ended, "a statement was abandoned, its connection is closed");
    ended
}
