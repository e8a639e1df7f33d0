//! Open connections to one upstream: a stack of idle ones under a cap.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::upstream::admission::gate::CountedOne;
use crate::upstream::admission::shares::MemoryHold;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::wire::Wire;

/// Opens, lends and keeps connections to one upstream.
pub(in crate::upstream) struct Wires {
    dialer: Dialer,
    uri: Uri,
    connect_timeout: Duration,
    idle_timeout: Duration,
    /// Permits of open connections, idle or not.
    open: Arc<Semaphore>,
    /// Callers that wait for a permit.
    waiting: AtomicUsize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// Idle connections, the most recently used last: it is the likeliest to be still open.
    stack: Vec<Wire>,
    /// Whether the task that closes aged connections runs.
    is_swept: bool,
}

impl Wires {
    pub(in crate::upstream) fn new(dialer: Dialer, uri: Uri, open_max: usize, timeouts: Timeouts) -> Self {
        Self {
            dialer,
            uri,
            connect_timeout: timeouts.connect,
            idle_timeout: timeouts.idle,
            open: Arc::new(Semaphore::new(open_max.clamp(1, Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            idle: Mutex::default(),
        }
    }

    /// Returns an idle connection, or opens one. Waits while the cap is reached; the caller bounds the wait.
    pub(in crate::upstream) async fn take(self: &Arc<Self>) -> Result<Lease, UpstreamError> {
        while let Some(mut wire) = self.pop() {
            if wire.is_usable() {
                return Ok(self.lease(wire, WireOrigin::Idle));
            }
        }
        let permits = Arc::clone(&self.open);
        let slot = match Arc::clone(&permits).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                let _waiting = CountedOne::new(&self.waiting);
                permits
                    .acquire_owned()
                    .await
                    .map_err(|_| UpstreamError::unsent(FailureKind::Unreachable, "closed"))?
            }
        };
        let dialed = self.dialer.dial(&self.uri, self.connect_timeout).await?;
        Ok(self.lease(Wire::new(dialed, slot).await?, WireOrigin::New))
    }

    /// Runs work whose time grows with `bytes`: at once if they are few, else as long work of the tenant.
    pub(in crate::upstream) async fn aside<T: Send>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        self.dialer.share.aside(bytes, work).await
    }

    fn lease(self: &Arc<Self>, wire: Wire, origin: WireOrigin) -> Lease {
        Lease { wire, origin, home: Arc::clone(self) }
    }

    fn pop(&self) -> Option<Wire> {
        let wire = self.idle.lock().stack.pop()?;
        if wire.idle_since.elapsed() < self.idle_timeout {
            return Some(wire);
        }
        // The youngest has aged, so all have; they close outside the lock.
        drop(std::mem::take(&mut self.idle.lock().stack));
        None
    }

    fn give_back(self: &Arc<Self>, mut wire: Wire) {
        // A caller waits to open a connection, for which it needs this one's permit.
        if self.waiting.load(Ordering::Relaxed) > 0 || !wire.is_usable() {
            return;
        }
        wire.idle_since = Instant::now();
        let mut idle = self.idle.lock();
        idle.stack.push(wire);
        if !std::mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
    }

    /// Closes connections that were idle for too long. Returns true if none is left to watch.
    fn expire(&self) -> bool {
        let mut idle = self.idle.lock();
        let fresh = idle.stack.partition_point(|wire| wire.idle_since.elapsed() >= self.idle_timeout);
        let aged: Vec<Wire> = idle.stack.drain(..fresh).collect();
        idle.is_swept = !idle.stack.is_empty();
        let is_done = !idle.is_swept;
        drop(idle);
        drop(aged);
        is_done
    }

    #[cfg(test)]
    pub(in crate::upstream) fn idle_count(&self) -> usize {
        self.idle.lock().stack.len()
    }

    #[cfg(test)]
    pub(in crate::upstream) fn open_permits(&self) -> usize {
        self.open.available_permits()
    }
}

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Timeouts {
    pub(in crate::upstream) connect: Duration,
    pub(in crate::upstream) idle: Duration,
}

/// Closes aged connections until none is idle or the owner is gone.
async fn sweep(wires: Weak<Wires>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if wires.upgrade().is_none_or(|wires| wires.expire()) {
            return;
        }
    }
}

/// Origin of a lent connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum WireOrigin {
    /// New connection, opened for this request.
    New,
    /// Idle connection, which the upstream may have closed meanwhile.
    Idle,
}

/// Connection in use. Dropping it closes it: only [`Lease::give_back`] makes it idle again.
pub(in crate::upstream) struct Lease {
    pub(in crate::upstream) wire: Wire,
    pub(in crate::upstream) origin: WireOrigin,
    home: Arc<Wires>,
}

impl Lease {
    /// Returns a hold for the memory of an answer to this API key, or of the gateway itself without one.
    pub(in crate::upstream) fn memory(&self, key: Option<Uuid>) -> MemoryHold {
        self.home.dialer.share.answer(key)
    }

    /// Parses `bytes` that the upstream sent: at once if they are few, else as long work of the tenant.
    pub(in crate::upstream) async fn parse<T: Send>(
        &self,
        bytes: usize,
        parse: impl FnOnce() -> T + Send,
    ) -> T {
        self.home.aside(bytes, parse).await
    }

    /// Reads the next piece of a body, at its tenant's pace; returns `None` at the end.
    pub(in crate::upstream) async fn next(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, UpstreamError>> {
        self.wire.next(&self.home.dialer.share, body).await
    }

    /// Returns the connection to the stack. Its last body must have been read to the end.
    pub(in crate::upstream) fn give_back(self) {
        self.home.give_back(self.wire);
    }
}
