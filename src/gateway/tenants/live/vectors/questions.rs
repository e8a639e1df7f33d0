//! Cache of the vectors of a tenant's queries, evicted by least recent use.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::search::Embedding;
use crate::upstream::Patience;

/// Most queries cached per tenant.
const QUESTIONS_MAX: usize = 256;
/// Most queries of one tenant being embedded at the same time; further ones are ranked without vectors.
const ASKED_MAX: usize = 2;

/// Cached query vectors of one tenant, and its limits on requests to the service.
#[derive(Debug)]
pub(in crate::gateway) struct Questions {
    known: Mutex<Known>,
    asked: Arc<Semaphore>,
    pub(in crate::gateway) patience: Patience,
}

#[derive(Debug, Default)]
struct Known {
    /// Logical clock, which advances with every access.
    now: u64,
    by_text: HashMap<String, (u64, Arc<Embedding>)>,
}

impl Default for Questions {
    fn default() -> Self {
        Questions {
            known: Mutex::default(),
            asked: Arc::new(Semaphore::new(ASKED_MAX)),
            patience: Patience::default(),
        }
    }
}

impl Questions {
    /// Returns the cached vector of a query.
    pub(in crate::gateway) fn find(&self, text: &str) -> Option<Arc<Embedding>> {
        let mut known = self.known.lock();
        known.now += 1;
        let now = known.now;
        let (asked, vector) = known.by_text.get_mut(text)?;
        *asked = now;
        Some(Arc::clone(vector))
    }

    /// Caches the vector of a query.
    pub(in crate::gateway) fn keep(&self, text: String, vector: Arc<Embedding>) {
        let mut known = self.known.lock();
        known.now += 1;
        let now = known.now;
        known.by_text.insert(text, (now, vector));
        if known.by_text.len() > QUESTIONS_MAX
            && let Some(oldest) = known.by_text.iter().min_by_key(|(_, (asked, _))| *asked)
        {
            let oldest = oldest.0.clone();
            known.by_text.remove(&oldest);
        }
    }

    /// Returns a permit for a request to the service; `None` if all are taken.
    pub(in crate::gateway) fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.asked).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_asked_goes() {
        let questions = Questions::default();
        let vector = Arc::new(Embedding::of(&[1.0]).unwrap());
        for n in 0..QUESTIONS_MAX {
            questions.keep(n.to_string(), Arc::clone(&vector));
        }
        assert!(questions.find("0").is_some());
        questions.keep("one more".to_owned(), vector);
        assert!(questions.find("0").is_some() && questions.find("one more").is_some());
        assert!(questions.find("1").is_none() && questions.find("2").is_some());
        assert_eq!(questions.known.lock().by_text.len(), QUESTIONS_MAX);
    }
}
