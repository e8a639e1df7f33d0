//! Shares of a bounded capacity: what is in use in all, and by each holder.
//!
//! A holder is whatever a bound applies to: a tenant, an API key. Where tenants compete, one has at most a quarter
//! ([`TENANT_PART`]), so that none can take all.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Divisor of a capacity for one tenant, which may use a quarter of it.
pub const TENANT_PART: usize = 4;

/// Makes room for one more entry of a tenant, whose keys `is_own` finds. A tenant that has a quarter of the capacity loses its
/// unused entries, before all others do. Returns whether there is room now, and what was dropped: nobody else holds it.
pub fn make_room<K: Eq + Hash, V>(
    kept: &mut HashMap<K, Arc<V>>,
    capacity: usize,
    is_own: impl Fn(&K) -> bool,
) -> (bool, Vec<(K, Arc<V>)>) {
    let part = capacity / TENANT_PART;
    let is_unused = |value: &Arc<V>| Arc::strong_count(value) == 1;
    let own = |kept: &HashMap<K, Arc<V>>| match kept.len() < part {
        true => 0,
        false => kept.keys().filter(|key| is_own(key)).count(),
    };
    let mut dropped = Vec::new();
    if own(kept) >= part {
        dropped.extend(kept.extract_if(|key, value| is_own(key) && is_unused(value)));
    }
    if kept.len() >= capacity {
        dropped.extend(kept.extract_if(|_, value| is_unused(value)));
    }
    (kept.len() < capacity && own(kept) < part.max(1), dropped)
}

/// Part of a capacity, as a number of items and their size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of items.
    pub items: usize,
    /// Size of the items together, in bytes; 0 where a capacity is not counted in bytes.
    pub bytes: usize,
}

impl Amount {
    /// Single item without a size.
    pub const ONE: Amount = Amount { items: 1, bytes: 0 };

    /// Returns one item of this many bytes.
    pub const fn one(bytes: usize) -> Amount {
        Amount { items: 1, bytes }
    }

    /// Returns this many items without a size.
    pub const fn items(items: usize) -> Amount {
        Amount { items, bytes: 0 }
    }

    /// Returns whether `more` fits on top of this within `capacity` divided by `part`. At least one item has room.
    #[must_use]
    pub fn has_room(self, more: Amount, capacity: Amount, part: usize) -> bool {
        self.items + more.items <= (capacity.items / part).max(1)
            && self.bytes + more.bytes <= capacity.bytes / part
    }

    /// Adds an amount.
    pub fn add(&mut self, more: Amount) {
        self.items += more.items;
        self.bytes += more.bytes;
    }

    /// Subtracts an amount, down to nothing.
    pub fn subtract(&mut self, less: Amount) {
        self.items = self.items.saturating_sub(less.items);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// Use of a capacity, in all and by holder. Only holders with items have an entry.
#[derive(Debug)]
pub struct Shares<K> {
    all: Amount,
    by_holder: HashMap<K, Amount>,
}

impl<K> Default for Shares<K> {
    fn default() -> Shares<K> {
        Shares { all: Amount::default(), by_holder: HashMap::new() }
    }
}

impl<K: Eq + Hash> Shares<K> {
    /// Returns what is in use in all.
    pub fn all(&self) -> Amount {
        self.all
    }

    /// Returns what a holder uses.
    pub fn of(&self, holder: &K) -> Amount {
        self.by_holder.get(holder).copied().unwrap_or_default()
    }

    /// Returns what each holder uses.
    pub fn holders(&self) -> impl Iterator<Item = (&K, Amount)> {
        self.by_holder.iter().map(|(holder, amount)| (holder, *amount))
    }

    /// Returns the holder with the most items; `None` without any holder.
    pub fn largest(&self) -> Option<&K> {
        self.by_holder.iter().max_by_key(|(_, amount)| amount.items).map(|(holder, _)| holder)
    }

    /// Counts an amount for a holder. The caller checks the bounds.
    pub fn take(&mut self, holder: K, amount: Amount) {
        self.all.add(amount);
        self.by_holder.entry(holder).or_default().add(amount);
    }

    /// Takes an amount back from a holder. A holder without an entry gives nothing back.
    pub fn give_back(&mut self, holder: &K, amount: Amount) {
        let Some(own) = self.by_holder.get_mut(holder) else { return };
        own.subtract(amount);
        if own.items == 0 {
            self.by_holder.remove(holder);
        }
        self.all.subtract(amount);
    }

    /// Changes the size of one of a holder's items, in bytes.
    pub fn resize(&mut self, holder: &K, from: usize, to: usize) {
        let Some(own) = self.by_holder.get_mut(holder) else { return };
        for amount in [own, &mut self.all] {
            amount.bytes = amount.bytes.saturating_sub(from) + to;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tenant_makes_room_among_its_own_before_others_lose_theirs() {
        const CAPACITY: usize = 8;
        let mut kept: HashMap<(u8, u8), Arc<u8>> = HashMap::new();
        let put = |kept: &mut HashMap<(u8, u8), Arc<u8>>, tenant: u8, n: u8| {
            let (has_room, dropped) = make_room(kept, CAPACITY, |key| key.0 == tenant);
            if has_room {
                kept.insert((tenant, n), Arc::new(n));
            }
            let dropped: Vec<u8> = dropped.iter().map(|(key, _)| key.0).collect();
            (has_room, dropped)
        };
        assert_eq!(put(&mut kept, 1, 0), (true, vec![]));
        for n in 0..20 {
            let (has_room, dropped) = put(&mut kept, 2, n);
            assert!(has_room && dropped.iter().all(|tenant| *tenant == 2), "{n}: {dropped:?}");
            assert!(kept.len() <= 3, "{n}: {kept:?}");
        }
        // what is in use stays, and nobody else's goes for it
        let in_use: Vec<Arc<u8>> = kept.values().map(Arc::clone).collect();
        assert_eq!(put(&mut kept, 2, 30), (false, vec![]));
        drop(in_use);
        for tenant in 3..9 {
            assert_eq!(put(&mut kept, tenant, 0), (true, vec![]));
            if kept.len() == CAPACITY {
                break;
            }
        }
        let (has_room, dropped) = put(&mut kept, 9, 0);
        assert!(has_room && dropped.len() == CAPACITY, "{dropped:?}");
    }

    proptest! {
        /// The total is the sum over all holders, and nothing is left when everything was given back.
        #[test]
        fn the_total_is_the_sum_of_the_shares(taken in prop::collection::vec((0_u8..4, 0_usize..100), 0..40)) {
            let mut shares = Shares::default();
            for (holder, bytes) in &taken {
                shares.take(*holder, Amount::one(*bytes));
                let sum: usize = (0..4).map(|holder| shares.of(&holder).bytes).sum();
                prop_assert_eq!(shares.all().bytes, sum);
            }
            prop_assert_eq!(shares.all().items, taken.len());
            for (holder, bytes) in &taken {
                shares.give_back(holder, Amount::one(*bytes));
            }
            prop_assert_eq!(shares.all(), Amount::default());
            prop_assert_eq!(shares.largest(), None);
        }
    }

    #[test]
    fn parts_have_room_for_one_item_at_least() {
        let capacity = Amount { items: 8, bytes: 80 };
        for (used, more, part, fits) in [
            (Amount { items: 1, bytes: 10 }, Amount::one(10), 4, true),
            (Amount { items: 2, bytes: 10 }, Amount::one(0), 4, false),
            (Amount { items: 1, bytes: 15 }, Amount::one(10), 4, false),
            (Amount::default(), Amount::one(0), 100, true),
            (Amount { items: 7, bytes: 70 }, Amount::one(10), 1, true),
        ] {
            assert_eq!(used.has_room(more, capacity, part), fits, "{used:?} {more:?} {part}");
        }
    }

    #[test]
    fn a_holder_without_use_gives_nothing_back() {
        let mut shares = Shares::default();
        shares.take("a", Amount::one(5));
        shares.give_back(&"b", Amount::one(5));
        shares.resize(&"b", 5, 9);
        shares.resize(&"a", 5, 7);
        assert_eq!((shares.all(), shares.of(&"a")), (Amount::one(7), Amount::one(7)));
    }
}
