//! Processor time that one tenant's answers may take from all tenants: the pace at which they are read, and turns to parse
//! large ones off the async workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::upstream::error::UpstreamError;
use crate::upstream::pace::Pace;

/// Bytes that one tenant's answers are read at once, and each second after that. Reading faster would take the
/// processors from other tenants: on two of them it shows in everybody's latency.
const READ_BURST_BYTES: u32 = 16 * 1024 * 1024;
const READ_BYTES_PER_S: u32 = 64 * 1024 * 1024;
/// Largest answer that is parsed by the thread that read it, in bytes: at most about a millisecond of other requests' time.
pub(in crate::upstream) const INLINE_BYTES_MAX: usize = 256 * 1024;

/// One tenant's share of the time for reading and parsing answers.
#[derive(Debug)]
pub(super) struct ReadingShare {
    pace: Mutex<Pace>,
    /// One large answer of the tenant is worked on at a time.
    turn: Arc<Semaphore>,
}

impl Default for ReadingShare {
    fn default() -> Self {
        let pace = Mutex::new(Pace::new(READ_BURST_BYTES, READ_BYTES_PER_S));
        Self { pace, turn: Arc::new(Semaphore::new(1)) }
    }
}

impl ReadingShare {
    /// Takes `bytes` that were read from the tenant's pace; returns how long to wait before reading more.
    pub(super) fn take(&self, bytes: usize) -> Duration {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).take(bytes, Instant::now())
    }

    /// Does work whose time grows with `bytes`: on this thread if they are few, else on a thread of its own, in turn. Returns
    /// `None` if the work panicked.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if bytes <= INLINE_BYTES_MAX {
            return Some(work());
        }
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok()?;
        // the turn ends with the work, also when nobody waits for it any more
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.ok()
    }

    /// Parses what an upstream sent, in the same way.
    ///
    /// # Errors
    /// Those of `parse`, and [`crate::upstream::Kind::Invalid`] if it panicked.
    pub(super) async fn parse<T: Send + 'static>(
        &self,
        body: Bytes,
        parse: impl FnOnce(&Bytes) -> Result<T, UpstreamError> + Send + 'static,
    ) -> Result<T, UpstreamError> {
        let done = self.aside(body.len(), move || parse(&body)).await;
        done.unwrap_or_else(|| Err(UpstreamError::invalid("the answer could not be read")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_is_paced() {
        let share = ReadingShare::default();
        assert_eq!(share.take(READ_BURST_BYTES as usize), Duration::ZERO);
        let early = share.take(READ_BYTES_PER_S as usize);
        assert!(early > Duration::from_millis(500) && early <= Duration::from_secs(1), "{early:?}");
    }

    #[tokio::test]
    async fn large_work_leaves_the_thread_and_takes_turns() {
        let share = Arc::new(ReadingShare::default());
        let here = thread::current().id();
        let small = share.aside(INLINE_BYTES_MAX, move || thread::current().id() == here).await;
        assert_eq!(small, Some(true));
        let (go, wait) = channel::<()>();
        let (first, second) = (Arc::clone(&share), Arc::clone(&share));
        let first = tokio::spawn(async move {
            let held = move || wait.recv().is_err() && thread::current().id() != here;
            first.aside(INLINE_BYTES_MAX + 1, held).await
        });
        // the first has its turn once none is left
        while share.turn.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let mut waits = Box::pin(second.aside(INLINE_BYTES_MAX + 1, || 2));
        assert!(futures_util::poll!(&mut waits).is_pending(), "one at a time");
        drop(go);
        assert_eq!(first.await.unwrap(), Some(true));
        assert_eq!(waits.await, Some(2));
        assert_eq!(share.aside(INLINE_BYTES_MAX + 1, || -> u8 { panic!("broken") }).await, None);
        assert_eq!(share.aside(INLINE_BYTES_MAX + 1, || 3).await, Some(3));
    }
}
