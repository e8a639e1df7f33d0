//! Permission to store the result of a listing.

use crate::store::unit::Unit;
use crate::store::{ReplicaLease, StoreError};

/// Permission of a replica to store what it found out about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// A person has asked for the listing: nothing is held back.
    Asked,
    /// This replica holds the lease for listing servers.
    Lease(ReplicaLease),
    /// The server's program runs on this replica, whichever replica holds the lease for listing. Instead of that lease,
    /// the server's row must still have this revision, which was read before the program was asked.
    Program(i64),
}

impl Right {
    /// Returns the permission after its holder wrote the revision `rev` itself, so that this write does not count as
    /// foreign.
    #[must_use]
    pub fn after(self, rev: Option<i64>) -> Right {
        match (self, rev) {
            (Right::Program(_), Some(rev)) => Right::Program(rev),
            _ => self,
        }
    }

    /// Checks that the permission still holds. The caller has locked the server's row, whose revision is `rev`.
    pub(super) async fn check(&self, tx: &mut Unit, rev: i64) -> Result<(), StoreError> {
        match self {
            Right::Asked => Ok(()),
            Right::Lease(lease) => lease.check(tx).await,
            Right::Program(seen) if *seen == rev => Ok(()),
            Right::Program(_) => Err(StoreError::Conflict("what the server offers was written meanwhile")),
        }
    }
}
