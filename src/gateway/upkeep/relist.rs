//! Scheduled listing of all enabled servers, on the one replica that holds the lease for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::schedule::{ListingEnd, ListingPace, Schedule};
use super::{LEASE, Upkeep, report};
use crate::domain::backoff::chance;
use crate::domain::id::ServerId;
use crate::gateway::servers::ListingError;
use crate::store::{DueServer, ReplicaLease, Right, StoreError};

pub(super) const RELIST_PAGE: i64 = 500;
/// Interval of checks for due listings.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Longest interval between comparisons of the schedule with the database; shorter if servers are listed more often.
const LOOK: Duration = Duration::from_secs(10);
/// Listing timeouts within one listing: tools and other kinds, each repeated once if another replica stored first.
pub(super) const LISTS_MAX: u32 = 4;
/// Longest time for storing the result of a listing.
pub(super) const STORE_WAIT_MAX: Duration = Duration::from_secs(30);

/// State of this replica for the lease on listing.
#[derive(Default)]
struct Duty {
    schedule: Schedule,
    /// Time of the last request for the lease, and its holder.
    lease: Option<(Instant, Holder)>,
    /// Lease under which the schedule was made.
    scheduled_by: Option<ReplicaLease>,
    looked: Option<Instant>,
}

/// Holder of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Us(ReplicaLease),
    Another,
    /// The database gave no answer.
    Unknown,
}

/// The end of a listing.
struct Listed {
    due: DueServer,
    /// Result of the listing; `None` if the lease was lost meanwhile.
    ended: Option<ListingEnd>,
}

impl Upkeep {
    /// Lists due servers until the gateway stops, while this replica holds the lease.
    pub(super) async fn relist(self: Arc<Self>) {
        let pace = ListingPace {
            interval: self.options.relist_interval,
            page_interval: self.options.page_refresh,
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
                    // a listing that panicked keeps its slot until it counts as lost
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

    /// Renews the lease, and compares the schedule with the database, each when due.
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

    /// Lists a server; a ping suffices for a server that announces its changes. Ends within `limit`, so that neither the
    /// server nor the database blocks the slot.
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
                    // boxed: the future of a listing is large
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
    /// Returns whether a server is a program that was ended here because it was idle. It counts as connected, since the next
    /// call starts it; replicas where it runs list it themselves.
    async fn sleeps(&self, due: &DueServer, lease: &ReplicaLease) -> bool {
        if !self.upstreams.is_asleep(due.tenant.0, due.server.0, due.version) {
            return false;
        }
        matches!(self.store.server_answered(due.tenant, due.server, due.version, lease).await, Ok(true))
    }
}

impl Duty {
    /// Returns the lease, while this replica is known to hold it.
    fn held(&self) -> Option<ReplicaLease> {
        match self.lease {
            Some((_, Holder::Us(lease))) => Some(lease),
            _ => None,
        }
    }

    /// Notes the database's answer about the lease. Without an answer no listing starts, and the schedule stays: running
    /// listings keep their slots, and failed servers their pauses.
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
        let was_held_elsewhere = match holder {
            Holder::Us(lease) => self.scheduled_by.replace(lease).is_some_and(|before| before != lease),
            Holder::Another => true,
            Holder::Unknown => false,
        };
        if was_held_elsewhere {
            // another replica has listed meanwhile, so this schedule is out of date
            (self.schedule, self.looked) = (Schedule::default(), None);
        }
        answer.map(drop)
    }

    /// Notes the end of a listing. If the lease was lost, it is requested again at once.
    fn ended(&mut self, due: &DueServer, ended: Option<ListingEnd>, now: Instant, pace: &ListingPace) {
        if ended.is_none() {
            self.lease = None;
        }
        self.schedule.done(due, ended.unwrap_or(ListingEnd::Untold), now, chance(), pace);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::{ReplicaId, TenantId};

    const PACE: ListingPace = ListingPace {
        interval: Duration::from_secs(30),
        page_interval: Duration::from_secs(3600),
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
            is_pages: false,
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

        // another replica held the lease for a while, unnoticed
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
