//! Admission of requests to an upstream. Callers pass the circuit breaker and the queue; the gateway's own requests
//! bypass both.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::upstream::admission::breaker::Admission;
use crate::upstream::admission::gate::overloaded;
use crate::upstream::admission::health::Probe;
use crate::upstream::connection::Connection;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::login::login_is_slow;
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::exchange::UpstreamExchange;
use crate::upstream::protocol::sent::{ASKED_MAX, Sent};

/// Shortest interval at which the deadline of a request is looked at while a person is asked.
const ASKED_TICK: Duration = Duration::from_millis(100);
/// Longest time of a probe, opening a connection and a session included. Callers wait for the probe.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(5);

impl Connection {
    /// Runs a caller's request under the circuit breaker, the concurrency cap and the deadline `limit`, which questions
    /// to a person put off by as long as they are open, at most [`ASKED_MAX`].
    pub(in crate::upstream) async fn within<T, F: Future<Output = Result<T, UpstreamError>>>(
        &self,
        limit: Duration,
        (sent, of): (&Sent, ExchangeFor),
        work: impl FnOnce() -> F,
    ) -> Result<T, UpstreamError> {
        let (link, began) = (self.link()?, Instant::now());
        let (entered, waits_for_login) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut admitted = pin!(async {
            let _permit = self.admit(link).await?;
            if let Some(login) = link.login().filter(|login| !login.is_open(of)) {
                waits_for_login.store(true, Ordering::Relaxed);
                login.opened(of).await?;
            }
            entered.store(true, Ordering::Relaxed);
            work().await
        });
        let mut left = limit;
        let ended = loop {
            let ended = timeout(left, admitted.as_mut()).await;
            if ended.is_ok() {
                break ended;
            }
            // time in which a person is asked does not pass
            left = (limit + sent.asked().min(ASKED_MAX)).saturating_sub(began.elapsed());
            if left.is_zero() {
                break ended;
            }
            if sent.is_asking() {
                left = left.max(ASKED_TICK);
            }
        };
        match ended {
            Ok(ended) => ended,
            Err(_) if !entered.load(Ordering::Relaxed) => match waits_for_login.load(Ordering::Relaxed) {
                // says nothing about the server
                true => Err(login_is_slow()),
                false => Err(overloaded()),
            },
            Err(_) => {
                self.health.failed(began);
                Err(UpstreamError::timeout(sent.is_dispatched()))
            }
        }
    }

    /// Runs a request of the gateway's own within `limit`, past the circuit breaker and the queue. Connections are
    /// reserved for such requests, since they find out whether a failed upstream is back. Each `lane` runs one at a
    /// time.
    pub(in crate::upstream) async fn aside<T, F: Future<Output = Result<T, UpstreamError>>>(
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

    /// Waits for a permit to send a call; the caller bounds the time. A call that was queued when the circuit breaker
    /// opened has to pass the breaker again.
    async fn admit(&self, link: &Arc<dyn UpstreamExchange>) -> Result<SemaphorePermit<'_>, UpstreamError> {
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

    /// Waits until the circuit breaker lets calls pass; fails at once during its backoff. The first caller after the
    /// backoff starts a probe; that caller and all later ones wait for its end.
    async fn pass_breaker(&self, link: &Arc<dyn UpstreamExchange>) -> Result<(), UpstreamError> {
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

    /// Sends a probe from a task of its own, so that a caller that gives up does not end the probe.
    fn send_probe(&self, link: &Arc<dyn UpstreamExchange>) {
        let (probe, link) = (Probe(Arc::clone(&self.health)), Arc::clone(link));
        let limit = PROBE_WAIT_MAX.min(self.limits.call_timeout);
        tokio::spawn(async move {
            if matches!(timeout(limit, link.is_alive()).await, Ok(Ok(true))) {
                probe.worked();
            }
        });
    }
}
