//! Listing of the programs that run on this replica, independent of the lease for listing other servers. Only the replica
//! that runs a program knows what it offers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Upkeep;
use super::damping::ListingDamping;
use super::relist::{LISTS_MAX, STORE_WAIT_MAX, TICK};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::server::ConnectionState;
use crate::gateway::servers::ListingError;
use crate::store::StoreError;

/// Time without announcements after which the listings of a program are forgotten.
const QUIET: Duration = Duration::from_secs(120);

/// A program, by its server.
type Program = (TenantId, ServerId);

/// Listings of one program.
#[derive(Default)]
struct Listings {
    damping: ListingDamping,
    /// The listing that runs, or ran last.
    last: Option<AbortHandle>,
    /// True while an announced change waits for a listing.
    is_told: bool,
    /// Earliest time of the next listing for an announcement; `None` for at once.
    not_before: Option<Instant>,
}

impl Listings {
    fn is_running(&self) -> bool {
        self.last.as_ref().is_some_and(|listing| !listing.is_finished())
    }

    /// Returns whether an announced change is to be listed now.
    fn is_due(&self, now: Instant) -> bool {
        self.is_told && !self.is_running() && self.not_before.is_none_or(|at| at <= now)
    }

    /// Notes the end of a listing that found `changes` changes; `None` if it failed. After a failure the
    /// announcement still stands.
    fn ended(&mut self, now: Instant, changes: Option<usize>) {
        self.is_told |= changes.is_none();
        self.not_before = Some(now + self.damping.pause(now, changes.unwrap_or_default()));
    }

    fn is_quiet(&self, now: Instant) -> bool {
        !self.is_told && !self.is_running() && self.not_before.is_none_or(|at| at + QUIET <= now)
    }
}

impl Upkeep {
    /// Lists each program soon after it has started, then at the interval of all servers, and after announcements, damped as
    /// for streams. Runs until the gateway stops.
    pub(super) async fn list_programs(self: Arc<Self>) {
        // bounded by the number of programs: each is listed once at a time
        let mut running = JoinSet::new();
        let mut listings: HashMap<Program, Listings> = HashMap::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.life.stop.cancelled() => return,
                Some(ended) = running.join_next() => {
                    if let Ok((program, is_announced, changes)) = ended
                        && is_announced
                    {
                        listings.entry(program).or_default().ended(Instant::now(), changes);
                    }
                    continue;
                }
                _ = ticks.tick() => {}
            }
            let now = Instant::now();
            for (tenant, server) in self.upstreams.take_announced_programs() {
                listings.entry((TenantId(tenant), ServerId(server))).or_default().is_told = true;
            }
            for (tenant, server) in self.upstreams.take_unlisted_programs(self.options.relist_interval) {
                running.spawn(
                    Arc::clone(&self).list_program_in_time((TenantId(tenant), ServerId(server)), false),
                );
            }
            for (program, of) in listings.iter_mut().filter(|(_, of)| of.is_due(now)) {
                of.is_told = false;
                of.last = Some(running.spawn(Arc::clone(&self).list_program_in_time(*program, true)));
            }
            listings.retain(|_, of| !of.is_quiet(now));
        }
    }

    /// Lists a program within its time limit. Returns the program, `is_announced`, and the number of changes
    /// (`None` on failure).
    async fn list_program_in_time(
        self: Arc<Self>,
        program: Program,
        is_announced: bool,
    ) -> (Program, bool, Option<usize>) {
        let limit = self.options.upstream.listing_timeout * LISTS_MAX + STORE_WAIT_MAX;
        let listed = timeout(limit, Box::pin(self.list_program(program.0, program.1))).await;
        (program, is_announced, listed.ok().flatten())
    }

    /// Lists a program. Returns the number of changes; `None` on failure. Retries once if another writer
    /// changed the server's row meanwhile.
    async fn list_program(&self, tenant: TenantId, server: ServerId) -> Option<usize> {
        let mut listed = Box::pin(self.list_program_once(tenant, server)).await;
        if let Err(ListingError::Store(StoreError::Conflict(_))) = listed {
            listed = Box::pin(self.list_program_once(tenant, server)).await;
        }
        if let Err(error) = &listed {
            tracing::info!(%tenant, %server, %error, "a program that runs here could not be listed");
        }
        listed.ok()
    }

    async fn list_program_once(&self, tenant: TenantId, server: ServerId) -> Result<usize, ListingError> {
        match self.store.served_server(tenant, server).await {
            // other servers show no offers, and the replica that lists all servers reports when that changes
            Ok(row) if row.enabled && row.connection == ConnectionState::Connected => {
                let applied = self.servers.list_own_program(tenant, &row).await?;
                Ok(applied.written + applied.removed + applied.offers)
            }
            Ok(row) if row.enabled => Ok(0),
            // a call or a listing with older data has started the program
            Ok(_) | Err(StoreError::NotFound) => {
                self.upstreams.forget(tenant.0, server.0);
                Ok(0)
            }
            Err(error) => Err(ListingError::Store(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_announcements_costs_few_listings() {
        let (mut listings, began) = (Listings::default(), Instant::now());
        let (mut now, mut count) = (began, 0);
        while now < began + Duration::from_secs(60) {
            listings.is_told = true;
            if listings.is_due(now) {
                listings.is_told = false;
                count += 1;
                listings.ended(now, Some(0));
            }
            now += Duration::from_millis(100);
        }
        assert!((3..=10).contains(&count), "{count} listings in a minute");
        assert!(!listings.is_quiet(now), "told and not listed");
    }

    #[test]
    fn a_listing_that_failed_is_made_again_after_its_pause() {
        let (mut listings, now) = (Listings::default(), Instant::now());
        listings.ended(now, None);
        assert!(!listings.is_due(now) && listings.is_due(now + Duration::from_secs(1)));
        listings.is_told = false;
        listings.ended(now, Some(1));
        assert!(!listings.is_due(now + Duration::from_secs(10)));
        assert!(!listings.is_quiet(now) && listings.is_quiet(now + QUIET + Duration::from_secs(1)));
    }
}
