//! Health of one upstream, as its requests find it; shared by all of them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::domain::backoff::chance;
use crate::upstream::admission::breaker::{Admission, Breaker, BreakerRules, BreakerState};
use crate::upstream::error::{FailureKind, UpstreamError};

/// Circuit breaker of one upstream, and the notification of callers that wait for its probe.
pub(in crate::upstream) struct Health {
    breaker: Mutex<Breaker>,
    probed: Notify,
}

impl Health {
    pub(in crate::upstream) fn new(rules: BreakerRules) -> Self {
        Self { breaker: Mutex::new(Breaker::new(rules)), probed: Notify::new() }
    }

    /// Returns whether a request may be sent now. Only one caller at a time gets [`Admission::Probe`].
    pub(in crate::upstream) fn admit(&self) -> Admission {
        self.breaker.lock().admit(Instant::now())
    }

    /// Returns the state of the circuit breaker.
    pub(in crate::upstream) fn state(&self) -> BreakerState {
        self.breaker.lock().state()
    }

    /// Returns whether calls may be sent.
    pub(in crate::upstream) fn is_closed(&self) -> bool {
        self.breaker.lock().is_closed()
    }

    /// Waits until the probe under way has ended, or something else has shown that the upstream lives.
    pub(in crate::upstream) async fn wait_for_probe(&self) {
        let probed = self.probed.notified();
        tokio::pin!(probed);
        // no end of a probe is missed from here on; an earlier one shows in the state
        probed.as_mut().enable();
        if self.breaker.lock().is_probing() {
            probed.await;
        }
    }

    /// Records what the end of a call's exchange, which began at `began`, means.
    pub(in crate::upstream) fn called(&self, began: Instant, verdict: HealthVerdict) {
        match verdict {
            HealthVerdict::Answered => self.change(Breaker::answered),
            HealthVerdict::Failed => self.failed(began),
            HealthVerdict::Nothing => {}
        }
    }

    /// Records the end of a listing or a ping. A refused or invalid answer says nothing about calls.
    pub(in crate::upstream) fn listed<T>(&self, ended: &Result<T, UpstreamError>) {
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
    pub(in crate::upstream) fn failed(&self, began: Instant) {
        if self.breaker.lock().failed(began, Instant::now(), chance()) {
            tracing::debug!("an upstream failed several times in a row and is left alone for a while");
        }
    }

    /// Closes the circuit breaker and forgets all failures.
    pub(in crate::upstream) fn reset(&self) {
        self.change(Breaker::reset);
    }

    #[cfg(test)]
    pub(in crate::upstream) fn is_resting(&self) -> bool {
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
pub(in crate::upstream) struct Probe(pub(in crate::upstream) Arc<Health>);

impl Probe {
    /// Records that the upstream gave a sign of life.
    pub(in crate::upstream) fn worked(self) {
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
pub(in crate::upstream) enum HealthVerdict {
    /// The upstream works.
    Answered,
    /// The upstream does not work.
    Failed,
    /// Neither: the end says nothing about the health of the upstream.
    Nothing,
}
