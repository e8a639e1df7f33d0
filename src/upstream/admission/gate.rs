//! Admission control of one upstream: bounds on running calls, on queued calls and on their wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::upstream::error::{FailureKind, UpstreamError};

/// Concurrency cap with a bounded queue.
pub(in crate::upstream) struct Gate {
    permits: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
    wait_max: Duration,
}

impl Gate {
    pub(in crate::upstream) fn new(running_max: usize, waiting_max: usize, wait_max: Duration) -> Self {
        Self {
            permits: Semaphore::new(running_max.clamp(1, Semaphore::MAX_PERMITS)),
            waiting: AtomicUsize::new(0),
            waiting_max,
            wait_max,
        }
    }

    /// Returns a permit if one is free at once.
    pub(in crate::upstream) fn try_enter(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Waits in the queue for a permit.
    ///
    /// # Errors
    /// [`FailureKind::Overloaded`] if the queue is full or no permit becomes free in time.
    pub(in crate::upstream) async fn enter(&self) -> Result<SemaphorePermit<'_>, UpstreamError> {
        let _place = self.place()?;
        match timeout(self.wait_max, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(overloaded()),
        }
    }

    /// Takes a slot in the queue, for a caller that waits for something other than a permit.
    ///
    ///
    /// # Errors
    /// [`FailureKind::Overloaded`] if the queue is full.
    pub(in crate::upstream) fn place(&self) -> Result<CountedOne<'_>, UpstreamError> {
        // Counted before it is compared: many at once may all be refused, but never all be let in.
        let place = CountedOne::new(&self.waiting);
        if self.waiting.load(Ordering::Relaxed) > self.waiting_max {
            return Err(overloaded());
        }
        Ok(place)
    }

    #[cfg(test)]
    pub(in crate::upstream) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    #[cfg(test)]
    pub(in crate::upstream) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Returns the error of a call that was not admitted in time.
pub(in crate::upstream) fn overloaded() -> UpstreamError {
    UpstreamError::unsent(FailureKind::Overloaded, "")
}

/// Guard that counts one while it lives.
pub(in crate::upstream) struct CountedOne<'a>(&'a AtomicUsize);

impl<'a> CountedOne<'a> {
    pub(in crate::upstream) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountedOne<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
