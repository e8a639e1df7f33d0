//! Questions: somebody waits for their vectors, shortly, and not at all while they do not come.
//!
//! What may be the fault of a question costs only its own tenant the service's help; only what would be the same with
//! any question costs everybody's.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{EmbedError, Embedder, Fault};
use crate::domain::id::TenantId;
use crate::domain::search::Embedding;
use crate::upstream::breaker::{Admission, Breaker, BreakerRules};
use crate::upstream::error::UpstreamError;

/// Questions in a row that were not answered in time after which nobody waits for a while.
const RULES: BreakerRules =
    BreakerRules { failures_max: 3, rest_min: Duration::from_secs(1), rest_max: Duration::from_secs(30) };
/// How often it is logged at most that a tenant's are given up.
const TELL: Duration = Duration::from_secs(300);

/// A question, and what is waited for.
pub struct Question<'a, T> {
    /// Whose.
    pub tenant: TenantId,
    /// How its tenant's were answered lately.
    pub patience: &'a Patience,
    /// Its words.
    pub text: String,
    /// How long somebody waits.
    pub wait: Duration,
    /// Dropped when nobody waits any more: leave to ask, which is another's then.
    pub turn: T,
}

/// Whether questions are worth waiting for: those of a tenant, or of all.
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a question may be asked that needs the patience of both. Who is let through by one as a probe must not
    /// be held back by the other: nobody would say how it ended.
    fn admit(own: &Patience, all: &Patience, now: Instant) -> bool {
        let (mut own, mut all) = (own.state(), all.state());
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
        self.state().breaker.answered();
    }

    /// Something else went wrong with it.
    fn is_not_to_blame(&self, now: Instant) {
        self.state().breaker.alive(now);
    }

    /// Whether that is to be logged.
    fn failed(&self, began: Instant, now: Instant) -> bool {
        let chance = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
        let mut state = self.state();
        let has_opened = state.breaker.failed(began, now, chance);
        // a question that was let through to try it
        state.breaker.probe_failed(now, chance);
        let is_told = state.told.is_some_and(|told| now.saturating_duration_since(told) < TELL);
        if has_opened && !is_told {
            state.told = Some(now);
        }
        has_opened && !is_told
    }
}

impl Embedder {
    /// A question's vector; `None` at once while its tenant's, or all, are not answered. When nobody waits any more, that
    /// counts as a failure; the answer is still read if it is one of few, for whoever asks the same again.
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
            // it answers, be it that this question was not to its taste
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
