//! Being connected wears off, on the one replica that holds the lease for it: not the lease for listing, since
//! a replica that lists too slowly is one of the reasons.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Upkeep, report};
use crate::gateway::life::sleep_or_stop;
use crate::store::{RevisionKind, StoreError};

/// Tenants looked after at one time; the rest comes next time.
const TENANTS_MAX: i64 = 500;

/// How often it is looked which connected servers have been silent for too long, at most.
const LOOK: Duration = Duration::from_secs(5);

impl Upkeep {
    /// Lets being connected wear off for as long as the gateway runs. While the database is away nothing can be
    /// noted of any server, so afterwards, and after the start, there is time for one listing of each first.
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

    /// Takes servers for disconnected that nobody has reached for too long.
    async fn wear_off_once(&self) -> Result<(), StoreError> {
        let Some(lease) = self.store.take_lease("wear-off", self.replica).await? else { return Ok(()) };
        let silent_s = self.options.connected_for.as_secs_f64();
        for tenant in self.store.tenants_to_wear_off(silent_s, TENANTS_MAX).await? {
            if let Some(rev) = self.store.wear_off(tenant, silent_s, &lease).await? {
                tracing::info!(%tenant, "servers that gave no sign of life are taken for disconnected");
                self.tenants.applied(tenant, RevisionKind::Catalogue, rev).await;
            }
        }
        Ok(())
    }
}
