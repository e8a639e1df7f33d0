//! Listing every enabled server again, on the one replica that holds the lease for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::schedule::{Ended, Pace, Schedule};
use super::{Gateway, LEASE, report};
use crate::domain::id::ServerId;
use crate::gateway::discovery::ListingError;
use crate::store::{DueServer, StoreError};

pub(super) const RELIST_PAGE: i64 = 500;
/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(500);
/// How often the schedule is compared with the database, at most; sooner if servers are listed more often.
const LOOK: Duration = Duration::from_secs(10);
/// How long storing what a listing found may take.
const STORE_WAIT_MAX: Duration = Duration::from_secs(30);

/// What this replica knows about being the one that lists.
#[derive(Default)]
struct Duty {
    schedule: Schedule,
    /// When the lease was last asked for, and whether it is held.
    lease: Option<(Instant, bool)>,
    looked: Option<Instant>,
}

/// The end of a listing.
struct Listed {
    due: DueServer,
    ended: Ended,
}

impl Gateway {
    /// Lists what is due, for as long as the gateway runs and this replica holds the lease for it.
    pub(super) async fn relist(self: Arc<Self>) {
        let pace = Pace {
            interval: self.options.relist_interval,
            pause_max: self.options.relist_pause_max,
            places: self.options.relist_places,
            lost_after: self.options.upstream.listing_timeout + STORE_WAIT_MAX + TICK,
        };
        let (mut duty, mut running) = (Duty::default(), JoinSet::new());
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                Some(ended) = running.join_next() => {
                    // one that panicked keeps its place until it is taken for lost
                    if let Ok(Listed { due, ended }) = ended {
                        duty.schedule.done(&due, ended, Instant::now(), chance(), &pace);
                    }
                }
                _ = ticks.tick() => report("re-listing", self.look(&mut duty).await),
            }
            if duty.is_held() {
                for due in duty.schedule.take(Instant::now(), &pace) {
                    let gateway = Arc::clone(&self);
                    running.spawn(async move { gateway.relist_one(due, pace.lost_after).await });
                }
            }
        }
    }

    /// Renews the lease and compares the schedule with the database, when it is time.
    async fn look(&self, duty: &mut Duty) -> Result<(), StoreError> {
        if duty.lease.is_none_or(|(at, _)| at.elapsed() >= LEASE) {
            duty.lease = Some((Instant::now(), false));
            let lease = self.store.take_lease("relist", self.replica).await?;
            duty.lease = Some((Instant::now(), lease.is_some()));
        }
        if !duty.is_held() {
            // whoever lists now knows better by the time it is our turn again
            (duty.schedule, duty.looked) = (Schedule::default(), None);
            return Ok(());
        }
        if duty.looked.is_some_and(|at| at.elapsed() < LOOK.min(self.options.relist_interval)) {
            return Ok(());
        }
        duty.looked = Some(Instant::now());
        duty.schedule.look();
        let mut after = ServerId(uuid::Uuid::nil());
        loop {
            let page = self.store.enabled_servers(after, RELIST_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.server;
            page.into_iter().for_each(|server| duty.schedule.see(server, Instant::now()));
        }
        duty.schedule.seen();
        Ok(())
    }

    /// Lists a server, unless it announces its changes and a sign of life will do; neither it nor the database
    /// may hold the place for longer than `limit`.
    async fn relist_one(&self, due: DueServer, limit: Duration) -> Listed {
        let listed = async {
            if self.announces_and_answers(&due).await {
                return Ok(());
            }
            match self.store.get_server(due.tenant, &due.name).await {
                Ok(server) if server.id() == due.server => self
                    .list_server(due.tenant, &server)
                    .await
                    .map(|found| self.upkeep.streams.relisted(&due, &found)),
                Ok(_) | Err(StoreError::NotFound) => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        let ended = match timeout(limit, listed).await {
            Ok(Ok(())) => Ended::Worked,
            Ok(Err(ListingError::Store(_))) => Ended::Untold,
            Ok(Err(ListingError::Upstream(error))) => {
                tracing::debug!(tenant = %due.tenant, server = due.name, error, "a server could not be listed again");
                Ended::Failed
            }
            Err(_) => Ended::Failed,
        };
        Listed { due, ended }
    }
}

impl Duty {
    fn is_held(&self) -> bool {
        self.lease.is_some_and(|(_, is_held)| is_held)
    }
}

/// Evenly from 0 to 1; without a source of chance nothing is spread, which is all that is lost.
fn chance() -> f64 {
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}
