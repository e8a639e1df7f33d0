//! Finished lists, kept for whoever asks for the same: the least used give way.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::domain::fingerprint::Fingerprint;
use crate::domain::id::TenantId;
use crate::domain::intent::OperationType;
use crate::domain::publish::Reader;
use crate::domain::settings::ToolNames;
use crate::gateway::Gateway;

/// Part of the memory for lists that one tenant's may have.
const TENANT_SHARE: usize = 4;
/// Most lists kept, however small.
const LISTS_MAX: usize = 4096;

/// Which list: equal keys are equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// What is seen.
    pub print: Fingerprint,
    /// Who reads it.
    pub reader: Reader,
    /// The spelling.
    pub names: ToolNames,
    /// What the caller may do with management tools; `None` for nothing.
    pub manages: Option<OperationType>,
    /// Where the page begins; `None` for the first, which also has the gateway's own tools.
    pub from: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    body: Bytes,
    used: u64,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<ListKey, Entry>,
    bytes: usize,
    /// Bytes of each tenant's.
    of_tenants: HashMap<TenantId, usize>,
    uses: u64,
}

/// The lists of all tenants.
#[derive(Debug)]
pub(in crate::gateway) struct Lists {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

impl Lists {
    pub(in crate::gateway) fn new(bytes_max: usize) -> Lists {
        Lists { kept: Mutex::default(), bytes_max }
    }

    /// Forgets the lists of a tenant that is no more.
    pub(in crate::gateway) fn forget(&self, tenant: TenantId) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.remove_oldest(Some(tenant)) {}
    }

    fn get(&self, key: &ListKey) -> Option<Bytes> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let uses = kept.uses;
        let entry = kept.entries.get_mut(key)?;
        entry.used = uses;
        Some(entry.body.clone())
    }

    fn put(&self, key: ListKey, body: Bytes) {
        let tenant_max = self.bytes_max / TENANT_SHARE;
        let bytes = body.len();
        if bytes > tenant_max {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // whoever asked at the same time made the same one
        kept.remove(&key);
        while kept.of_tenants.get(&key.tenant).is_some_and(|own| own + bytes > tenant_max) {
            kept.remove_oldest(Some(key.tenant));
        }
        while kept.bytes + bytes > self.bytes_max || kept.entries.len() >= LISTS_MAX {
            kept.remove_oldest(None);
        }
        kept.uses += 1;
        let used = kept.uses;
        kept.bytes += bytes;
        *kept.of_tenants.entry(key.tenant).or_default() += bytes;
        kept.entries.insert(key, Entry { body, used });
    }
}

impl Kept {
    /// Removes what was not asked for the longest, of one tenant or of all; whether there was any.
    fn remove_oldest(&mut self, tenant: Option<TenantId>) -> bool {
        let candidates = self.entries.iter().filter(|(key, _)| tenant.is_none_or(|own| own == key.tenant));
        let oldest = candidates.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        oldest.is_some_and(|key| self.remove(&key))
    }

    fn remove(&mut self, key: &ListKey) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.bytes -= entry.body.len();
        if let Some(own) = self.of_tenants.get_mut(&key.tenant) {
            *own -= entry.body.len();
            if *own == 0 {
                self.of_tenants.remove(&key.tenant);
            }
        }
        true
    }
}

impl Gateway {
    /// The list of this key: one that is kept, or the one that `make` makes, which is kept for the next.
    pub fn list_body(&self, key: ListKey, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(body) = self.lists.get(&key) {
            return body;
        }
        let body = make();
        self.lists.put(key, body.clone());
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::Fingerprinting;

    fn key(tenant: u128, what: &str) -> ListKey {
        let mut print = Fingerprinting::default();
        print.field(what);
        ListKey {
            tenant: TenantId(uuid::Uuid::from_u128(tenant)),
            print: print.finish(),
            reader: Reader::Modern,
            names: ToolNames::Colon,
            manages: None,
            from: None,
        }
    }

    fn put(lists: &Lists, tenant: u128, what: &str, bytes: usize) {
        lists.put(key(tenant, what), vec![b'x'; bytes].into());
    }

    fn has(lists: &Lists, tenant: u128, what: &str) -> bool {
        lists.get(&key(tenant, what)).is_some()
    }

    #[test]
    fn a_tenant_has_a_quarter_and_loses_its_own_oldest() {
        let lists = Lists::new(400);
        put(&lists, 0, "other", 100);
        for what in ["a", "b"] {
            put(&lists, 1, what, 50);
        }
        assert!(has(&lists, 1, "a"));
        put(&lists, 1, "c", 50);
        assert_eq!(["a", "b", "c"].map(|what| has(&lists, 1, what)), [true, false, true]);
        assert!(has(&lists, 0, "other"));
        put(&lists, 1, "large", 101);
        assert!(!has(&lists, 1, "large") && has(&lists, 1, "a"));
    }

    #[test]
    fn all_together_keep_the_bound_and_what_goes_is_not_counted() {
        let lists = Lists::new(400);
        for tenant in 0..5 {
            put(&lists, tenant, "a", 90);
            put(&lists, tenant, "a", 90);
        }
        let there: Vec<bool> = (0..5).map(|tenant| has(&lists, tenant, "a")).collect();
        assert_eq!(there, [false, true, true, true, true]);
        for tenant in 0..5 {
            lists.forget(key(tenant, "").tenant);
        }
        let kept = lists.kept.lock().unwrap();
        assert_eq!((kept.bytes, kept.entries.len(), kept.of_tenants.len()), (0, 0, 0));
    }
}
