//! What requests to one upstream learn about it, shared by all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::breaker::{Admission, Breaker, BreakerRules, BreakerState};
use super::error::{FailureKind, UpstreamError};
use super::post::Reply;

/// The breaker of one upstream, and those who wait for its probe.
pub(super) struct Health {
    breaker: Mutex<Breaker>,
    probed: Notify,
}

impl Health {
    pub(super) fn new(rules: BreakerRules) -> Self {
        Self { breaker: Mutex::new(Breaker::new(rules)), probed: Notify::new() }
    }

    /// What may be sent now; [`Admission::Probe`] is given to one asker only.
    pub(super) fn admit(&self) -> Admission {
        self.breaker().admit(Instant::now())
    }

    /// What becomes of calls now.
    pub(super) fn state(&self) -> BreakerState {
        self.breaker().state()
    }

    /// Whether calls may be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.breaker().is_closed()
    }

    /// Waits until the probe under way has ended, or something else has shown that the upstream lives.
    pub(super) async fn wait_for_probe(&self) {
        let probed = self.probed.notified();
        tokio::pin!(probed);
        // from here on no end is missed; one that was before is seen in the state
        probed.as_mut().enable();
        if self.breaker().is_probing() {
            probed.await;
        }
    }

    /// A tool call's exchange that began then has ended like this.
    pub(super) fn called(&self, began: Instant, ended: &Result<Reply, UpstreamError>) {
        match Verdict::of(ended) {
            Verdict::Answered => self.change(Breaker::answered),
            Verdict::Failed => self.failed(began),
            Verdict::Nothing => {}
        }
    }

    /// A listing has ended like this. That its content is refused says nothing about calls.
    pub(super) fn listed<T>(&self, ended: &Result<T, UpstreamError>) {
        match ended {
            Ok(_) => self.change(|breaker| breaker.alive(Instant::now())),
            Err(error)
                if matches!(
                    error.kind,
                    FailureKind::Unreachable | FailureKind::Lost | FailureKind::Timeout
                ) =>
            {
                self.failed(Instant::now());
            }
            Err(_) => {}
        }
    }

    /// A request that began then was not answered in time, or failed.
    pub(super) fn failed(&self, began: Instant) {
        if self.breaker().failed(began, Instant::now(), chance()) {
            tracing::debug!("an upstream failed several times in a row and is left alone for a while");
        }
    }

    /// As new.
    pub(super) fn reset(&self) {
        self.change(Breaker::reset);
    }

    #[cfg(test)]
    pub(super) fn is_resting(&self) -> bool {
        self.breaker().is_resting(Instant::now())
    }

    fn change(&self, how: impl FnOnce(&mut Breaker)) {
        let mut breaker = self.breaker();
        let was_probing = breaker.is_probing();
        how(&mut breaker);
        drop(breaker);
        if was_probing {
            self.probed.notify_waiters();
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A probe under way. Dropped without a sign of life, it has failed.
pub(super) struct Probe(pub(super) Arc<Health>);

impl Probe {
    /// The upstream gave a sign of life.
    pub(super) fn worked(self) {
        self.0.change(|breaker| breaker.alive(Instant::now()));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.change(|breaker| breaker.probe_failed(Instant::now(), chance()));
    }
}

/// What the end of an exchange says about an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It works.
    Answered,
    /// It does not.
    Failed,
    /// It is there; this one request was not to its taste.
    Nothing,
}

impl Verdict {
    fn of(ended: &Result<Reply, UpstreamError>) -> Self {
        match ended {
            Ok(Reply { answer: Some(_), .. }) => Self::Answered,
            Ok(Reply { status, .. }) if is_about_the_request(*status) => Self::Nothing,
            Ok(_) => Self::Failed,
            Err(error) => match error.kind {
                // somebody else has told of it
                _ if error.is_shared => Self::Nothing,
                FailureKind::Unreachable | FailureKind::EgressRefused | FailureKind::Timeout | FailureKind::Lost | FailureKind::Invalid => {
                    Self::Failed
                }
                FailureKind::TooLarge
                | FailureKind::Crowded
                | FailureKind::Overloaded
                | FailureKind::Resting { .. }
                // it has pauses of its own, and somebody else has told of its end
                | FailureKind::NotRunning { .. }
                | FailureKind::NoPlace
                | FailureKind::NoRounds
                | FailureKind::Unsendable
                | FailureKind::Locked => Self::Nothing,
            },
        }
    }
}

/// HTTP errors that the next request, being another one, may well not get: somebody who asks for nonsense
/// again and again must not cut off those who do not.
fn is_about_the_request(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 409 | 411 | 413..=417 | 422 | 431)
}

/// Evenly from 0 to 1. Without a source of chance rests are not spread, which is all that is lost.
fn chance() -> f64 {
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}
