//! Reachability of the database. While it is unreachable, one unit of work at a time probes it, with backoff, and the
//! others wait for the result. So a database that comes back is not flooded by all that waited for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::domain::backoff::{Backoff, chance};

const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest backoff; with [`PROBE_SOON`] also the longest time for which a recovered database goes unnoticed.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Timeout of a probe while the database has been away for less than [`SOON`]. What hangs then is a cut connection
/// rather than a slow database, and a probe from before the repair gets no answer.
const PROBE_SOON: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Probe {
    backoff: Backoff,
    at: Instant,
    /// Start of the outage.
    since: Instant,
    error: String,
}

/// Reachability of the database, shared by all lanes of a store.
#[derive(Debug)]
pub(super) struct Reach {
    is_down: AtomicBool,
    probe: Mutex<Probe>,
}

/// Permission to try the database. While the database is away, at most one is issued at a time.
pub(super) struct Turn<'a> {
    reach: &'a Reach,
    probe: Option<MutexGuard<'a, Probe>>,
}

impl Reach {
    pub(super) fn new() -> Reach {
        Reach::pausing(Backoff::new(PAUSE_FIRST, PAUSE_MAX))
    }

    fn pausing(backoff: Backoff) -> Reach {
        let probe = Probe { backoff, at: Instant::now(), since: Instant::now(), error: String::new() };
        Reach { is_down: AtomicBool::new(false), probe: Mutex::new(probe) }
    }

    /// Returns whether the database did not answer the last attempt.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Waits for permission to try, which is immediate while the database is reachable. The error is the last failure,
    /// returned when `deadline` comes first.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<Turn<'_>, String> {
        if !self.is_down.load(Ordering::Acquire) {
            return Ok(Turn { reach: self, probe: None });
        }
        let Ok(probe) = timeout_at(deadline, self.probe.lock()).await else {
            return Err("others are still waiting for it".to_owned());
        };
        if !self.is_down.load(Ordering::Acquire) {
            return Ok(Turn { reach: self, probe: None });
        }
        if probe.at >= deadline {
            let error = probe.error.clone();
            drop(probe);
            sleep_until(deadline).await;
            return Err(error);
        }
        sleep_until(probe.at).await;
        Ok(Turn { reach: self, probe: Some(probe) })
    }
}

impl Turn<'_> {
    /// Returns whether this attempt is the probe that finds out whether the database is back.
    pub(super) fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns the timeout of this attempt; `None` if the bounds of the work itself apply.
    pub(super) fn patience(&self) -> Option<Duration> {
        let probe = self.probe.as_ref()?;
        (probe.since.elapsed() < SOON).then_some(PROBE_SOON)
    }

    /// Records that the database answered.
    pub(super) fn succeeded(self) {
        if let Some(mut probe) = self.probe {
            probe.backoff.reset();
            self.reach.is_down.store(false, Ordering::Release);
            tracing::info!("the database can be reached again");
        }
    }

    /// Records that the database did not answer, and schedules the next probe.
    pub(super) fn failed(self, error: &sqlx::Error) {
        let probe = self.probe.or_else(|| self.reach.probe.try_lock().ok());
        // another attempt fails at the same time and records it
        let Some(mut probe) = probe else { return };
        if !self.reach.is_down.swap(true, Ordering::AcqRel) {
            probe.since = Instant::now();
            tracing::warn!(%error, "the database cannot be reached");
        }
        probe.at = Instant::now() + probe.backoff.jittered(chance());
        probe.error = error.to_string();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn one_at_a_time_tries_while_the_database_is_away() {
        const PAUSE: Duration = Duration::from_millis(40);
        let reach = Arc::new(Reach::pausing(Backoff::new(PAUSE, PAUSE)));
        reach.turn(soon()).await.ok().unwrap().failed(&sqlx::Error::PoolTimedOut);
        let tries = Arc::new(AtomicUsize::new(0));
        let deadline = Instant::now() + PAUSE * 10;
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let (reach, tries) = (Arc::clone(&reach), Arc::clone(&tries));
                tokio::spawn(async move {
                    while let Ok(turn) = reach.turn(deadline).await {
                        tries.fetch_add(1, Ordering::Relaxed);
                        turn.failed(&sqlx::Error::PoolTimedOut);
                    }
                })
            })
            .collect();
        for one in waiting {
            one.await.unwrap();
        }
        // ten pauses, which jitter shortens by half at most
        let tries = tries.load(Ordering::Relaxed);
        assert!((1..=21).contains(&tries), "{tries} tries");
    }

    #[tokio::test]
    async fn everybody_goes_once_it_is_back() {
        let reach = Reach::new();
        reach.turn(soon()).await.ok().unwrap().failed(&sqlx::Error::PoolTimedOut);
        assert!(reach.turn(Instant::now()).await.is_err());
        reach.turn(soon()).await.ok().unwrap().succeeded();
        let _first = reach.turn(Instant::now()).await.ok().unwrap();
        let _second = reach.turn(Instant::now()).await.ok().unwrap();
    }
}
