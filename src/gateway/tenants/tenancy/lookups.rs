//! Look-ups of keys that no snapshot here has.
//!
//! All waiting keys are looked up together, one statement at a time. However many unknown keys are presented, they use one
//! connection, and a new key waits for at most two statements. A key that was not found is remembered shortly, until keys of
//! any tenant change.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::store::{FoundKey, Store, StoreError};

/// Most keys in one statement.
const BATCH: usize = 500;
/// Most keys waiting at once; further ones are refused.
const WAITING_MAX: usize = 16_384;
/// Longest wait for a look-up.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Time for which a key is remembered as unknown. This bounds the delay of a new key whose notice was lost.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// Most keys remembered as unknown; above it all of them are dropped.
const UNKNOWN_MAX: usize = 10_000;

/// Error: the look-up failed, took too long, or too many keys were waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct LookupUnavailable;

type Found = Result<Option<FoundKey>, LookupUnavailable>;

/// A key that waits to be looked up.
#[derive(Debug)]
struct Waiting {
    hash: [u8; 32],
    done: oneshot::Sender<Found>,
}

/// The look-ups of this replica. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Lookups(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// True while a task looks keys up.
    is_under_way: bool,
    /// Time at which each key was not found, by the key's hash.
    unknown: HashMap<[u8; 32], Instant>,
    /// Number of key changes that this replica has received.
    changes: u64,
}

impl Lookups {
    /// Notes that keys of some tenant have changed: no key counts as unknown any more.
    pub(in crate::gateway) fn keys_changed(&self) {
        let mut state = self.0.lock();
        state.changes += 1;
        state.unknown.clear();
    }

    /// Looks a key up by its digest.
    ///
    /// # Errors
    /// [`LookupUnavailable`] if the look-up failed, took too long, or too many keys were waiting.
    pub(in crate::gateway) async fn find(&self, store: &Store, hash: &[u8; 32]) -> Found {
        let (done, found) = oneshot::channel();
        {
            let mut state = self.0.lock();
            if state.unknown.get(hash).is_some_and(|since| since.elapsed() < UNKNOWN_FOR) {
                return Ok(None);
            }
            if state.waiting.len() >= WAITING_MAX {
                return Err(LookupUnavailable);
            }
            state.waiting.push_back(Waiting { hash: *hash, done });
            if !std::mem::replace(&mut state.is_under_way, true) {
                tokio::spawn(self.clone().run(store.clone()));
            }
        }
        match timeout(WAIT_MAX, found).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) | Err(_) => Err(LookupUnavailable),
        }
    }

    /// Looks keys up until none waits.
    async fn run(self, store: Store) {
        while let Some((batch, changes)) = self.next() {
            let hashes: Vec<&[u8]> = batch.iter().map(|waiting| waiting.hash.as_slice()).collect();
            let found = store.find_keys(&hashes).await;
            self.told(batch, changes, &found);
        }
    }

    /// Returns the next keys to look up, and the number of key changes so far; `None` if no key waits.
    fn next(&self) -> Option<(Vec<Waiting>, u64)> {
        let mut state = self.0.lock();
        // requests that were dropped do not wait any more
        state.waiting.retain(|waiting| !waiting.done.is_closed());
        let count = state.waiting.len().min(BATCH);
        state.is_under_way = count > 0;
        (count > 0).then(|| (state.waiting.drain(..count).collect(), state.changes))
    }

    fn told(&self, batch: Vec<Waiting>, changes: u64, found: &Result<Vec<([u8; 32], FoundKey)>, StoreError>) {
        let found: HashMap<[u8; 32], FoundKey> = match found {
            Ok(found) => found.iter().copied().collect(),
            Err(error) => {
                tracing::warn!(%error, "keys could not be looked up");
                for waiting in batch {
                    waiting.done.send(Err(LookupUnavailable)).ok();
                }
                return;
            }
        };
        let mut state = self.0.lock();
        // a key made meanwhile may have been looked up a moment too early
        let is_current = state.changes == changes;
        for Waiting { hash, done } in batch {
            let found = found.get(&hash).copied();
            if found.is_none() && is_current {
                if state.unknown.len() >= UNKNOWN_MAX {
                    state.unknown.clear();
                }
                state.unknown.insert(hash, Instant::now());
            }
            // the waiting request may have been dropped
            done.send(Ok(found)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(lookups: &Lookups, n: u8) -> oneshot::Receiver<Found> {
        let (done, found) = oneshot::channel();
        lookups.0.lock().waiting.push_back(Waiting { hash: [n; 32], done });
        found
    }

    #[test]
    fn what_was_not_found_is_noted_until_keys_change() {
        let lookups = Lookups::default();
        let mut told = waiting(&lookups, 1);
        let (batch, changes) = lookups.next().unwrap();
        lookups.told(batch, changes, &Ok(Vec::new()));
        assert_eq!(told.try_recv().unwrap(), Ok(None));
        assert!(lookups.0.lock().unknown.contains_key(&[1; 32]));
        lookups.keys_changed();
        assert!(lookups.0.lock().unknown.is_empty());
    }

    #[test]
    fn a_change_during_a_look_up_keeps_its_answer_from_being_noted() {
        let lookups = Lookups::default();
        let _told = waiting(&lookups, 1);
        let (batch, changes) = lookups.next().unwrap();
        lookups.keys_changed();
        lookups.told(batch, changes, &Ok(Vec::new()));
        assert!(lookups.0.lock().unknown.is_empty());
    }

    #[test]
    fn notes_and_statements_are_bounded_and_the_gone_are_not_looked_up() {
        let lookups = Lookups::default();
        drop(waiting(&lookups, 1));
        assert!(lookups.next().is_none());
        for hash in 0..UNKNOWN_MAX {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&hash.to_be_bytes());
            lookups.0.lock().unknown.insert(key, Instant::now());
        }
        let receivers: Vec<_> = (0..=BATCH).map(|_| waiting(&lookups, 255)).collect();
        let (batch, changes) = lookups.next().unwrap();
        assert_eq!((batch.len(), lookups.0.lock().waiting.len()), (BATCH, 1));
        lookups.told(batch, changes, &Ok(Vec::new()));
        assert_eq!(lookups.0.lock().unknown.len(), 1);
        drop(receivers);
    }
}
