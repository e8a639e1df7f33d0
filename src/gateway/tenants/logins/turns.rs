//! Turns to verify signatures: bad tokens of one issuer take neither all processors, nor the turns of others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::verifiers::{SignatureVerdict, Verifiers};
use crate::domain::id::IssuerId;
use crate::domain::identity::SignatureCheck;
use crate::gateway::tenants::authenticate::AuthError;

/// Longest wait for a turn to verify a signature.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Most tokens of one issuer that are verified or wait for it; further ones are refused at once.
const TOKENS_MAX: usize = 256;
/// Issuers above which queues that nobody uses are forgotten.
const QUEUES_MAX: usize = 1000;

/// Permits for verifying signatures. Of each issuer, one token at a time competes for them, so that issuers take turns.
pub(super) struct VerifyTurns {
    permits: Semaphore,
    queues: Mutex<HashMap<IssuerId, Arc<IssuerQueue>>>,
    verifiers: Verifiers,
}

/// Queue of one issuer's tokens.
struct IssuerQueue {
    /// Places of the queue, the turn itself among them.
    places: Arc<Semaphore>,
    /// The right to compete with other issuers.
    turn: Arc<Semaphore>,
}

/// Permission to verify one signature, until it is dropped.
struct VerifyTurn<'a> {
    _permit: SemaphorePermit<'a>,
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl VerifyTurns {
    /// Creates turns of which as many are taken at the same time.
    pub(super) fn new(permits: usize) -> VerifyTurns {
        VerifyTurns {
            permits: Semaphore::new(permits),
            queues: Mutex::default(),
            verifiers: Verifiers::new(permits),
        }
    }

    /// Verifies a signature of an issuer's token, in its turn.
    ///
    /// # Errors
    /// [`AuthError::LoginsBusy`] as of [`Self::take`], or if calls leave no time for it.
    pub(super) async fn verify(
        &self,
        issuer: IssuerId,
        check: SignatureCheck,
    ) -> Result<SignatureVerdict, AuthError> {
        let _turn = self.take(issuer).await?;
        let verified = timeout(WAIT_MAX, self.verifiers.verify(check)).await;
        verified.map_err(|_| AuthError::LoginsBusy)
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// [`AuthError::LoginsBusy`] if too many tokens of the issuer wait, or the wait is too long.
    async fn take(&self, issuer: IssuerId) -> Result<VerifyTurn<'_>, AuthError> {
        let queue = self.queue(issuer);
        let place = Arc::clone(&queue.places).try_acquire_owned().map_err(|_| AuthError::LoginsBusy)?;
        let wait = async {
            let turn = Arc::clone(&queue.turn).acquire_owned().await.ok()?;
            let permit = self.permits.acquire().await.ok()?;
            Some(VerifyTurn { _permit: permit, _turn: turn, _place: place })
        };
        timeout(WAIT_MAX, wait).await.ok().flatten().ok_or(AuthError::LoginsBusy)
    }

    fn queue(&self, issuer: IssuerId) -> Arc<IssuerQueue> {
        let mut queues = self.queues.lock();
        if queues.len() >= QUEUES_MAX && !queues.contains_key(&issuer) {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        let new = || IssuerQueue {
            places: Arc::new(Semaphore::new(TOKENS_MAX)),
            turn: Arc::new(Semaphore::new(1)),
        };
        Arc::clone(queues.entry(issuer).or_insert_with(|| Arc::new(new())))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_flood_of_one_issuer_does_not_make_others_wait() {
        let turns = VerifyTurns::new(1);
        let [flooded, other] = [1, 2].map(|n| IssuerId(Uuid::from_u128(n)));
        let first = turns.take(flooded).await.unwrap();
        let mut flood: Vec<_> = (1..TOKENS_MAX).map(|_| Box::pin(turns.take(flooded))).collect();
        for waiting in &mut flood {
            assert!(waiting.now_or_never().is_none(), "there is one permit");
        }
        let refused = turns.take(flooded).now_or_never().expect("the queue is full");
        assert_eq!(refused.err(), Some(AuthError::LoginsBusy));
        let mut others = Box::pin(turns.take(other));
        assert!((&mut others).now_or_never().is_none(), "there is one permit");
        drop(first);
        // before all that wait in the queue of the first issuer
        assert!(others.now_or_never().expect("the next turn").is_ok());
        drop(flood);
        assert!(join_all([flooded, other].map(|issuer| turns.take(issuer))).now_or_never().is_none());
        assert!(turns.take(flooded).now_or_never().expect("all places are free again").is_ok());
    }
}
