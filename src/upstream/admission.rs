//! Who gets to an upstream, and when: callers through the breaker and the queue, the gateway's own questions
//! past both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::breaker::Admission;
use super::connection::Connection;
use super::error::{FailureKind, UpstreamError};
use super::gate::overloaded;
use super::health::Probe;
use super::link::Link;
use super::sent::Sent;

/// Longest time of a probe, opening a connection and a session included. Callers wait for it.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(5);

impl Connection {
    /// Runs a caller's piece of work under the breaker, the concurrency cap and a deadline.
    pub(super) async fn within<T, F: Future<Output = Result<T, UpstreamError>>>(
        &self,
        limit: Duration,
        sent: &Sent,
        work: impl FnOnce() -> F,
    ) -> Result<T, UpstreamError> {
        let (link, began) = (self.link()?, Instant::now());
        let entered = AtomicBool::new(false);
        let admitted = async {
            let _permit = self.admit(link).await?;
            entered.store(true, Ordering::Relaxed);
            work().await
        };
        match timeout(limit, admitted).await {
            Ok(ended) => ended,
            Err(_) if !entered.load(Ordering::Relaxed) => Err(overloaded()),
            Err(_) => {
                self.health.failed(began);
                Err(UpstreamError::timeout(sent.is_dispatched()))
            }
        }
    }

    /// Runs a question of the gateway's own under a deadline. It waits for no caller: connections are kept
    /// free for it, and it is how an upstream that was given up is found again. One at a time in each lane.
    pub(super) async fn aside<T, F: Future<Output = Result<T, UpstreamError>>>(
        &self,
        lane: &Mutex<()>,
        limit: Duration,
        work: impl FnOnce(Arc<Sent>) -> F,
    ) -> Result<T, UpstreamError> {
        let sent = Arc::<Sent>::default();
        let alone = async {
            let _turn = lane.lock().await;
            work(Arc::clone(&sent)).await
        };
        timeout(limit, alone).await.unwrap_or_else(|_| Err(UpstreamError::timeout(sent.is_dispatched())))
    }

    /// Waits for a turn; the caller bounds the time. A call that queued while the upstream was given up is
    /// not sent.
    async fn admit(&self, link: &Arc<Link>) -> Result<SemaphorePermit<'_>, UpstreamError> {
        loop {
            self.pass_breaker(link).await?;
            if let Some(permit) = self.gate.try_enter() {
                return Ok(permit);
            }
            let permit = self.gate.enter().await?;
            if self.health.is_closed() {
                return Ok(permit);
            }
        }
    }

    /// Returns when calls may be sent. Whoever comes first after a rest has a probe sent, and waits for its
    /// end like everybody else who comes meanwhile.
    async fn pass_breaker(&self, link: &Arc<Link>) -> Result<(), UpstreamError> {
        loop {
            match self.health.admit() {
                Admission::Open => return Ok(()),
                Admission::Rest(rest) => {
                    let retry_s = u32::try_from(rest.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
                    return Err(UpstreamError::unsent(FailureKind::Resting { retry_s }, ""));
                }
                Admission::Probe => self.send_probe(link),
                Admission::Wait => {}
            }
            let _place = self.gate.place()?;
            self.health.wait_for_probe().await;
        }
    }

    /// Sends a probe from a task of its own: a caller who gives up must not end it.
    fn send_probe(&self, link: &Arc<Link>) {
        let (probe, link) = (Probe(Arc::clone(&self.health)), Arc::clone(link));
        let limit = PROBE_WAIT_MAX.min(self.limits.call_timeout);
        tokio::spawn(async move {
            if matches!(timeout(limit, link.is_alive()).await, Ok(Ok(true))) {
                probe.worked();
            }
        });
    }
}
