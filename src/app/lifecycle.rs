//! How the program is told to stop, and how it takes leave.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

/// Cancelled by SIGTERM and SIGINT: as process 1 of a container, nobody else acts on them.
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

/// How long taking leave may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    /// How long connections are still taken.
    pub(super) delay: Duration,
    /// How long what is under way is waited for then.
    pub(super) drain: Duration,
}

/// Takes leave in two steps: first nobody new is sent here any more, then, after a delay, nobody is taken. Gives the
/// token of the second one.
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
