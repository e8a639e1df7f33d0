//! By what right something is written down of a server.

use crate::store::unit::Unit;
use crate::store::{ReplicaLease, StoreError};

/// By what right a replica writes down what it found of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Somebody has asked for it: nothing is held back.
    Asked,
    /// This replica looks after the servers.
    Lease(ReplicaLease),
    /// The server's program runs on this replica, whoever looks after the servers. There is no lease that could be
    /// lost: instead the server's row must still be of this revision, which stood there before the program was asked.
    Program(i64),
}

impl Right {
    /// The same once this revision was written by it: that is no news to whoever wrote it.
    #[must_use]
    pub fn after(self, rev: Option<i64>) -> Right {
        match (self, rev) {
            (Right::Program(_), Some(rev)) => Right::Program(rev),
            _ => self,
        }
    }

    /// Goes on only while it holds, for a server's row that is locked and of this revision.
    pub(super) async fn check(&self, tx: &mut Unit, rev: i64) -> Result<(), StoreError> {
        match self {
            Right::Asked => Ok(()),
            Right::Lease(lease) => lease.check(tx).await,
            Right::Program(seen) if *seen == rev => Ok(()),
            Right::Program(_) => Err(StoreError::Conflict("what the server offers was written meanwhile")),
        }
    }
}
