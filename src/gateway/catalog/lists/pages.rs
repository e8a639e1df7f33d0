//! Cache of finished lists, bounded in bytes and in number.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::ListKey;
use crate::domain::id::TenantId;
use crate::gateway::kept::{Kept, Owned};
use crate::upstream::MemoryHold;

/// Most lists kept, however small.
const LISTS_MAX: usize = 4096;

/// List found in the cache.
pub(super) struct Found {
    pub(super) body: Bytes,
    /// Memory held for clients that are being sent the list; `None` if no client is.
    pub(super) held: Option<Arc<MemoryHold>>,
}

#[derive(Debug)]
struct Entry {
    body: Bytes,
    held: Weak<MemoryHold>,
    next: Option<ListKey>,
}

impl Owned for ListKey {
    fn tenant(&self) -> TenantId {
        self.tenant
    }
}

/// Cached lists of all tenants.
#[derive(Debug)]
pub(super) struct Pages {
    kept: Kept<ListKey, Entry>,
    /// Pages that follow a kept page. Other continuations are not kept: a cursor may name any position.
    led_to: HashSet<ListKey>,
}

impl Pages {
    pub(super) fn new(bytes_max: usize) -> Pages {
        Pages { kept: Kept::new(bytes_max, LISTS_MAX), led_to: HashSet::new() }
    }

    pub(super) fn get(&mut self, key: &ListKey) -> Option<Found> {
        let entry = self.kept.get(key)?;
        Some(Found { body: entry.body.clone(), held: entry.held.upgrade() })
    }

    /// Notes the memory held for clients that are sent this list from now on.
    pub(super) fn hold(&mut self, key: &ListKey, held: &Arc<MemoryHold>) {
        if let Some(entry) = self.kept.get(key) {
            entry.held = Arc::downgrade(held);
        }
    }

    pub(super) fn put(&mut self, key: ListKey, body: Bytes, held: Weak<MemoryHold>, next: Option<usize>) {
        let bytes = body.len();
        if bytes > self.kept.tenant_max() || (key.from.is_some() && !self.led_to.contains(&key)) {
            return;
        }
        let next = next.map(|from| ListKey { from: Some(from), ..key });
        let gone = self.kept.put(key, Entry { body, held, next }, bytes);
        self.gave_way(gone);
        self.led_to.extend(next);
    }

    pub(super) fn forget(&mut self, tenant: TenantId) {
        let gone = self.kept.forget(tenant);
        self.gave_way(gone);
    }

    fn gave_way(&mut self, gone: Vec<Entry>) {
        for next in gone.into_iter().filter_map(|entry| entry.next) {
            self.led_to.remove(&next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::Fingerprint;
    use crate::domain::publish::Reader;
    use crate::domain::settings::ToolNames;

    fn key(tenant: u128, what: &str) -> ListKey {
        ListKey {
            tenant: TenantId(uuid::Uuid::from_u128(tenant)),
            print: Fingerprint::of(what),
            reader: Reader::Modern,
            names: ToolNames::Colon,
            manages: None,
            from: None,
        }
    }

    fn put(kept: &mut Pages, tenant: u128, what: &str, bytes: usize) {
        kept.put(key(tenant, what), vec![b'x'; bytes].into(), Weak::new(), None);
    }

    fn has(kept: &mut Pages, tenant: u128, what: &str) -> bool {
        kept.get(&key(tenant, what)).is_some()
    }

    fn is_empty(kept: &Pages) -> bool {
        (kept.kept.bytes(), kept.kept.len(), kept.led_to.len()) == (0, 0, 0)
    }

    #[test]
    fn a_tenant_has_a_quarter_and_loses_its_own_oldest() {
        let mut kept = Pages::new(400);
        put(&mut kept, 0, "other", 100);
        for what in ["a", "b"] {
            put(&mut kept, 1, what, 50);
        }
        assert!(has(&mut kept, 1, "a"));
        put(&mut kept, 1, "c", 50);
        assert_eq!(["a", "b", "c"].map(|what| has(&mut kept, 1, what)), [true, false, true]);
        assert!(has(&mut kept, 0, "other"));
        put(&mut kept, 1, "large", 101);
        assert!(!has(&mut kept, 1, "large") && has(&mut kept, 1, "a"));
    }

    #[test]
    fn tiny_lists_of_one_tenant_leave_room_for_others() {
        let mut kept = Pages::new(1024 * 1024);
        put(&mut kept, 0, "other", 1);
        for n in 0..LISTS_MAX {
            put(&mut kept, 1, &n.to_string(), 1);
        }
        assert!(has(&mut kept, 0, "other"));
        assert_eq!(kept.kept.len(), 1 + LISTS_MAX / 4);
        for tenant in [0, 1] {
            kept.forget(key(tenant, "").tenant);
        }
        assert!(is_empty(&kept));
    }

    #[test]
    fn all_together_keep_the_bound_and_what_goes_is_not_counted() {
        let mut kept = Pages::new(400);
        for tenant in 0..5 {
            put(&mut kept, tenant, "a", 90);
            put(&mut kept, tenant, "a", 90);
        }
        let there: Vec<bool> = (0..5).map(|tenant| has(&mut kept, tenant, "a")).collect();
        assert_eq!(there, [false, true, true, true, true]);
        for tenant in 0..5 {
            kept.forget(key(tenant, "").tenant);
        }
        assert!(is_empty(&kept));
    }

    #[test]
    fn only_pages_that_another_leads_to_are_kept() {
        let mut kept = Pages::new(400);
        let page = |from| ListKey { from, ..key(1, "a") };
        let put =
            |kept: &mut Pages, from, next| kept.put(page(from), Bytes::from_static(b"x"), Weak::new(), next);
        put(&mut kept, Some(7), Some(9));
        assert!(kept.get(&page(Some(7))).is_none(), "a cursor of the client's own making");
        put(&mut kept, None, Some(5));
        put(&mut kept, Some(5), Some(9));
        put(&mut kept, Some(9), None);
        assert!([None, Some(5), Some(9)].into_iter().all(|from| kept.get(&page(from)).is_some()));
        kept.forget(page(None).tenant);
        assert!(is_empty(&kept));
    }
}
