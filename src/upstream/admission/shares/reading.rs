//! Processor time that requests and answers of one tenant may take from all tenants: the rate at which answers are
//! read, and permits for long work.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::nice;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::upstream::admission::pace::Pace;

/// Bytes of one tenant's answers that are read at once, plus [`READ_BYTES_PER_S`]. Reading faster would take the
/// processors from other tenants: on two of them it shows in everybody's latency.
const READ_BURST_BYTES: u32 = 16 * 1024 * 1024;
const READ_BYTES_PER_S: u32 = 64 * 1024 * 1024;
/// Largest text that is parsed without a permit, in bytes: at most about a millisecond of other requests' time.
pub(in crate::upstream) const INLINE_BYTES_MAX: usize = 256 * 1024;

/// Niceness of long work: it gets a tenth of the time of a serving thread, where both want the same processor.
const LOW_PRIORITY: i32 = 10;

/// Share of one tenant in processor time.
#[derive(Debug)]
pub(super) struct ReadingShare {
    pace: Mutex<Pace>,
    /// Permit for the tenant's one long piece of work at a time.
    turn: Semaphore,
    /// Permits for long work of all tenants, handed out in the order in which the tenants asked for them.
    places: Arc<Semaphore>,
}

impl ReadingShare {
    /// Creates the share of one tenant; `places` are the permits for long work of all tenants.
    pub(super) fn new(places: Arc<Semaphore>) -> Self {
        let pace = Mutex::new(Pace::new(READ_BURST_BYTES, READ_BYTES_PER_S));
        Self { pace, turn: Semaphore::new(1), places }
    }

    /// Counts `bytes` that were read against the tenant's rate; returns how long to wait before reading more.
    pub(super) fn take(&self, bytes: usize) -> Duration {
        self.pace.lock().take(bytes, Instant::now())
    }

    /// Runs long work at a low priority, one piece of the tenant at a time. Other tasks of the thread move to another
    /// thread meanwhile.
    pub(super) async fn in_turn<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        // neither semaphore is ever closed
        let _turn = self.turn.acquire().await.ok();
        let _place = self.places.acquire().await.ok();
        match Handle::current().runtime_flavor() {
            // the only thread has none to move its tasks to
            RuntimeFlavor::CurrentThread => work(),
            _ => block_in_place(|| at_low_priority(work)),
        }
    }

    /// Runs work whose time grows with `bytes`: at once if they are few, else as [`Self::in_turn`] does.
    pub(super) async fn aside<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        if bytes <= INLINE_BYTES_MAX {
            return work();
        }
        self.in_turn(work).await
    }
}

/// Lowers the priority of the current thread, for good: it yields to those that serve. The thread goes on even if that fails.
pub fn lower_priority() {
    let _lowered = nice(LOW_PRIORITY);
}

/// Runs work on a thread of its own, which yields to those that serve. A thread cannot raise its priority again, so
/// it ends with the work. If no thread can be started, the current one does the work.
fn at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut done = None;
    let started = thread::scope(|scope| {
        let (work, done) = (&mut work, &mut done);
        let lowered = move || {
            lower_priority();
            *done = work.take().map(|work| work());
        };
        thread::Builder::new().name("long-work".to_owned()).spawn_scoped(scope, lowered).map(|_| ())
    });
    match (started, work, done) {
        (_, _, Some(done)) => done,
        (_, Some(work), None) => work(),
        (_, None, None) => unreachable!("a panic of the work goes on in the scope"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    const LARGE: usize = INLINE_BYTES_MAX + 1;

    fn share(places: &Arc<Semaphore>) -> Arc<ReadingShare> {
        Arc::new(ReadingShare::new(Arc::clone(places)))
    }

    #[test]
    fn a_burst_is_free_and_the_rest_is_paced() {
        let share = share(&Arc::new(Semaphore::new(1)));
        assert_eq!(share.take(READ_BURST_BYTES as usize), Duration::ZERO);
        let early = share.take(READ_BYTES_PER_S as usize);
        assert!(early > Duration::from_millis(500) && early <= Duration::from_secs(1), "{early:?}");
    }

    /// Starts a long piece of work that ends once the sender is dropped; returns when it runs.
    async fn long_work(share: &Arc<ReadingShare>) -> (Sender<()>, JoinHandle<()>) {
        let (go, wait) = channel::<()>();
        let (running, runs) = tokio::sync::oneshot::channel();
        let share = Arc::clone(share);
        let work = tokio::spawn(async move {
            let held = move || {
                running.send(()).unwrap();
                wait.recv().unwrap_err();
            };
            share.aside(LARGE, held).await;
        });
        runs.await.unwrap();
        (go, work)
    }

    // one worker: were the long work to keep it, nothing else would run
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_work_holds_up_nobody_but_its_own_tenant() {
        let places = Arc::new(Semaphore::new(2));
        let (one, two) = (share(&places), share(&places));
        let (go, work) = long_work(&one).await;
        let own = Arc::clone(&one);
        let small = tokio::spawn(async move { own.aside(INLINE_BYTES_MAX, || 1).await });
        assert_eq!(timeout(Duration::from_secs(30), small).await.unwrap().unwrap(), 1);
        assert_eq!(two.aside(LARGE, || 2).await, 2);
        let mut waits = Box::pin(one.aside(LARGE, || 3));
        assert!(futures_util::poll!(&mut waits).is_pending(), "one at a time");
        drop(go);
        assert_eq!(waits.await, 3);
        work.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn tenants_take_turns() {
        let places = Arc::new(Semaphore::new(1));
        let (one, two) = (share(&places), share(&places));
        let (go, work) = long_work(&one).await;
        let done = Mutex::new(Vec::new());
        let piece = async |share: &ReadingShare, n| share.in_turn(|| done.lock().push(n)).await;
        let (mut first, mut next, mut other) =
            (Box::pin(piece(&one, 1)), Box::pin(piece(&one, 1)), Box::pin(piece(&two, 2)));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut next).is_pending());
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(go);
        work.await.unwrap();
        futures_util::future::join3(first, next, other).await;
        assert_eq!(*done.lock(), [2, 1, 1], "the other tenant's piece came up first");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_gives_the_turn_back() {
        let share = share(&Arc::new(Semaphore::new(1)));
        let own = Arc::clone(&share);
        let broken = tokio::spawn(async move { own.aside(LARGE, || panic!("broken")).await });
        assert!(broken.await.unwrap_err().is_panic());
        assert_eq!(share.aside(LARGE, || 3).await, 3);
    }
}
