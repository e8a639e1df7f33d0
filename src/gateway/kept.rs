//! A cache bounded in bytes and entries, and fair to tenants. The least recently used entry is evicted, and each tenant has
//! at most a quarter.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::domain::id::TenantId;
use crate::domain::shares::TENANT_PART;

/// A key that belongs to a tenant.
pub(super) trait Owned {
    /// Tenant that the entry counts against.
    fn tenant(&self) -> TenantId;
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

/// Entries of one tenant.
#[derive(Debug)]
struct Own<K> {
    bytes: usize,
    by_use: BTreeMap<u64, K>,
}

/// Cache with least-recently-used eviction and a share per tenant.
#[derive(Debug)]
pub(super) struct Kept<K, V> {
    bytes_max: usize,
    entries_max: usize,
    entries: HashMap<K, Entry<V>>,
    by_use: BTreeMap<u64, K>,
    tenants: HashMap<TenantId, Own<K>>,
    bytes: usize,
    uses: u64,
}

impl<K: Clone + Eq + Hash + Owned, V> Kept<K, V> {
    /// Creates an empty cache of at most `bytes_max` bytes and `entries_max` entries.
    pub(super) fn new(bytes_max: usize, entries_max: usize) -> Kept<K, V> {
        Kept {
            bytes_max,
            entries_max,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            tenants: HashMap::new(),
            bytes: 0,
            uses: 0,
        }
    }

    /// Returns the most bytes that one tenant's entries may take together.
    pub(super) fn tenant_max(&self) -> usize {
        self.bytes_max / TENANT_PART
    }

    /// Returns the bytes of all entries together.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns an entry and marks it as just used.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        let before = std::mem::replace(&mut entry.used, self.uses);
        self.by_use.remove(&before);
        self.by_use.insert(self.uses, key.clone());
        if let Some(own) = self.tenants.get_mut(&key.tenant()) {
            own.by_use.remove(&before);
            own.by_use.insert(self.uses, key.clone());
        }
        Some(&mut entry.value)
    }

    /// Adds an entry. Returns the evicted ones; the entry itself is among them if it is too large.
    pub(super) fn put(&mut self, key: K, value: V, bytes: usize) -> Vec<V> {
        let tenant = key.tenant();
        if bytes > self.tenant_max() {
            return vec![value];
        }
        // a concurrent request may have added the same entry
        let mut gone: Vec<V> = self.remove(&key).into_iter().collect();
        while self.tenants.get(&tenant).is_some_and(|own| {
            own.bytes + bytes > self.tenant_max() || own.by_use.len() >= self.entries_max / TENANT_PART
        }) {
            gone.extend(self.remove_oldest(Some(tenant)));
        }
        while self.bytes + bytes > self.bytes_max || self.entries.len() >= self.entries_max {
            gone.extend(self.remove_oldest(None));
        }
        self.uses += 1;
        let used = self.uses;
        self.bytes += bytes;
        self.by_use.insert(used, key.clone());
        let own = self.tenants.entry(tenant).or_insert_with(|| Own { bytes: 0, by_use: BTreeMap::new() });
        own.bytes += bytes;
        own.by_use.insert(used, key.clone());
        self.entries.insert(key, Entry { value, bytes, used });
        gone
    }

    /// Removes the entries of a tenant.
    pub(super) fn forget(&mut self, tenant: TenantId) -> Vec<V> {
        std::iter::from_fn(|| self.remove_oldest(Some(tenant))).collect()
    }

    /// Removes the least recently used entry, of one tenant or of all.
    fn remove_oldest(&mut self, tenant: Option<TenantId>) -> Option<V> {
        let by_use = match tenant {
            None => Some(&self.by_use),
            Some(tenant) => self.tenants.get(&tenant).map(|own| &own.by_use),
        };
        let oldest = by_use.and_then(BTreeMap::first_key_value).map(|(_, key)| key.clone());
        oldest.and_then(|key| self.remove(&key))
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes;
        self.by_use.remove(&entry.used);
        let tenant = key.tenant();
        if let Some(own) = self.tenants.get_mut(&tenant) {
            own.bytes -= entry.bytes;
            own.by_use.remove(&entry.used);
            if own.by_use.is_empty() {
                self.tenants.remove(&tenant);
            }
        }
        Some(entry.value)
    }
}
