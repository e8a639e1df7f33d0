//! Listing the programs that run on this replica: each of its own accord, whoever lists the other servers. What a
//! program offers is known to the replica that runs it, and to no other.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Gateway;
use super::relist::{LISTS_MAX, STORE_WAIT_MAX, TICK};
use crate::domain::id::{ServerId, TenantId};
use crate::gateway::discovery::ListingError;
use crate::store::StoreError;

impl Gateway {
    /// Lists each program soon after it came up, and then as often as all servers are listed, for as long as the
    /// gateway runs.
    pub(super) async fn list_programs(self: Arc<Self>) {
        // no more than there may be programs: each is listed once at a time
        let mut listings = JoinSet::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = self.options.upstream.listing_timeout * LISTS_MAX + STORE_WAIT_MAX;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                Some(_) = listings.join_next() => continue,
                _ = ticks.tick() => {}
            }
            for (tenant, server) in self.upstreams.take_unlisted_programs(self.options.relist_interval) {
                let gateway = Arc::clone(&self);
                let listed = async move { gateway.list_program(TenantId(tenant), ServerId(server)).await };
                listings.spawn(timeout(limit, listed));
            }
        }
    }

    /// Lists a program; once more if somebody noted something of its server meanwhile, who may know less.
    async fn list_program(&self, tenant: TenantId, server: ServerId) {
        let mut listed = self.list_program_once(tenant, server).await;
        if let Err(ListingError::Store(StoreError::Conflict(_))) = listed {
            listed = self.list_program_once(tenant, server).await;
        }
        if let Err(error) = listed {
            tracing::info!(%tenant, %server, %error, "a program that runs here could not be listed");
        }
    }

    async fn list_program_once(&self, tenant: TenantId, server: ServerId) -> Result<(), ListingError> {
        match self.store.served_server(tenant, server).await {
            // of others it is not shown what they offer, and whoever lists all servers says when that changes
            Ok(row) if row.enabled && row.connection == "connected" => {
                self.list_own_program(tenant, &row).await.map(drop)
            }
            Ok(row) if row.enabled => Ok(()),
            // a call or a listing that knew it as it was before has started it
            Ok(_) | Err(StoreError::NotFound) => {
                self.upstreams.forget(tenant.0, server.0);
                Ok(())
            }
            Err(error) => Err(ListingError::Store(error)),
        }
    }
}
