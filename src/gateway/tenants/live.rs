//! Tenants that this replica serves: keys, catalogue and open streams of each.

pub(super) mod access;
pub(super) mod bucket;
pub(super) mod fanout;
pub(super) mod grants;
mod lag;
pub(super) mod login;
pub(super) mod policies;
pub(super) mod vectors;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Mutex, Semaphore};

use self::access::Access;
use self::bucket::{Bucket, PeopleBuckets};
use self::fanout::Fanout;
use self::lag::Lag;
use self::vectors::Vectors;
use crate::domain::id::TenantId;
use crate::gateway::catalog::Catalog;
use crate::store::RevisionKind;

/// A tenant that this replica serves.
#[derive(Debug)]
pub struct LiveTenant {
    /// Id of the tenant.
    pub id: TenantId,
    /// Name of the tenant.
    pub name: String,
    pub(super) access: ArcSwap<Option<Access>>,
    /// True once no key leads here any more. This is final: a tenant that is served again gets a new value.
    pub(super) is_ended: AtomicBool,
    pub(super) catalogue: ArcSwap<Catalog>,
    /// Token bucket of the rate limit on all keys together.
    pub(in crate::gateway) bucket: Bucket,
    /// Token buckets of the rate limits of people who log in.
    pub(in crate::gateway) buckets: PeopleBuckets,
    /// Vectors of an embeddings service for definitions and queries.
    pub(in crate::gateway) vectors: Vectors,
    /// Lag of the keys behind the database. The catalogue has none: a list may be made of older rows.
    pub(in crate::gateway) lag: Lag,
    /// Open streams.
    pub(in crate::gateway) fanout: Fanout,
    /// Time at which the last catalogue or access was built.
    pub(super) made: parking_lot::Mutex<Option<Instant>>,
    pub(super) reloading_access: Mutex<()>,
    pub(super) reloading_catalogue: Mutex<()>,
    /// Held by the task that makes search indexes ahead of searches.
    indexing: Arc<Mutex<()>>,
}

impl LiveTenant {
    /// Returns a tenant of which no rows are loaded yet.
    pub(in crate::gateway) fn new(id: TenantId, name: String) -> Arc<LiveTenant> {
        Arc::new(LiveTenant {
            id,
            name,
            access: ArcSwap::from_pointee(None),
            is_ended: AtomicBool::new(false),
            catalogue: ArcSwap::from_pointee(Catalog::empty()),
            bucket: Bucket::default(),
            buckets: PeopleBuckets::default(),
            vectors: Vectors::default(),
            lag: Lag::default(),
            fanout: Fanout::default(),
            made: parking_lot::Mutex::default(),
            reloading_access: Mutex::new(()),
            reloading_catalogue: Mutex::new(()),
            indexing: Arc::default(),
        })
    }

    /// Makes the search index of the current catalogue ahead of searches; catalogues replaced meanwhile get none. At most
    /// one runs per tenant, and as many in total as `places` has permits.
    pub(super) fn index_soon(self: &Arc<Self>, places: &Arc<Semaphore>) {
        // the running task checks for a newer catalogue at its end
        let Ok(turn) = Arc::clone(&self.indexing).try_lock_owned() else { return };
        let (live, places) = (Arc::clone(self), Arc::clone(places));
        tokio::spawn(async move {
            let _turn = turn;
            let mut made = None;
            while let Ok(_place) = places.acquire().await {
                let catalogue = live.catalogue();
                if made == Some(catalogue.rev) {
                    return;
                }
                catalogue.index().await;
                made = Some(catalogue.rev);
            }
        });
    }

    /// Returns the current catalogue.
    pub fn catalogue(&self) -> Arc<Catalog> {
        self.catalogue.load_full()
    }

    /// Returns the current catalogue for a short access, cheaper than [`LiveTenant::catalogue`].
    pub(in crate::gateway) fn catalogue_now(&self) -> Guard<Arc<Catalog>> {
        self.catalogue.load()
    }

    /// Returns the current keys and settings. They are `None` before the first load and after the end.
    pub(in crate::gateway) fn access(&self) -> Arc<Option<Access>> {
        self.access.load_full()
    }

    /// Returns the current keys and settings for a short access, cheaper than [`LiveTenant::access`].
    pub(in crate::gateway) fn access_now(&self) -> Guard<Arc<Option<Access>>> {
        self.access.load()
    }

    pub(in crate::gateway) fn rev(&self, kind: RevisionKind) -> i64 {
        match kind {
            RevisionKind::Access => self.access.load().as_ref().as_ref().map_or(0, |access| access.rev),
            RevisionKind::Catalogue => self.catalogue.load().rev,
            RevisionKind::Vectors => self.vectors.rev(),
            // of no tenant: compared as a whole
            RevisionKind::Issuers => i64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn of_catalogues_that_come_and_go_only_the_last_has_an_index() {
        let (places, ours) =
            (Arc::new(Semaphore::new(1)), LiveTenant::new(TenantId(Uuid::from_u128(1)), "acme".to_owned()));
        let busy = places.acquire().await.unwrap();
        let catalogues: Vec<_> = (1..=20)
            .map(|rev| {
                let mut catalogue = Catalog::empty();
                catalogue.rev = rev;
                Arc::new(catalogue)
            })
            .inspect(|catalogue| {
                ours.catalogue.store(Arc::clone(catalogue));
                ours.index_soon(&places);
            })
            .collect();
        drop(busy);
        // the lock is free once all is done
        drop(ours.indexing.lock().await);
        let indexed: Vec<i64> = catalogues.iter().filter(|c| c.has_index()).map(|c| c.rev).collect();
        assert_eq!(indexed, [20]);
    }
}
