//! Which lists are kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::ListKey;
use crate::domain::id::TenantId;
use crate::upstream::Reserved;

/// Part of the memory for lists, and of their number, that one tenant's may have.
const TENANT_SHARE: usize = 4;
/// Most lists kept, however small.
const LISTS_MAX: usize = 4096;

/// A list that is kept.
pub(super) struct Found {
    pub(super) body: Bytes,
    /// The memory of those who are sent it now.
    pub(super) held: Option<Arc<Reserved>>,
}

#[derive(Debug)]
struct Entry {
    body: Bytes,
    held: Weak<Reserved>,
    next: Option<ListKey>,
    used: u64,
}

/// What one tenant has of it.
#[derive(Debug, Default)]
struct Own {
    bytes: usize,
    by_use: BTreeMap<u64, ListKey>,
}

/// The lists of all tenants.
#[derive(Debug)]
pub(super) struct Kept {
    bytes_max: usize,
    entries: HashMap<ListKey, Entry>,
    by_use: BTreeMap<u64, ListKey>,
    tenants: HashMap<TenantId, Own>,
    /// Pages that one which is kept leads to. Others are not kept: a cursor may name any place.
    led_to: HashSet<ListKey>,
    bytes: usize,
    uses: u64,
}

impl Kept {
    pub(super) fn new(bytes_max: usize) -> Kept {
        Kept {
            bytes_max,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            tenants: HashMap::new(),
            led_to: HashSet::new(),
            bytes: 0,
            uses: 0,
        }
    }

    pub(super) fn get(&mut self, key: &ListKey) -> Option<Found> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        let before = std::mem::replace(&mut entry.used, self.uses);
        self.by_use.remove(&before);
        self.by_use.insert(self.uses, *key);
        if let Some(own) = self.tenants.get_mut(&key.tenant) {
            own.by_use.remove(&before);
            own.by_use.insert(self.uses, *key);
        }
        Some(Found { body: entry.body.clone(), held: entry.held.upgrade() })
    }

    /// Notes the memory that those have who are sent a list from now on.
    pub(super) fn hold(&mut self, key: &ListKey, held: &Arc<Reserved>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.held = Arc::downgrade(held);
        }
    }

    pub(super) fn put(&mut self, key: ListKey, body: Bytes, held: Weak<Reserved>, next: Option<usize>) {
        let (bytes, tenant_max) = (body.len(), self.bytes_max / TENANT_SHARE);
        if bytes > tenant_max || (key.from.is_some() && !self.led_to.contains(&key)) {
            return;
        }
        // whoever asked at the same time made the same one
        self.remove(&key);
        while self
            .tenants
            .get(&key.tenant)
            .is_some_and(|own| own.bytes + bytes > tenant_max || own.by_use.len() >= LISTS_MAX / TENANT_SHARE)
        {
            self.remove_oldest(Some(key.tenant));
        }
        while self.bytes + bytes > self.bytes_max || self.entries.len() >= LISTS_MAX {
            self.remove_oldest(None);
        }
        self.uses += 1;
        let used = self.uses;
        self.bytes += bytes;
        self.by_use.insert(used, key);
        let own = self.tenants.entry(key.tenant).or_default();
        own.bytes += bytes;
        own.by_use.insert(used, key);
        let next = next.map(|from| ListKey { from: Some(from), ..key });
        self.led_to.extend(next);
        self.entries.insert(key, Entry { body, held, next, used });
    }

    pub(super) fn forget(&mut self, tenant: TenantId) {
        while self.remove_oldest(Some(tenant)) {}
    }

    /// Removes what was not asked for the longest, of one tenant or of all; whether there was any.
    fn remove_oldest(&mut self, tenant: Option<TenantId>) -> bool {
        let by_use = match tenant {
            None => Some(&self.by_use),
            Some(tenant) => self.tenants.get(&tenant).map(|own| &own.by_use),
        };
        let oldest = by_use.and_then(BTreeMap::first_key_value).map(|(_, key)| *key);
        oldest.is_some_and(|key| self.remove(&key))
    }

    fn remove(&mut self, key: &ListKey) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.bytes -= entry.body.len();
        self.by_use.remove(&entry.used);
        if let Some(next) = entry.next {
            self.led_to.remove(&next);
        }
        if let Some(own) = self.tenants.get_mut(&key.tenant) {
            own.bytes -= entry.body.len();
            own.by_use.remove(&entry.used);
            if own.by_use.is_empty() {
                self.tenants.remove(&key.tenant);
            }
        }
        true
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

    fn put(kept: &mut Kept, tenant: u128, what: &str, bytes: usize) {
        kept.put(key(tenant, what), vec![b'x'; bytes].into(), Weak::new(), None);
    }

    fn has(kept: &mut Kept, tenant: u128, what: &str) -> bool {
        kept.get(&key(tenant, what)).is_some()
    }

    fn is_empty(kept: &Kept) -> bool {
        let rest = (kept.bytes, kept.entries.len(), kept.by_use.len(), kept.tenants.len(), kept.led_to.len());
        rest == (0, 0, 0, 0, 0)
    }

    #[test]
    fn a_tenant_has_a_quarter_and_loses_its_own_oldest() {
        let mut kept = Kept::new(400);
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
        let mut kept = Kept::new(1024 * 1024);
        put(&mut kept, 0, "other", 1);
        for n in 0..LISTS_MAX {
            put(&mut kept, 1, &n.to_string(), 1);
        }
        assert!(has(&mut kept, 0, "other"));
        assert_eq!(kept.entries.len(), 1 + LISTS_MAX / TENANT_SHARE);
        for tenant in [0, 1] {
            kept.forget(key(tenant, "").tenant);
        }
        assert!(is_empty(&kept));
    }

    #[test]
    fn all_together_keep_the_bound_and_what_goes_is_not_counted() {
        let mut kept = Kept::new(400);
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
        let mut kept = Kept::new(400);
        let page = |from| ListKey { from, ..key(1, "a") };
        let put =
            |kept: &mut Kept, from, next| kept.put(page(from), Bytes::from_static(b"x"), Weak::new(), next);
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
