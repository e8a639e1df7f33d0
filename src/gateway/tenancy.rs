//! The live tenants of this replica: a snapshot each of access and catalogue, swapped whole.
//!
//! A tenant becomes live when one of its keys is first used here and stays so. Snapshots only ever move
//! forward: an older revision never replaces a newer.

mod lag;
mod lookups;
mod strangers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Mutex, Semaphore};

use self::lag::Lag;
use self::lookups::Lookups;
use super::Gateway;
use super::access::{Access, Caller};
use super::catalog::Catalog;
use super::embeddings::Vectors;
use super::fanout::Fanout;
use super::limits::Bucket;
use crate::domain::id::TenantId;
use crate::store::{Change, Kind, StoreError};

/// Tenants whose keys are reloaded at the same time by the poll.
const ACCESS_RELOADS_MAX: usize = 4;
/// Search indexes that are made at the same time before somebody searches: it is work for one processor.
const INDEXED_AT_ONCE: usize = 1;
/// The least time between two snapshots of a tenant that are made because others changed it.
const RELOAD_PAUSE: Duration = Duration::from_millis(50);

/// A tenant that this replica serves.
#[derive(Debug)]
pub struct LiveTenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    access: ArcSwap<Option<Access>>,
    /// No key leads here any more, nor ever will: who is served again is another.
    is_ended: AtomicBool,
    catalogue: ArcSwap<Catalog>,
    /// What is left of the rate of all its keys together.
    pub(super) bucket: Bucket,
    /// What an embeddings service made of its definitions and questions.
    pub(super) vectors: Vectors,
    /// Of the keys; what a list is made of may be older.
    pub(super) lag: Lag,
    /// Its open streams.
    pub(super) fanout: Fanout,
    /// When the last catalogue or access was made.
    made: std::sync::Mutex<Option<Instant>>,
    reloading_access: Mutex<()>,
    reloading_catalogue: Mutex<()>,
    /// Held by whoever makes indexes before somebody searches.
    indexing: Arc<Mutex<()>>,
}

impl LiveTenant {
    /// One of which nothing was loaded yet.
    pub(super) fn new(id: TenantId, name: String) -> Arc<LiveTenant> {
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
    fn index_soon(self: &Arc<Self>, places: &Arc<Semaphore>) {
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
    pub(super) fn catalogue_now(&self) -> Guard<Arc<Catalog>> {
        self.catalogue.load()
    }

    /// Keys and settings as of now.
    pub(super) fn access(&self) -> Arc<Option<Access>> {
        self.access.load_full()
    }

    /// The same for a look.
    pub(super) fn access_now(&self) -> Guard<Arc<Option<Access>>> {
        self.access.load()
    }

    pub(super) fn rev(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Access => self.access.load().as_ref().as_ref().map_or(0, |access| access.rev),
            Kind::Catalogue => self.catalogue.load().rev,
            Kind::Vectors => self.vectors.rev(),
        }
    }
}

/// All live tenants and the keys that lead to them.
#[derive(Debug)]
pub(super) struct Tenancy {
    live: RwLock<HashMap<TenantId, Arc<LiveTenant>>>,
    keys: RwLock<HashMap<[u8; 32], Arc<Caller>>>,
    /// When the revisions of all live tenants were last compared with the database's.
    confirmed: RwLock<Option<Instant>>,
    /// Keys that are looked up.
    pub(super) lookups: Lookups,
    /// Keys found by a look-up whose tenants are being loaded.
    pub(super) entries: Semaphore,
    pub(super) access_reloads: Semaphore,
    reloads: Semaphore,
    /// Whoever makes a search index that nobody has asked for yet.
    indexing: Arc<Semaphore>,
}

impl Tenancy {
    pub(super) fn new(entries_max: usize, reloads_max: usize) -> Tenancy {
        Tenancy {
            live: RwLock::default(),
            keys: RwLock::default(),
            confirmed: RwLock::default(),
            lookups: Lookups::default(),
            entries: Semaphore::new(entries_max.max(1)),
            access_reloads: Semaphore::new(ACCESS_RELOADS_MAX),
            reloads: Semaphore::new(reloads_max.max(1)),
            indexing: Arc::new(Semaphore::new(INDEXED_AT_ONCE)),
        }
    }

    /// The caller of a key that a snapshot knows.
    pub(super) fn caller(&self, hash: &[u8; 32]) -> Option<Arc<Caller>> {
        read(&self.keys).get(hash).cloned()
    }

    pub(super) fn get(&self, tenant: TenantId) -> Option<Arc<LiveTenant>> {
        read(&self.live).get(&tenant).cloned()
    }

    /// A live tenant by name.
    pub(super) fn by_name(&self, name: &str) -> Option<Arc<LiveTenant>> {
        read(&self.live).values().find(|tenant| tenant.name == name).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<LiveTenant>> {
        read(&self.live).values().map(Arc::clone).collect()
    }

    pub(super) fn ids(&self) -> Vec<TenantId> {
        read(&self.live).keys().copied().collect()
    }

    /// Notes that revisions were compared; the moment is when the comparison began.
    pub(super) fn confirm(&self, at: Instant) {
        *self.confirmed.write().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// When revisions were last confirmed; `None` before the first time.
    pub(super) fn confirmed_at(&self) -> Option<Instant> {
        *read(&self.confirmed)
    }

    /// How long ago that was.
    pub(super) fn confirmed_ago(&self) -> Option<Duration> {
        self.confirmed_at().map(|at| at.elapsed())
    }

    /// Puts keys and settings into force: first what a key is checked against, then the key. One that was forgotten
    /// meanwhile stays so.
    fn swap_access(&self, live: &LiveTenant, new: Option<Access>) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if live.is_ended.load(Ordering::Relaxed) {
            return;
        }
        live.is_ended.store(new.is_none(), Ordering::Relaxed);
        let new = Arc::new(new);
        let old = live.access.swap(Arc::clone(&new));
        // and no others: a tenant that is entered again while its former self ends has the same keys
        for (hash, caller) in old.iter().flat_map(|access| &access.keys) {
            if keys.get(hash).is_some_and(|known| Arc::ptr_eq(known, caller)) {
                keys.remove(hash);
            }
        }
        for (hash, caller) in new.iter().flat_map(|access| &access.keys) {
            keys.insert(*hash, Arc::clone(caller));
        }
    }

    /// A tenant that is deleted, or that this version cannot read: no key leads to it, and its streams end.
    pub(super) fn forget(&self, live: &LiveTenant) {
        let mut all = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if all.get(&live.id).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), live)) {
            all.remove(&live.id);
        }
        drop(all);
        self.swap_access(live, None);
        live.fanout.check();
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

impl Gateway {
    /// Makes a tenant live, loading it when it is not yet.
    pub(super) async fn tenant(
        &self,
        tenant: TenantId,
        name: Option<&str>,
    ) -> Result<Arc<LiveTenant>, StoreError> {
        let live = match self.tenants.get(tenant) {
            Some(live) => live,
            None => self.enter(tenant, name).await?,
        };
        // whoever comes second waits here for the first one's load
        self.reload(&live, Kind::Access, 1).await?;
        Ok(live)
    }

    async fn enter(&self, tenant: TenantId, name: Option<&str>) -> Result<Arc<LiveTenant>, StoreError> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.store.load_access(tenant).await?.tenant_name,
        };
        let mut all = self.tenants.live.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(all.entry(tenant).or_insert_with(|| LiveTenant::new(tenant, name))))
    }

    /// Brings a live tenant's snapshot to at least `rev`. Whoever waits here for a load that another began
    /// finds it done. Who may do what never waits for another tenant's catalogue.
    pub(super) async fn reload(
        &self,
        live: &Arc<LiveTenant>,
        kind: Kind,
        rev: i64,
    ) -> Result<(), StoreError> {
        if live.rev(kind) >= rev {
            return Ok(());
        }
        match kind {
            Kind::Catalogue => self.reload_catalogue(live, rev).await,
            Kind::Vectors => self.reload_vectors(live, rev).await,
            Kind::Access => {
                // a key that works must find its tools: the first catalogue comes before the first keys
                if live.rev(Kind::Catalogue) == 0 {
                    self.reload_catalogue(live, 1).await?;
                    self.reload_vectors(live, 1).await?;
                }
                let _one_at_a_time = live.reloading_access.lock().await;
                if live.rev(kind) >= rev { Ok(()) } else { self.load_access(live).await }
            }
        }
    }

    async fn reload_catalogue(&self, live: &Arc<LiveTenant>, rev: i64) -> Result<(), StoreError> {
        let _one_at_a_time = live.reloading_catalogue.lock().await;
        if live.rev(Kind::Catalogue) >= rev {
            return Ok(());
        }
        let _permit = self.tenants.reloads.acquire().await;
        self.load_catalogue(live).await
    }

    async fn load_access(&self, live: &Arc<LiveTenant>) -> Result<(), StoreError> {
        let rows = match self.store.load_access(live.id).await {
            Err(StoreError::NotFound) => {
                self.end(live);
                return Ok(());
            }
            other => other?,
        };
        if rows.rev > live.rev(Kind::Access) {
            let access = Access::build(live, &rows, &self.options.defaults, &self.options.quotas);
            let is_suspended = access.is_suspended;
            self.tenants.swap_access(live, Some(access));
            *live.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            live.fanout.check();
            self.find_misled(live);
            if is_suspended {
                self.upstreams.forget_tenant(live.id.0);
            }
        }
        Ok(())
    }

    /// A tenant that was deleted: what was connected for it is closed, too. With it go its snapshots, and what was left
    /// of its rate limits.
    pub(super) fn end(&self, live: &LiveTenant) {
        self.tenants.forget(live);
        self.lists.forget(live.id);
        self.schemas.forget(live.id);
        self.upstreams.forget_tenant(live.id.0);
    }

    async fn load_catalogue(&self, live: &Arc<LiveTenant>) -> Result<(), StoreError> {
        let rows = match self.store.load_catalogue(live.id).await {
            Err(StoreError::NotFound) => {
                self.end(live);
                return Ok(());
            }
            other => other?,
        };
        if rows.rev <= live.rev(Kind::Catalogue) {
            return Ok(());
        }
        let old = live.catalogue();
        let (tenant, limits) = (live.id, self.options.upstream);
        let (keyring, commands) = (Arc::clone(&self.options.keyring), Arc::clone(&self.options.commands));
        // parsing a large catalogue takes milliseconds: off the threads that serve calls
        let is_followed = live.fanout.is_followed();
        let build = move || {
            let catalogue = Catalog::build(tenant, &rows, &old, &limits, &keyring, &commands);
            if is_followed {
                drop(catalogue.states());
            }
            catalogue
        };
        let built = tokio::task::spawn_blocking(build).await;
        match built {
            Ok(catalogue) => {
                let catalogue = Arc::new(catalogue);
                live.catalogue.store(Arc::clone(&catalogue));
                *live.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                live.fanout.moved(live);
                self.find_misled(live);
                // after the swap: nobody connects anew with what was dropped
                for server in &catalogue.gone {
                    self.upstreams.forget(live.id.0, server.0);
                }
                // last, because nobody but a search needs it, and the first one should not have to wait for it
                live.index_soon(&self.tenants.indexing);
            }
            Err(error) => tracing::error!(%error, tenant = %live.id, "building a catalogue failed"),
        }
        Ok(())
    }

    /// Follows a change that was heard of. A burst of them is followed at its beginning, at its end, and now and then
    /// in between.
    pub(super) async fn heard(&self, change: Change) {
        if change.kind == Kind::Access {
            self.tenants.lookups.keys_changed();
        }
        if let Some(live) = self.tenants.get(change.tenant) {
            let made = *live.made.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = made
                && live.rev(change.kind) < change.rev
            {
                tokio::time::sleep_until((made + RELOAD_PAUSE).into()).await;
            }
        }
        self.follow(change).await;
    }

    /// Brings what is here to where a change left it, when the tenant is live here.
    pub(super) async fn follow(&self, change: Change) {
        if change.kind == Kind::Access {
            self.tenants.lookups.keys_changed();
        }
        if let (Kind::Catalogue, Some(embeddings)) = (change.kind, &self.embeddings) {
            embeddings.note(change.tenant);
        }
        let Some(live) = self.tenants.get(change.tenant) else {
            // whoever only lists for it has no snapshot that says what is switched off
            match change.kind {
                Kind::Catalogue => {
                    if let Err(error) = self.end_programs(change.tenant).await {
                        tracing::warn!(%error, tenant = %change.tenant, "programs that may be switched off go on");
                    }
                }
                Kind::Access => self.forget_unless_served(change.tenant).await,
                Kind::Vectors => {}
            }
            return;
        };
        if let Err(error) = self.reload(&live, change.kind, change.rev).await {
            tracing::warn!(%error, tenant = %change.tenant, kind = ?change.kind, "a snapshot could not be reloaded");
        }
    }

    /// Applies a change that was made here, so that the replica that answers it has it.
    pub(super) async fn applied(&self, tenant: TenantId, kind: Kind, rev: i64) {
        self.follow(Change { tenant, kind, rev }).await;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::gateway::access::tests::access;

    /// Which of the keys named by these bytes lead anywhere.
    fn known(tenancy: &Tenancy, keys: std::ops::Range<u8>) -> Vec<u8> {
        keys.filter(|n| tenancy.caller(&[*n; 32]).is_some()).collect()
    }

    fn live(n: u128) -> Arc<LiveTenant> {
        LiveTenant::new(TenantId(Uuid::from_u128(n)), format!("tenant-{n}"))
    }

    #[tokio::test]
    async fn of_catalogues_that_come_and_go_only_the_last_has_an_index() {
        let (places, ours) = (Arc::new(Semaphore::new(1)), live(1));
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

    #[test]
    fn a_swap_takes_away_what_the_snapshot_before_gave() {
        let (tenancy, ours, theirs) = (Tenancy::new(1, 1), live(1), live(2));
        tenancy.swap_access(&theirs, Some(access(&theirs, &[7], Vec::new())));
        tenancy.swap_access(&ours, Some(access(&ours, &[1, 2], Vec::new())));
        assert_eq!(known(&tenancy, 0..10), [1, 2, 7]);
        tenancy.swap_access(&ours, Some(access(&ours, &[2, 3], Vec::new())));
        assert_eq!(known(&tenancy, 0..10), [2, 3, 7]);
        // the same tenant, entered anew before the old one's end is through
        let again = live(1);
        tenancy.live.write().unwrap().insert(again.id, Arc::clone(&again));
        tenancy.swap_access(&again, Some(access(&again, &[3, 4], Vec::new())));
        tenancy.forget(&ours);
        assert_eq!(known(&tenancy, 0..10), [3, 4, 7]);
        assert!(tenancy.get(again.id).is_some_and(|live| Arc::ptr_eq(&live, &again)));
        tenancy.forget(&again);
        assert!(known(&tenancy, 0..10) == [7] && tenancy.get(again.id).is_none());
    }

    #[test]
    fn a_load_that_an_end_has_overtaken_changes_nothing() {
        let (tenancy, ours) = (Tenancy::new(1, 1), live(1));
        tenancy.swap_access(&ours, Some(access(&ours, &[1], Vec::new())));
        let loaded = access(&ours, &[1, 2], Vec::new());
        tenancy.forget(&ours);
        tenancy.swap_access(&ours, Some(loaded));
        assert!(known(&tenancy, 0..10).is_empty() && ours.access().is_none());
        // also one that was never loaded before
        let fresh = live(2);
        tenancy.forget(&fresh);
        tenancy.swap_access(&fresh, Some(access(&fresh, &[3], Vec::new())));
        assert!(known(&tenancy, 0..10).is_empty() && fresh.access().is_none());
    }
}
