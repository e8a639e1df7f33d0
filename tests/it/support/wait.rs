//! Waiting for a condition, with a bound.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(15);

/// Asks until there is an answer. Panics when `bound` is over.
#[track_caller]
pub fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    bound: Duration,
    mut ask: impl FnMut() -> F,
) -> impl Future<Output = T> {
    let asked_at = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + bound;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(Instant::now() < deadline, "{asked_at}: waited {bound:?} in vain for {what}");
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Asks until the answer is the expected one. Panics with the last answer when `bound` is over.
#[track_caller]
pub fn settle<T: PartialEq + std::fmt::Debug, F: Future<Output = T>>(
    expected: T,
    bound: Duration,
    mut ask: impl FnMut() -> F,
) -> impl Future<Output = ()> {
    let asked_at = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + bound;
        loop {
            let answer = ask().await;
            if answer == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{asked_at}: after {bound:?} it was {answer:?} instead of {expected:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }
}
