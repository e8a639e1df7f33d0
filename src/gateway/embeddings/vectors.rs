//! A tenant's vectors: those of its definitions, by pin, and those of its questions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::questions::Questions;
use crate::domain::search::Embedding;
use crate::gateway::catalog::Catalog;
use crate::store::{EMBEDDED_PER_TENANT_MAX, EmbeddingRows};

/// Vectors at one revision.
#[derive(Debug, Default)]
struct Kept {
    rev: i64,
    by_pin: HashMap<Arc<str>, Arc<Embedding>>,
}

/// Vectors in the order of what a catalogue lists.
#[derive(Debug)]
struct Placed {
    catalogue: Arc<Catalog>,
    kept: Arc<Kept>,
    vectors: Arc<[Option<Arc<Embedding>>]>,
}

/// More than a tenant may have.
#[derive(Debug)]
pub(super) struct TooMany;

/// All of a tenant's.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Vectors {
    kept: ArcSwap<Kept>,
    placed: Mutex<Option<Placed>>,
    pub(super) questions: Questions,
    pub(super) reloading: tokio::sync::Mutex<()>,
}

impl Vectors {
    /// The revision of the database that is known here.
    pub(in crate::gateway) fn rev(&self) -> i64 {
        self.kept.load().rev
    }

    /// Whether no definition has one.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.load().by_pin.is_empty()
    }

    /// Adds what was kept since. A definition that is gone keeps its vector here, it may come back.
    pub(super) fn add(&self, rows: EmbeddingRows) -> Result<(), TooMany> {
        let known = self.kept.load();
        let room = usize::try_from(EMBEDDED_PER_TENANT_MAX).unwrap_or(usize::MAX);
        if known.by_pin.len() + rows.vectors.len() > room {
            return Err(TooMany);
        }
        self.keep(known.by_pin.clone(), rows);
        Ok(())
    }

    /// Takes these for all there are.
    pub(super) fn replace(&self, rows: EmbeddingRows) {
        self.keep(HashMap::new(), rows);
    }

    fn keep(&self, mut by_pin: HashMap<Arc<str>, Arc<Embedding>>, rows: EmbeddingRows) {
        let read = |(pin, bytes): (String, Vec<u8>)| {
            Some((Arc::from(pin), Arc::new(Embedding::from_bytes(&bytes)?)))
        };
        by_pin.extend(rows.vectors.into_iter().filter_map(read));
        self.kept.store(Arc::new(Kept { rev: rows.rev, by_pin }));
    }

    /// Those of what `catalogue` lists; put in place once per catalogue and revision.
    pub(super) fn placed(&self, catalogue: &Arc<Catalog>) -> Arc<[Option<Arc<Embedding>>]> {
        let kept = self.kept.load_full();
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*placed
            && Arc::ptr_eq(&known.catalogue, catalogue)
            && Arc::ptr_eq(&known.kept, &kept)
        {
            return Arc::clone(&known.vectors);
        }
        let of = |pin: &str| kept.by_pin.get(pin).cloned();
        let vectors: Arc<[_]> = catalogue.listed().iter().map(|tool| of(tool.shape.pin())).collect();
        let catalogue = Arc::clone(catalogue);
        *placed = Some(Placed { catalogue, kept, vectors: Arc::clone(&vectors) });
        vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
