//! Vectors of a tenant: those of its definitions, by pin, and those of its queries.

mod questions;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::questions::Questions;
use crate::domain::search::Embedding;
use crate::gateway::catalog::Catalog;
use crate::store::{EMBEDDED_PER_TENANT_MAX, EmbeddingRows};

/// Vectors of definitions at one revision.
#[derive(Debug, Default)]
struct Kept {
    rev: i64,
    by_pin: HashMap<Arc<str>, Arc<Embedding>>,
}

/// Vectors in the order of a catalogue's list. The references are weak: a large catalogue must not stay in memory until the
/// next search, which may never come.
#[derive(Debug)]
struct Placed {
    catalogue: Weak<Catalog>,
    kept: Weak<Kept>,
    vectors: Arc<[Option<Arc<Embedding>>]>,
}

/// Error: more vectors than a tenant may have.
#[derive(Debug)]
pub(in crate::gateway::tenants) struct TooMany;

/// All vectors of a tenant.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Vectors {
    kept: ArcSwap<Kept>,
    placed: Mutex<Option<Placed>>,
    pub(in crate::gateway) questions: Questions,
    pub(in crate::gateway::tenants) reloading: tokio::sync::Mutex<()>,
}

impl Vectors {
    /// Returns the revision of the loaded vectors.
    pub(in crate::gateway) fn rev(&self) -> i64 {
        self.kept.load().rev
    }

    /// Returns whether no definition has a vector.
    pub(in crate::gateway) fn is_empty(&self) -> bool {
        self.kept.load().by_pin.is_empty()
    }

    /// Adds vectors stored since. Vectors of removed definitions stay here, because the definitions may return.
    pub(in crate::gateway::tenants) fn add(&self, rows: EmbeddingRows) -> Result<(), TooMany> {
        let known = self.kept.load();
        let room = usize::try_from(EMBEDDED_PER_TENANT_MAX).unwrap_or(usize::MAX);
        if known.by_pin.len() + rows.vectors.len() > room {
            return Err(TooMany);
        }
        self.keep(known.by_pin.clone(), rows);
        Ok(())
    }

    /// Replaces all vectors by these.
    pub(in crate::gateway::tenants) fn replace(&self, rows: EmbeddingRows) {
        self.keep(HashMap::new(), rows);
    }

    fn keep(&self, mut by_pin: HashMap<Arc<str>, Arc<Embedding>>, rows: EmbeddingRows) {
        let read = |(pin, bytes): (String, Vec<u8>)| {
            Some((Arc::from(pin), Arc::new(Embedding::from_bytes(&bytes)?)))
        };
        by_pin.extend(rows.vectors.into_iter().filter_map(read));
        self.kept.store(Arc::new(Kept { rev: rows.rev, by_pin }));
    }

    /// Returns the vectors of the tools that `catalogue` lists, in that order; arranged once per catalogue and revision.
    pub(in crate::gateway) fn placed(&self, catalogue: &Arc<Catalog>) -> Arc<[Option<Arc<Embedding>>]> {
        let kept = self.kept.load_full();
        let mut placed = self.placed.lock();
        if let Some(known) = &*placed
            && is_of(&known.catalogue, catalogue)
            && is_of(&known.kept, &kept)
        {
            return Arc::clone(&known.vectors);
        }
        let of = |pin: &str| kept.by_pin.get(pin).cloned();
        let vectors: Arc<[_]> = catalogue.listed().iter().map(|tool| of(tool.shape.pin())).collect();
        let (catalogue, kept) = (Arc::downgrade(catalogue), Arc::downgrade(&kept));
        *placed = Some(Placed { catalogue, kept, vectors: Arc::clone(&vectors) });
        vectors
    }
}

/// Compares addresses, which is safe: an address is not reused while a weak reference to it exists.
fn is_of<T>(weak: &Weak<T>, strong: &Arc<T>) -> bool {
    std::ptr::eq(weak.as_ptr(), Arc::as_ptr(strong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_catalogue_is_not_kept() {
        let vectors = Vectors::default();
        let catalogue = Arc::new(Catalog::empty());
        let first = vectors.placed(&catalogue);
        assert!(Arc::ptr_eq(&first, &vectors.placed(&catalogue)), "placed once");
        let old = Arc::downgrade(&catalogue);
        drop(catalogue);
        assert!(old.upgrade().is_none(), "the next search may never come");
        assert!(!Arc::ptr_eq(&first, &vectors.placed(&Arc::new(Catalog::empty()))));
    }

    #[test]
    fn what_is_added_joins_what_is_known() {
        let vectors = Vectors::default();
        let rows = |rev, pins: &[&str]| EmbeddingRows {
            rev,
            vectors: pins.iter().map(|pin| ((*pin).to_owned(), vec![1, 2])).collect(),
        };
        assert!(vectors.is_empty());
        vectors.add(rows(3, &["a", "b"])).unwrap();
        vectors.add(rows(4, &["c"])).unwrap();
        let broken = EmbeddingRows { rev: 5, vectors: vec![("d".to_owned(), vec![])] };
        vectors.add(broken).unwrap();
        let mut pins: Vec<String> = vectors.kept.load().by_pin.keys().map(ToString::to_string).collect();
        pins.sort();
        assert_eq!((vectors.rev(), pins), (5, ["a", "b", "c"].map(str::to_owned).to_vec()));
        let many: Vec<String> = (0..EMBEDDED_PER_TENANT_MAX).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        vectors.add(rows(6, &many)).unwrap_err();
        vectors.replace(rows(6, &many));
        assert_eq!((vectors.rev(), vectors.kept.load().by_pin.len()), (6, many.len()));
    }
}
