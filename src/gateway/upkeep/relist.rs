//! Listing every enabled server again, on the one replica that holds the lease for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::schedule::{ListingEnd, ListingPace, Schedule};
use super::{LEASE, Upkeep, report};
use crate::domain::id::ServerId;
use crate::gateway::servers::ListingError;
use crate::store::{DueServer, ReplicaLease, Right, StoreError};

pub(super) const RELIST_PAGE: i64 = 500;
/// How often it is looked whether something is due.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// How often the schedule is compared with the database, at most; sooner if servers are listed more often.
const LOOK: Duration = Duration::from_secs(10);
/// How often a listing may take as long as it may: its tools, and all else, each once more if another replica was quicker.
pub(super) const LISTS_MAX: u32 = 4;
/// How long storing what a listing found may take.
pub(super) const STORE_WAIT_MAX: Duration = Duration::from_secs(30);

/// What this replica knows about being the one that lists.
#[derive(Default)]
struct Duty {
    schedule: Schedule,
    /// When the lease was last asked for, and whose it is.
    lease: Option<(Instant, Holder)>,
    /// The one under which the schedule was made.
    scheduled_by: Option<ReplicaLease>,
    looked: Option<Instant>,
}

/// Who holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Us(ReplicaLease),
    Another,
    /// The database did not say.
    Unknown,
}

/// The end of a listing.
struct Listed {
    due: DueServer,
    /// `None` if the lease was lost meanwhile.
    ended: Option<ListingEnd>,
}

impl Upkeep {
    /// Lists what is due, for as long as the gateway runs and this replica holds the lease for it.
    pub(super) async fn relist(self: Arc<Self>) {
        let pace = ListingPace {
            interval: self.options.relist_interval,
            pause_max: self.options.relist_pause_max,
            places: self.options.relist_places,
            lost_after: self.options.upstream.listing_timeout * LISTS_MAX + STORE_WAIT_MAX + TICK,
        };
        let (mut duty, mut running) = (Duty::default(), JoinSet::new());
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.life.stop.cancelled() => return,
                Some(ended) = running.join_next() => {
                    // one that panicked keeps its place until it is taken for lost
                    if let Ok(Listed { due, ended }) = ended {
                        duty.ended(&due, ended, Instant::now(), &pace);
                    }
                }
                _ = ticks.tick() => report("re-listing", self.look(&mut duty).await),
            }
            if let Some(lease) = duty.held() {
                for due in duty.schedule.take(Instant::now(), &pace) {
                    let upkeep = Arc::clone(&self);
                    running
                        .spawn(async move { Box::pin(upkeep.relist_one(due, lease, pace.lost_after)).await });
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
        if duty.held().is_none() {
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
    async fn relist_one(&self, due: DueServer, lease: ReplicaLease, limit: Duration) -> Listed {
        let listed = async {
            if self.announces_and_answers(&due, &lease).await {
                return Ok(ListingEnd::Worked);
            }
            if self.sleeps(&due, &lease).await {
                return Ok(ListingEnd::Worked);
            }
            match self.store.served_server(due.tenant, due.server).await {
                Ok(server) if server.enabled => {
                    // apart: what it takes to ask a server is large
                    let found =
                        Box::pin(self.servers.list_server(due.tenant, &server, Right::Lease(lease))).await?;
                    self.streams.relisted(&due, &found);
                    Ok(found.held.map_or(ListingEnd::Worked, ListingEnd::Held))
                }
                Ok(_) | Err(StoreError::NotFound) => Ok(ListingEnd::Worked),
                Err(error) => Err(error.into()),
            }
        };
        let (tenant, server) = (due.tenant, &due.name);
        let ended = match timeout(limit, listed).await {
            Ok(Ok(ended)) => Some(ended),
            Ok(Err(ListingError::Store(StoreError::LostLease))) => {
                tracing::info!(%tenant, server, "another replica has taken over: nothing is kept of a listing");
                None
            }
            Ok(Err(ListingError::Store(_) | ListingError::Here(_))) => Some(ListingEnd::Untold),
            Ok(Err(ListingError::Upstream(error))) => {
                tracing::debug!(%tenant, server, error, "a server could not be listed again");
                Some(ListingEnd::Failed)
            }
            Err(_) => Some(ListingEnd::Failed),
        };
        Listed { due, ended }
    }
}

impl Upkeep {
    /// Whether a server is a program that was ended here because nobody called it. It counts as connected, since
    /// the next call starts it; replicas where it runs list it themselves.
    async fn sleeps(&self, due: &DueServer, lease: &ReplicaLease) -> bool {
        if !self.upstreams.is_asleep(due.tenant.0, due.server.0, due.version) {
            return false;
        }
        matches!(self.store.server_answered(due.tenant, due.server, due.version, lease).await, Ok(true))
    }
}

impl Duty {
    /// The lease, while this replica is known to hold it.
    fn held(&self) -> Option<ReplicaLease> {
        match self.lease {
            Some((_, Holder::Us(lease))) => Some(lease),
            _ => None,
        }
    }

    /// What the database said about the lease. While it says nothing, nothing is taken, and nothing is forgotten: what
    /// is under way has its place, and who failed its pause.
    fn answered(
        &mut self,
        answer: Result<Option<ReplicaLease>, StoreError>,
        now: Instant,
    ) -> Result<(), StoreError> {
        let holder = match &answer {
            Ok(Some(lease)) => Holder::Us(*lease),
            Ok(None) => Holder::Another,
            Err(_) => Holder::Unknown,
        };
        self.lease = Some((now, holder));
        let was_anothers = match holder {
            Holder::Us(lease) => self.scheduled_by.replace(lease).is_some_and(|before| before != lease),
            Holder::Another => true,
            Holder::Unknown => false,
        };
        if was_anothers {
            // whoever lists meanwhile knows better by the time it is our turn again
            (self.schedule, self.looked) = (Schedule::default(), None);
        }
        answer.map(drop)
    }

    /// A listing has ended; one that came too late has the lease asked for at once.
    fn ended(&mut self, due: &DueServer, ended: Option<ListingEnd>, now: Instant, pace: &ListingPace) {
        if ended.is_none() {
            self.lease = None;
        }
        self.schedule.done(due, ended.unwrap_or(ListingEnd::Untold), now, chance(), pace);
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
    use crate::domain::id::{ReplicaId, TenantId};

    const PACE: ListingPace = ListingPace {
        interval: Duration::from_secs(30),
        pause_max: Duration::from_secs(300),
        places: 16,
        lost_after: Duration::from_secs(60),
    };

    fn look(duty: &mut Duty, now: Instant) {
        duty.schedule.look();
        duty.schedule.see(due(), now);
        duty.schedule.seen();
    }

    fn due() -> DueServer {
        DueServer {
            tenant: TenantId(Uuid::from_u128(1)),
            server: ServerId(Uuid::from_u128(2)),
            name: "up".to_owned(),
            version: 1,
            is_connected: true,
        }
    }

    fn lease(epoch: i64) -> Result<Option<ReplicaLease>, StoreError> {
        Ok(Some(ReplicaLease { name: "relist", replica: ReplicaId(Uuid::from_u128(3)), epoch }))
    }

    #[test]
    fn only_another_holder_makes_the_schedule_forgotten() {
        let (mut duty, now) = (Duty::default(), Instant::now());
        duty.answered(lease(1), now).unwrap();
        look(&mut duty, now);
        assert_eq!(duty.schedule.take(now, &PACE).len(), 1);

        let away = Err(StoreError::Down("cut".to_owned()));
        assert!(duty.answered(away, now).is_err());
        assert!(duty.held().is_none(), "nothing is taken while nobody knows");
        duty.answered(lease(1), now).unwrap();
        look(&mut duty, now);
        assert!(duty.held().is_some() && duty.schedule.take(now, &PACE).is_empty(), "it is under way");

        // another had it for a while, of which nobody told
        duty.answered(lease(3), now).unwrap();
        look(&mut duty, now);
        assert_eq!(duty.schedule.take(now, &PACE).len(), 1);

        duty.answered(Ok(None), now).unwrap();
        assert!(duty.held().is_none());
        duty.answered(lease(5), now).unwrap();
        look(&mut duty, now);
        assert_eq!(duty.schedule.take(now, &PACE).len(), 1);
    }

    #[test]
    fn who_lost_the_lease_takes_nothing_before_it_was_asked_for_again() {
        let (mut duty, now) = (Duty::default(), Instant::now());
        duty.answered(lease(1), now).unwrap();
        look(&mut duty, now);
        assert_eq!(duty.schedule.take(now, &PACE).len(), 1);
        duty.ended(&due(), None, now, &PACE);
        assert!(duty.held().is_none() && duty.lease.is_none());
        duty.answered(lease(1), now).unwrap();
        assert!(duty.schedule.take(now, &PACE).is_empty(), "as after any listing that could not be stored");
    }
}
