//! Expiry of the state `connected`, on the one replica that holds a lease for it. This lease is not the one for listing,
//! since a replica that lists too slowly is one of the causes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Upkeep, report};
use crate::gateway::life::sleep_or_stop;
use crate::store::{RevisionKind, Silence, StoreError};

/// Most tenants handled in one pass; the rest is left to the next.
const TENANTS_MAX: i64 = 500;

/// Longest interval between checks for connected servers without a recent sign of life.
const LOOK: Duration = Duration::from_secs(5);

impl Upkeep {
    /// Expires the state `connected` until the gateway stops. No sign of life can be stored while the database is away. So
    /// after that, and after the start, each server first has time for one listing.
    pub(super) async fn wear_off(self: Arc<Self>) {
        let pause = LOOK.min(self.options.connected_for / 4);
        let mut since = Instant::now();
        while !sleep_or_stop(pause, &self.life.stop).await {
            let looked = match since.elapsed() >= self.options.relist_interval {
                true => self.wear_off_once().await,
                false => self.store.take_lease("wear-off", self.replica).await.map(drop),
            };
            if looked.is_err() {
                since = Instant::now();
            }
            report("wearing off", looked);
        }
    }

    /// Marks servers as disconnected that were not reached for too long.
    async fn wear_off_once(&self) -> Result<(), StoreError> {
        let Some(lease) = self.store.take_lease("wear-off", self.replica).await? else { return Ok(()) };
        let silence = Silence {
            usual_s: self.options.connected_for.as_secs_f64(),
            pages_s: self.options.pages_connected_for.as_secs_f64(),
        };
        for tenant in self.store.tenants_to_wear_off(silence, TENANTS_MAX).await? {
            if let Some(rev) = self.store.wear_off(tenant, silence, &lease).await? {
                tracing::info!(%tenant, "servers that gave no sign of life are taken for disconnected");
                self.tenants.applied(tenant, RevisionKind::Catalogue, rev).await;
            }
        }
        Ok(())
    }
}
