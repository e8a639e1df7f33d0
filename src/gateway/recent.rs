//! Answers that are kept for some seconds: each is made once, however many ask for it meanwhile.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::error::GatewayError;
use super::kept::{Kept, Owned};

/// Longest wait for an answer that another request makes.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Place of an answer.
#[derive(Debug)]
struct Slot<V> {
    /// Held by the request that makes the answer.
    turn: tokio::sync::Mutex<()>,
    made: Mutex<Option<(Instant, V)>>,
}

impl<V: Clone> Slot<V> {
    fn younger_than(&self, age: Duration) -> Option<V> {
        let made = self.made.lock();
        made.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, value)| value.clone())
    }
}

/// Answers by key, each kept for the same time. Keys count against their tenants.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    age_max: Duration,
    slots: Mutex<Kept<K, Arc<Slot<V>>>>,
}

impl<K: Clone + Eq + Hash + Owned, V: Clone> Recent<K, V> {
    /// Creates an empty store of at most `entries_max` answers, each kept for `age_max`.
    pub(super) fn new(age_max: Duration, entries_max: usize) -> Recent<K, V> {
        Recent { age_max, slots: Mutex::new(Kept::new(entries_max, entries_max)) }
    }

    /// Returns the answer that is kept for a key, or else makes it.
    ///
    /// # Errors
    /// Error of `make`, which is not kept; [`GatewayError::Busy`] if another request has been making the answer for long.
    pub(super) async fn get(
        &self,
        key: K,
        make: impl Future<Output = Result<V, GatewayError>>,
    ) -> Result<V, GatewayError> {
        let slot = self.slot(key);
        if let Some(value) = slot.younger_than(self.age_max) {
            return Ok(value);
        }
        let busy = |_| GatewayError::Busy("the same question is being answered; try again in a few seconds");
        let _turn = timeout(WAIT_MAX, slot.turn.lock()).await.map_err(busy)?;
        if let Some(value) = slot.younger_than(self.age_max) {
            return Ok(value);
        }
        let value = make.await?;
        *slot.made.lock() = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    fn slot(&self, key: K) -> Arc<Slot<V>> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot { turn: tokio::sync::Mutex::default(), made: Mutex::new(None) });
        slots.put(key, Arc::clone(&slot), 1);
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::TenantId;

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct OfTenant(u128);

    impl Owned for OfTenant {
        fn tenant(&self) -> TenantId {
            TenantId(Uuid::from_u128(self.0))
        }
    }

    #[tokio::test]
    async fn thirty_who_ask_get_one_answer() {
        let (recent, made) = (Recent::new(Duration::from_secs(60), 100), AtomicUsize::new(0));
        let ask = |tenant| {
            recent.get(OfTenant(tenant), async {
                tokio::task::yield_now().await;
                Ok(made.fetch_add(1, Ordering::Relaxed) + 1)
            })
        };
        let answers = join_all((0..30).map(|_| ask(1))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == 1));
        assert_eq!(ask(2).await.unwrap(), 2, "another tenant has an answer of its own");
        assert_eq!(ask(1).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn old_answers_and_failures_are_made_again() {
        let made = AtomicUsize::new(0);
        let old = Recent::new(Duration::ZERO, 100);
        for expected in 0..2 {
            let answer = old.get(OfTenant(1), async { Ok(made.fetch_add(1, Ordering::Relaxed)) }).await;
            assert_eq!(answer.unwrap(), expected);
        }
        let recent = Recent::new(Duration::from_secs(60), 100);
        let failed = recent.get(OfTenant(1), async { Err(GatewayError::Unavailable) }).await;
        assert!(matches!(failed, Err(GatewayError::Unavailable)));
        let gone = timeout(Duration::from_millis(5), recent.get(OfTenant(1), std::future::pending())).await;
        assert!(gone.is_err(), "who gave up holds nothing");
        assert_eq!(recent.get(OfTenant(1), async { Ok(1) }).await.unwrap(), 1);
    }
}
