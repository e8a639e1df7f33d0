//! Listing every enabled server again, on the one replica that holds the lease for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::schedule::{Ended, Pace, Schedule};
use super::{Gateway, LEASE, report};
use crate::domain::id::ServerId;
use crate::gateway::discovery::ListingError;
use crate::store::{DueServer, Lease, StoreError};

pub(super) const RELIST_PAGE: i64 = 500;
/// How often it is looked whether something is due.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// How often the schedule is compared with the database, at most; sooner if servers are listed more often.
const LOOK: Duration = Duration::from_secs(10);
/// How long storing what a listing found may take.
pub(super) const STORE_WAIT_MAX: Duration = Duration::from_secs(30);

/// What this replica knows about being the one that lists.
#[derive(Default)]
struct Duty {
    schedule: Schedule,
    /// When the lease was last asked for, and whose it is.
    lease: Option<(Instant, Holder)>,
    looked: Option<Instant>,
}

/// Who holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Us,
    Another,
    /// The database did not say.
    Unknown,
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
            let answer = self.store.take_lease("relist", self.replica).await;
            duty.answered(answer, Instant::now())?;
        }
        if !duty.is_held() {
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
            if self.sleeps(&due).await {
                return Ok(());
            }
            match self.store.served_server(due.tenant, due.server).await {
                Ok(server) if server.enabled => self
                    .list_server(due.tenant, &server)
                    .await
                    .map(|found| self.upkeep.streams.relisted(&due, &found)),
                Ok(_) | Err(StoreError::NotFound) => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        let ended = match timeout(limit, listed).await {
            Ok(Ok(())) => Ended::Worked,
            Ok(Err(ListingError::Store(_) | ListingError::Here(_))) => Ended::Untold,
            Ok(Err(ListingError::Upstream(error))) => {
                tracing::debug!(tenant = %due.tenant, server = due.name, error, "a server could not be listed again");
                Ended::Failed
            }
            Err(_) => Ended::Failed,
        };
        Listed { due, ended }
    }
}

impl Gateway {
    /// Whether a server is a program that was ended here because nobody called it. It counts as connected, since
    /// the next call starts it; replicas where it runs list it themselves.
    async fn sleeps(&self, due: &DueServer) -> bool {
        if !self.upstreams.is_asleep(due.tenant.0, due.server.0, due.version) {
            return false;
        }
        matches!(self.store.server_answered(due.tenant, due.server, due.version).await, Ok(true))
    }
}

impl Duty {
    fn is_held(&self) -> bool {
        self.lease.is_some_and(|(_, holder)| holder == Holder::Us)
    }

    /// What the database said about the lease. While it says nothing, nothing is taken, and nothing is forgotten: what
    /// is under way has its place, and who failed its pause.
    fn answered(
        &mut self,
        answer: Result<Option<Lease>, StoreError>,
        now: Instant,
    ) -> Result<(), StoreError> {
        let holder = match &answer {
            Ok(Some(_)) => Holder::Us,
            Ok(None) => Holder::Another,
            Err(_) => Holder::Unknown,
        };
        self.lease = Some((now, holder));
        if holder == Holder::Another {
            // whoever lists now knows better by the time it is our turn again
            (self.schedule, self.looked) = (Schedule::default(), None);
        }
        answer.map(drop)
    }
}

/// Evenly from 0 to 1; without a source of chance nothing is spread, which is all that is lost.
fn chance() -> f64 {
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::TenantId;

    const PACE: Pace = Pace {
        interval: Duration::from_secs(30),
        pause_max: Duration::from_secs(300),
        places: 16,
        lost_after: Duration::from_secs(60),
    };

    fn look(duty: &mut Duty, now: Instant) {
        let server = DueServer {
            tenant: TenantId(Uuid::from_u128(1)),
            server: ServerId(Uuid::from_u128(2)),
            name: "up".to_owned(),
            version: 1,
            is_connected: true,
        };
        duty.schedule.look();
        duty.schedule.see(server, now);
        duty.schedule.seen();
    }

    #[test]
    fn only_another_holder_makes_the_schedule_forgotten() {
        let (mut duty, now) = (Duty::default(), Instant::now());
        let lease = || Ok(Some(Lease { epoch: 1 }));
        duty.answered(lease(), now).unwrap();
        look(&mut duty, now);
        assert_eq!(duty.schedule.take(now, &PACE).len(), 1);

        let away = Err(StoreError::Down("cut".to_owned()));
        assert!(duty.answered(away, now).is_err());
        assert!(!duty.is_held(), "nothing is taken while nobody knows");
        duty.answered(lease(), now).unwrap();
        look(&mut duty, now);
        assert!(duty.is_held() && duty.schedule.take(now, &PACE).is_empty(), "it is under way");

        duty.answered(Ok(None), now).unwrap();
        assert!(!duty.is_held());
        duty.answered(lease(), now).unwrap();
        look(&mut duty, now);
        assert_eq!(duty.schedule.take(now, &PACE).len(), 1);
    }
}
