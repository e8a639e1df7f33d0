//! Work that finishes whether or not it is awaited.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Work in the place that it keeps to its end.
pub(super) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that outlives its waiter. While it is awaited it is polled in place, without a hand-over between threads.
/// Dropped unfinished (a lost connection), it goes on in a task of its own. Either way it counts as under way.
pub struct Outlive<T: Send + 'static> {
    counted: TaskTrackerToken,
    /// Cancelled when the waiter is lost; `None` if the work need not know.
    lost: Option<CancellationToken>,
    work: Option<Work<T>>,
}

impl<T: Send + 'static> Outlive<T> {
    pub(super) fn new(tasks: &TaskTracker, work: impl Future<Output = T> + Send + 'static) -> Outlive<T> {
        Outlive::boxed(tasks, Box::pin(work))
    }

    pub(super) fn boxed(tasks: &TaskTracker, work: Work<T>) -> Outlive<T> {
        Outlive { counted: tasks.token(), lost: None, work: Some(work) }
    }

    /// Cancels `lost` when this future is dropped unfinished, so that the work can react.
    pub(super) fn telling(self, lost: CancellationToken) -> Outlive<T> {
        Outlive { counted: self.counted.clone(), lost: Some(lost), work: self.into_work() }
    }

    /// Moves the work to a task of its own, at its own pace. The returned future yields its outcome.
    pub fn apart(mut self) -> Apart<T> {
        let (ending, ended) = oneshot::channel();
        if let Some(work) = self.work.take() {
            self.counted.task_tracker().spawn(async move {
                // the work goes on even if nobody waits for its outcome
                drop(ending.send(work.await));
            });
        }
        Apart { ended, _lost: self.lost.take().map(CancellationToken::drop_guard) }
    }

    fn into_work(mut self) -> Option<Work<T>> {
        self.work.take()
    }
}

/// Outcome of work in a task of its own; `None` if the work panicked. If this is dropped, the work goes on, and its `lost`
/// token is cancelled.
pub struct Apart<T> {
    ended: oneshot::Receiver<T>,
    _lost: Option<DropGuard>,
}

impl<T> Future for Apart<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.ended).poll(context).map(Result::ok)
    }
}

impl<T: Send + 'static> Future for Outlive<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // taken out while it runs, so that work that panicked is not polled again
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        match work.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => {
                self.work = Some(work);
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for Outlive<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if let Some(lost) = &self.lost {
            lost.cancel();
        }
        if Handle::try_current().is_ok() {
            self.counted.task_tracker().spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn dropped_work_goes_on_to_its_end() {
        let tasks = TaskTracker::new();
        let (go, done) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (wait, flag) = (Arc::clone(&go), Arc::clone(&done));
        let mut work = Outlive::new(&tasks, async move {
            wait.notified().await;
            flag.store(true, Ordering::SeqCst);
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        assert!(!done.load(Ordering::SeqCst));
        go.notify_one();
        tasks.close();
        tasks.wait().await;
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn work_apart_goes_on_unwatched_and_is_told_of_its_loss() {
        let tasks = TaskTracker::new();
        let (told, token) = (CancellationToken::new(), CancellationToken::new());
        let (done, lost) = (told.clone(), token.clone());
        let work = Outlive::new(&tasks, async move {
            lost.cancelled().await;
            done.cancel();
        });
        let apart = work.telling(token).apart();
        assert_eq!(tasks.len(), 1);
        drop(apart);
        told.cancelled().await;
        assert_eq!(Outlive::new(&tasks, async { 7 }).apart().await, Some(7));
    }

    #[tokio::test]
    async fn awaited_work_needs_no_task() {
        let tasks = TaskTracker::new();
        assert_eq!(Outlive::new(&tasks, async { 7 }).await, 7);
        assert!(tasks.is_empty());
    }
}
