//! Graceful shutdown of the program.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

/// Returns a token that SIGTERM and SIGINT cancel. As process 1 of a container, the program must handle them itself.
pub(super) fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).context("signals cannot be handled")?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signals.recv().await;
            stop.cancel();
        });
    }
    Ok(stop)
}

/// Returns the SIGHUPs to this process from now on. Without that, the first one would end it.
pub(super) fn hangups() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("signals cannot be handled")
}

/// Reads the settings again at each SIGHUP, here and on the other replicas.
pub(super) fn reload_on_hangup(gateway: &Arc<Gateway>, mut hangups: Signal) {
    let gateway = Arc::clone(gateway);
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            // logged where it failed
            drop(gateway.upkeep.reload_everywhere().await);
        }
    });
}

/// Durations of a graceful shutdown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    /// Time for which new connections are still accepted.
    pub(super) delay: Duration,
    /// Longest wait for calls under way, once new connections are refused.
    pub(super) drain: Duration,
}

/// Shuts down in two steps. First, `/readyz` keeps new clients away; after a delay, new connections are refused.
/// Returns the token that the second step cancels.
pub(super) fn leave_when_stopped(
    gateway: Arc<Gateway>,
    stop: CancellationToken,
    leave: Leave,
) -> CancellationToken {
    let closing = CancellationToken::new();
    let close = closing.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        gateway.life.begin_leaving();
        let (delay_s, under_way) = (leave.delay.as_secs(), gateway.life.under_way());
        tracing::info!(delay_s, under_way, "told to stop: no new clients are to be sent here");
        tokio::time::sleep(leave.delay).await;
        gateway.life.begin_drain();
        let (drain_s, under_way) = (leave.drain.as_secs(), gateway.life.under_way());
        tracing::info!(drain_s, under_way, "draining: no new clients are taken, calls under way may finish");
        close.cancel();
    });
    closing
}
