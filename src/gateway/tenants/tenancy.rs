//! The live tenants of this replica, each with a snapshot of access and one of the catalogue, replaced as a whole.
//!
//! A tenant becomes live when one of its keys is first used here, and stays live. An older revision never replaces a newer
//! one.

mod lookups;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::Semaphore;

use self::lookups::Lookups;
use super::live::LiveTenant;
use super::live::access::{Access, Caller};
use crate::domain::id::TenantId;

/// Tenants whose keys are reloaded at the same time by the poll.
const ACCESS_RELOADS_MAX: usize = 4;
/// Search indexes made at the same time ahead of searches: each keeps one processor busy.
const INDEXED_AT_ONCE: usize = 1;
/// All live tenants, and the callers of their keys.
#[derive(Debug)]
pub(in crate::gateway) struct Tenancy {
    live: RwLock<HashMap<TenantId, Arc<LiveTenant>>>,
    keys: RwLock<HashMap<[u8; 32], Arc<Caller>>>,
    /// Time of the last comparison of all live tenants' revisions with the database's.
    confirmed: RwLock<Option<Instant>>,
    /// Look-ups of keys that no snapshot has.
    pub(in crate::gateway) lookups: Lookups,
    /// Permits for loading tenants of keys found by a look-up.
    pub(in crate::gateway) entries: Semaphore,
    pub(in crate::gateway) access_reloads: Semaphore,
    pub(in crate::gateway) reloads: Semaphore,
    /// Permits for making search indexes ahead of searches.
    pub(in crate::gateway) indexing: Arc<Semaphore>,
}

impl Tenancy {
    pub(in crate::gateway) fn new(entries_max: usize, reloads_max: usize) -> Tenancy {
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

    /// Returns the caller of a key; `None` if no snapshot has it.
    pub(in crate::gateway) fn caller(&self, hash: &[u8; 32]) -> Option<Arc<Caller>> {
        self.keys.read().get(hash).cloned()
    }

    pub(in crate::gateway) fn get(&self, tenant: TenantId) -> Option<Arc<LiveTenant>> {
        self.live.read().get(&tenant).cloned()
    }

    /// Makes a tenant live, without any rows, unless it is already.
    pub(in crate::gateway) fn enter(&self, tenant: TenantId, name: String) -> Arc<LiveTenant> {
        let mut all = self.live.write();
        Arc::clone(all.entry(tenant).or_insert_with(|| LiveTenant::new(tenant, name)))
    }

    /// Returns a live tenant by name.
    pub(in crate::gateway) fn by_name(&self, name: &str) -> Option<Arc<LiveTenant>> {
        self.live.read().values().find(|tenant| tenant.name == name).cloned()
    }

    pub(in crate::gateway) fn all(&self) -> Vec<Arc<LiveTenant>> {
        self.live.read().values().map(Arc::clone).collect()
    }

    pub(in crate::gateway) fn ids(&self) -> Vec<TenantId> {
        self.live.read().keys().copied().collect()
    }

    /// Notes a comparison of revisions; `at` is its beginning.
    pub(in crate::gateway) fn confirm(&self, at: Instant) {
        *self.confirmed.write() = Some(at);
    }

    /// Returns the time when revisions were last confirmed; `None` before the first time.
    pub(in crate::gateway) fn confirmed_at(&self) -> Option<Instant> {
        *self.confirmed.read()
    }

    /// Returns the time since revisions were last confirmed; `None` before the first time.
    pub(in crate::gateway) fn confirmed_ago(&self) -> Option<Duration> {
        self.confirmed_at().map(|at| at.elapsed())
    }

    /// Replaces keys and settings: first the tenant's snapshot, then the keys. Does nothing for a tenant that was ended
    /// meanwhile.
    pub(in crate::gateway) fn swap_access(&self, live: &LiveTenant, new: Option<Access>) {
        let mut keys = self.keys.write();
        if live.is_ended.load(Ordering::Relaxed) {
            return;
        }
        live.is_ended.store(new.is_none(), Ordering::Relaxed);
        let new = Arc::new(new);
        let old = live.access.swap(Arc::clone(&new));
        // only these: a tenant that is entered again while its former value ends has the same keys
        for (hash, caller) in old.iter().flat_map(|access| &access.keys) {
            if keys.get(hash).is_some_and(|known| Arc::ptr_eq(known, caller)) {
                keys.remove(hash);
            }
        }
        for (hash, caller) in new.iter().flat_map(|access| &access.keys) {
            keys.insert(*hash, Arc::clone(caller));
        }
    }

    /// Ends a tenant that is deleted, or that this version cannot read: its keys no longer work here, and its streams end.
    pub(in crate::gateway) fn forget(&self, live: &LiveTenant) {
        let mut all = self.live.write();
        if all.get(&live.id).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), live)) {
            all.remove(&live.id);
        }
        drop(all);
        self.swap_access(live, None);
        live.fanout.check();
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::gateway::tenants::live::access::tests::access;

    /// Returns which of the keys named by these bytes have a caller.
    fn known(tenancy: &Tenancy, keys: std::ops::Range<u8>) -> Vec<u8> {
        keys.filter(|n| tenancy.caller(&[*n; 32]).is_some()).collect()
    }

    fn live(n: u128) -> Arc<LiveTenant> {
        LiveTenant::new(TenantId(Uuid::from_u128(n)), format!("tenant-{n}"))
    }

    #[test]
    fn a_swap_takes_away_what_the_snapshot_before_gave() {
        let (tenancy, ours, theirs) = (Tenancy::new(1, 1), live(1), live(2));
        tenancy.swap_access(&theirs, Some(access(&theirs, &[7], Vec::new())));
        tenancy.swap_access(&ours, Some(access(&ours, &[1, 2], Vec::new())));
        assert_eq!(known(&tenancy, 0..10), [1, 2, 7]);
        tenancy.swap_access(&ours, Some(access(&ours, &[2, 3], Vec::new())));
        assert_eq!(known(&tenancy, 0..10), [2, 3, 7]);
        // the same tenant, entered again before the old one's end is through
        let again = live(1);
        tenancy.live.write().insert(again.id, Arc::clone(&again));
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
