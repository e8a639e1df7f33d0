//! Task of one watched server: its stream is opened, followed, and opened again.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::watches::{WatchKey, WatchOrder, Watches};
use crate::domain::backoff::{Backoff, chance};
use crate::upstream::{ResourceWatcher, WatchEnd};

/// Backoff between attempts to open a stream.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Duration after which a stream counts as good: the next failure is the first again.
const GOOD_LIFE: Duration = Duration::from_secs(30);
/// Pause before a server that announces no updates is tried again.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(600);
/// Time for which changes of the set of resources are gathered (debounce).
const GATHER: Duration = Duration::from_millis(50);

/// Reason why a server is not watched now.
enum Ended {
    /// Server that is reached in another way now, or of which nothing is to be watched.
    Moved,
    /// The stream ended, or could not be opened.
    Stream(WatchEnd),
}

impl Watches {
    /// Watches a server until nothing of it is to be watched.
    pub(super) async fn watch_server(&self, key: WatchKey, moved: &Notify) {
        let mut backoff = BACKOFF;
        while let Some(order) = self.order(&key) {
            let mut live = None;
            let ended = self.watch_once(&key, &order, moved, &mut live).await;
            backoff.worked_for(live.map_or(Duration::ZERO, |live: Instant| live.elapsed()), GOOD_LIFE);
            let pause = match &ended {
                Ended::Moved => continue,
                Ended::Stream(WatchEnd::Unsupported(_)) => UNSUPPORTED_PAUSE,
                Ended::Stream(WatchEnd::Lost(_)) => backoff.jittered(chance()),
            };
            if let Ended::Stream(end) = ended {
                tracing::debug!(tenant = %key.0, server = %key.1, ?end, ?pause, "resources are not watched");
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.is_elsewhere(&key, &order, moved) => {}
            }
        }
    }

    /// Opens a server's stream and follows it to its end. Notes in `live` when it was open.
    async fn watch_once(
        &self,
        key: &WatchKey,
        order: &WatchOrder,
        moved: &Notify,
        live: &mut Option<Instant>,
    ) -> Ended {
        let opened = {
            let _turn = self.opening.acquire().await;
            self.upstreams.watch_resources(&order.target, &order.uris).await
        };
        let mut watcher = match opened {
            Ok(watcher) => watcher,
            Err(end) => return Ended::Stream(end),
        };
        *live = Some(Instant::now());
        // nobody heard of earlier updates, so each resource counts as updated once
        self.updated(key, &order.uris);
        let mut known = order.uris.clone();
        loop {
            tokio::select! {
                next = watcher.next() => match next {
                    Ok(uri) => self.updated(key, [&uri]),
                    Err(end) => return Ended::Stream(end),
                },
                () = moved.notified() => {
                    sleep(GATHER).await;
                    let now = match self.order(key) {
                        Some(now) if now.has_target_of(order) => now,
                        _ => return Ended::Moved,
                    };
                    if let Err(end) = self.rewatch(key, &mut watcher, &now, &known).await {
                        return Ended::Stream(end);
                    }
                    known = now.uris;
                }
            }
        }
    }

    async fn rewatch(
        &self,
        key: &WatchKey,
        watcher: &mut ResourceWatcher,
        now: &WatchOrder,
        known: &[String],
    ) -> Result<(), WatchEnd> {
        watcher.watch(&now.uris).await?;
        self.updated(key, now.uris.iter().filter(|uri| known.binary_search(uri).is_err()));
        Ok(())
    }

    /// Waits until a server is reached in another way, or nothing of it is to be watched.
    async fn is_elsewhere(&self, key: &WatchKey, order: &WatchOrder, moved: &Notify) {
        loop {
            moved.notified().await;
            if !self.order(key).is_some_and(|now| now.has_target_of(order)) {
                return;
            }
        }
    }
}
