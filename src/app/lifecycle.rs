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

/// Takes leave in two steps: first nobody new is sent here any more, then, after `delay`, nobody is taken. Gives the token
/// of the second one.
pub(super) fn leave_when_stopped(
    gateway: Arc<Gateway>,
    stop: CancellationToken,
    delay: Duration,
) -> CancellationToken {
    let closing = CancellationToken::new();
    let close = closing.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        gateway.begin_leaving();
        tokio::time::sleep(delay).await;
        gateway.begin_drain();
        close.cancel();
    });
    closing
}
