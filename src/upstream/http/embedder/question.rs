//! Embedding of search questions, with a bounded wait and circuit breakers. A failure that the question may have
//! caused counts against its tenant alone; a failure of the service counts against all tenants.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{EmbedError, Embedder, Fault};
use crate::domain::backoff::chance;
use crate::domain::id::TenantId;
use crate::domain::search::Embedding;
use crate::upstream::admission::breaker::{Admission, Breaker, BreakerRules};
use crate::upstream::error::UpstreamError;

/// Rules of the circuit breakers: after this many unanswered questions in a row, no question is asked during a
/// backoff.
const RULES: BreakerRules =
    BreakerRules { failures_max: 3, rest_min: Duration::from_secs(1), rest_max: Duration::from_secs(30) };
/// Shortest interval between two log entries about the same circuit breaker.
const TELL: Duration = Duration::from_secs(300);

/// Search question that a caller waits for.
pub struct Question<'a, T> {
    /// Tenant that asks.
    pub tenant: TenantId,
    /// Circuit breaker for the questions of the tenant.
    pub patience: &'a Patience,
    /// Text of the question.
    pub text: String,
    /// Longest time to wait for the vector.
    pub wait: Duration,
    /// Permit to ask. Dropped when the wait has ended, so that another question can start.
    pub turn: T,
}

/// Circuit breaker for questions, of one tenant or of all tenants.
#[derive(Debug)]
pub struct Patience(Mutex<State>);

#[derive(Debug)]
struct State {
    breaker: Breaker,
    told: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Patience(Mutex::new(State { breaker: Breaker::new(RULES), told: None }))
    }
}

impl Patience {
    /// Returns whether both circuit breakers admit a question. If one of them refuses, neither changes: the end of a
    /// probe that only one admitted would never be reported.
    fn admit(own: &Patience, all: &Patience, now: Instant) -> bool {
        let (mut own, mut all) = (own.0.lock(), all.0.lock());
        let (mut own_then, mut all_then) = (own.breaker, all.breaker);
        for then in [&mut own_then, &mut all_then] {
            if matches!(then.admit(now), Admission::Rest(_) | Admission::Wait) {
                return false;
            }
        }
        (own.breaker, all.breaker) = (own_then, all_then);
        true
    }

    fn answered(&self) {
        self.0.lock().breaker.answered();
    }

    /// Records a failure with another cause, which counts as a sign of life for this circuit breaker.
    fn is_not_to_blame(&self, now: Instant) {
        self.0.lock().breaker.alive(now);
    }

    /// Records that a question failed. Returns whether to log it.
    fn failed(&self, began: Instant, now: Instant) -> bool {
        let chance = chance();
        let mut state = self.0.lock();
        let has_opened = state.breaker.failed(began, now, chance);
        // the question may have been the probe
        state.breaker.probe_failed(now, chance);
        let is_told = state.told.is_some_and(|told| now.saturating_duration_since(told) < TELL);
        if has_opened && !is_told {
            state.told = Some(now);
        }
        has_opened && !is_told
    }
}

impl Embedder {
    /// Returns the vector of a question; `None` at once while the circuit breaker of its tenant or of all tenants is
    /// open. The end of the wait counts as a failure. A late answer is still returned, for up to 4 questions at a
    /// time, so that a repeated question finds it.
    pub async fn embed_question<T: Send>(&self, question: Question<'_, T>) -> Option<Embedding> {
        let Question { tenant, patience, text, wait, turn } = question;
        let began = Instant::now();
        if !Patience::admit(patience, &self.patience, began) {
            return None;
        }
        let texts = [text];
        let mut asking = std::pin::pin!(self.embed(&texts));
        let ended = match timeout(wait, &mut asking).await {
            Ok(ended) => {
                self.learn(tenant, patience, began, ended.as_ref().err());
                ended
            }
            Err(_) => {
                let slow = EmbedError::NoAnswer(UpstreamError::timeout(true));
                self.learn(tenant, patience, began, Some(&slow));
                let _late = self.late.try_acquire().ok()?;
                drop(turn);
                asking.await
            }
        };
        ended.ok()?.pop()
    }

    fn learn(&self, tenant: TenantId, own: &Patience, began: Instant, error: Option<&EmbedError>) {
        let (all, now) = (&self.patience, Instant::now());
        let Some(error) = error.filter(|error| error.fault() != Fault::Texts) else {
            // the service works, even if it rejected this question
            own.answered();
            return all.answered();
        };
        if error.fault() == Fault::Service {
            own.is_not_to_blame(now);
            if all.failed(began, now) {
                tracing::warn!(%error, "searches go on without embeddings until the endpoint answers");
            }
        } else {
            all.is_not_to_blame(now);
            if own.failed(began, now) {
                tracing::warn!(%tenant, %error, "searches of a tenant go on without embeddings until the endpoint answers in time");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_failures_are_its_own() {
        let (now, all) = (Instant::now(), Patience::default());
        let (own, other) = (Patience::default(), Patience::default());
        let told: Vec<bool> = (0..3).map(|_| own.failed(now, now)).collect();
        assert_eq!(told, [false, false, true]);
        assert!(!Patience::admit(&own, &all, now) && Patience::admit(&other, &all, now));
        let later = now + RULES.rest_max;
        assert!(Patience::admit(&own, &all, later), "one is let through to try it");
        assert!(!Patience::admit(&own, &all, later), "one");
        own.is_not_to_blame(later);
        assert!(Patience::admit(&own, &all, later));
        assert!(!own.failed(later, later), "told already");
    }

    #[test]
    fn who_is_let_through_to_try_is_not_held_back() {
        let (now, all) = (Instant::now(), Patience::default());
        let own = Patience::default();
        for _ in 0..3 {
            own.failed(now, now);
        }
        let later = now + RULES.rest_max;
        for _ in 0..3 {
            all.failed(later, later);
        }
        assert!(!Patience::admit(&own, &all, later), "all rest");
        // had it been its tenant's try already, there would never be another
        assert!(Patience::admit(&own, &all, later + RULES.rest_max));
    }
}
