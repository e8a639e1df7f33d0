//! Admission: how many calls run at once on one upstream, and how many may wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{Kind, UpstreamError};
use super::wires::Counted;

/// A concurrency cap with a bounded queue.
pub(super) struct Gate {
    permits: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Gate {
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            permits: Semaphore::new(running_max.clamp(1, Semaphore::MAX_PERMITS)),
            waiting: AtomicUsize::new(0),
            waiting_max,
        }
    }

    /// Enters, waiting in turn if the cap is reached. The caller bounds the wait.
    ///
    /// # Errors
    /// [`Kind::Overloaded`] if the queue is full.
    pub(super) async fn enter(&self) -> Result<SemaphorePermit<'_>, UpstreamError> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        // Counted before it is compared: many at once may all be refused, but never all be let in.
        let _waiting = Counted::new(&self.waiting);
        if self.waiting.load(Ordering::Relaxed) > self.waiting_max {
            return Err(UpstreamError::unsent(Kind::Overloaded, ""));
        }
        self.permits.acquire().await.map_err(|_| UpstreamError::unsent(Kind::Overloaded, ""))
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
