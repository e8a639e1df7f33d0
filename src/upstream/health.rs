//! Health of one upstream, as its requests find it; shared by all of them.

use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::breaker::{Admission, Breaker, BreakerRules, BreakerState};
use super::error::{FailureKind, UpstreamError};
use super::post::Reply;
use crate::domain::backoff::chance;

/// Circuit breaker of one upstream, and the notification of callers that wait for its probe.
pub(super) struct Health {
    breaker: Mutex<Breaker>,
    probed: Notify,
}

impl Health {
    pub(super) fn new(rules: BreakerRules) -> Self {
        Self { breaker: Mutex::new(Breaker::new(rules)), probed: Notify::new() }
    }

    /// Returns whether a request may be sent now. Only one caller at a time gets [`Admission::Probe`].
    pub(super) fn admit(&self) -> Admission {
        self.breaker.lock().admit(Instant::now())
    }

    /// Returns the state of the circuit breaker.
    pub(super) fn state(&self) -> BreakerState {
        self.breaker.lock().state()
    }

    /// Returns whether calls may be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.breaker.lock().is_closed()
    }

    /// Waits until the probe under way has ended, or something else has shown that the upstream lives.
    pub(super) async fn wait_for_probe(&self) {
        let probed = self.probed.notified();
        tokio::pin!(probed);
        // no end of a probe is missed from here on; an earlier one shows in the state
        probed.as_mut().enable();
        if self.breaker.lock().is_probing() {
            probed.await;
        }
    }

    /// Records the end of a call's exchange that began at `began`.
    pub(super) fn called(&self, began: Instant, ended: &Result<Reply, UpstreamError>) {
        match Verdict::of(ended) {
            Verdict::Answered => self.change(Breaker::answered),
            Verdict::Failed => self.failed(began),
            Verdict::Nothing => {}
        }
    }

    /// Records the end of a listing or a ping. A refused or invalid answer says nothing about calls.
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

    /// Records that a request, begun at `began`, failed or was not answered in time.
    pub(super) fn failed(&self, began: Instant) {
        if self.breaker.lock().failed(began, Instant::now(), chance()) {
            tracing::debug!("an upstream failed several times in a row and is left alone for a while");
        }
    }

    /// Closes the circuit breaker and forgets all failures.
    pub(super) fn reset(&self) {
        self.change(Breaker::reset);
    }

    #[cfg(test)]
    pub(super) fn is_resting(&self) -> bool {
        self.breaker.lock().is_resting(Instant::now())
    }

    fn change(&self, how: impl FnOnce(&mut Breaker)) {
        let mut breaker = self.breaker.lock();
        let was_probing = breaker.is_probing();
        how(&mut breaker);
        drop(breaker);
        if was_probing {
            self.probed.notify_waiters();
        }
    }
}

/// Probe under way. Dropping it records a failure, unless [`Probe::worked`] was called.
pub(super) struct Probe(pub(super) Arc<Health>);

impl Probe {
    /// Records that the upstream gave a sign of life.
    pub(super) fn worked(self) {
        self.0.change(|breaker| breaker.alive(Instant::now()));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.change(|breaker| breaker.probe_failed(Instant::now(), chance()));
    }
}

/// Meaning of an exchange's end for the health of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The upstream works.
    Answered,
    /// The upstream does not work.
    Failed,
    /// Neither: the end says nothing about the health of the upstream.
    Nothing,
}

impl Verdict {
    fn of(ended: &Result<Reply, UpstreamError>) -> Self {
        match ended {
            Ok(Reply { answer: Some(_), .. }) => Self::Answered,
            Ok(Reply { status, .. }) if is_about_the_request(*status) => Self::Nothing,
            Ok(_) => Self::Failed,
            Err(error) => match error.kind {
                // the request that met the failure has recorded it
                _ if error.is_shared => Self::Nothing,
                FailureKind::Unreachable | FailureKind::EgressRefused | FailureKind::Timeout | FailureKind::Lost | FailureKind::Invalid => {
                    Self::Failed
                }
                FailureKind::TooLarge
                | FailureKind::Crowded
                | FailureKind::Overloaded
                | FailureKind::Resting { .. }
                // programs have their own backoff, and their end is recorded there
                | FailureKind::NotRunning { .. }
                | FailureKind::NoPlace
                | FailureKind::NoRounds
                | FailureKind::Unsendable
                | FailureKind::Locked => Self::Nothing,
            },
        }
    }
}

/// Returns whether an HTTP error is about the request alone: a caller that repeats bad requests must not cut off
/// others.
fn is_about_the_request(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 409 | 411 | 413..=417 | 422 | 431)
}
