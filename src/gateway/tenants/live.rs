//! A tenant that this replica serves: its keys, its catalogue and its open streams.

pub(super) mod access;
pub(super) mod bucket;
pub(super) mod fanout;
mod lag;
pub(super) mod vectors;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Mutex, Semaphore};

use self::access::Access;
use self::bucket::Bucket;
use self::fanout::Fanout;
use self::lag::Lag;
use self::vectors::Vectors;
use crate::domain::id::TenantId;
use crate::gateway::catalog::Catalog;
use crate::store::RevisionKind;

/// A tenant that this replica serves.
#[derive(Debug)]
pub struct LiveTenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    pub(super) access: ArcSwap<Option<Access>>,
    /// No key leads here any more, nor ever will: who is served again is another.
    pub(super) is_ended: AtomicBool,
    pub(super) catalogue: ArcSwap<Catalog>,
    /// What is left of the rate of all its keys together.
    pub(in crate::gateway) bucket: Bucket,
    /// What an embeddings service made of its definitions and questions.
    pub(in crate::gateway) vectors: Vectors,
    /// Of the keys; what a list is made of may be older.
    pub(in crate::gateway) lag: Lag,
    /// Its open streams.
    pub(in crate::gateway) fanout: Fanout,
    /// When the last catalogue or access was made.
    pub(super) made: std::sync::Mutex<Option<Instant>>,
    pub(super) reloading_access: Mutex<()>,
    pub(super) reloading_catalogue: Mutex<()>,
    /// Held by whoever makes indexes before somebody searches.
    indexing: Arc<Mutex<()>>,
}

impl LiveTenant {
    /// One of which nothing was loaded yet.
    pub(in crate::gateway) fn new(id: TenantId, name: String) -> Arc<LiveTenant> {
        Arc::new(LiveTenant {
            id,
            name,
            access: ArcSwap::from_pointee(None),
            is_ended: AtomicBool::new(false),
            catalogue: ArcSwap::from_pointee(Catalog::empty()),
            bucket: Bucket::default(),
            vectors: Vectors::default(),
            lag: Lag::default(),
            fanout: Fanout::default(),
            made: std::sync::Mutex::default(),
            reloading_access: Mutex::new(()),
            reloading_catalogue: Mutex::new(()),
            indexing: Arc::default(),
        })
    }

    /// Makes the index of its catalogue before somebody searches, and no other's: those that came and went meanwhile have none.
    /// One at a time here, and one in each of `places` of all tenants.
    pub(super) fn index_soon(self: &Arc<Self>, places: &Arc<Semaphore>) {
        // whoever has the turn looks again at its end
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

    /// The catalogue as of now.
    pub fn catalogue(&self) -> Arc<Catalog> {
        self.catalogue.load_full()
    }

    /// The same for a look.
    pub(in crate::gateway) fn catalogue_now(&self) -> Guard<Arc<Catalog>> {
        self.catalogue.load()
    }

    /// Keys and settings as of now.
    pub(in crate::gateway) fn access(&self) -> Arc<Option<Access>> {
        self.access.load_full()
    }

    /// The same for a look.
    pub(in crate::gateway) fn access_now(&self) -> Guard<Arc<Option<Access>>> {
        self.access.load()
    }

    pub(in crate::gateway) fn rev(&self, kind: RevisionKind) -> i64 {
        match kind {
            RevisionKind::Access => self.access.load().as_ref().as_ref().map_or(0, |access| access.rev),
            RevisionKind::Catalogue => self.catalogue.load().rev,
            RevisionKind::Vectors => self.vectors.rev(),
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
        // the turn is free once all is done
        drop(ours.indexing.lock().await);
        let indexed: Vec<i64> = catalogues.iter().filter(|c| c.has_index()).map(|c| c.rev).collect();
        assert_eq!(indexed, [20]);
    }
}
