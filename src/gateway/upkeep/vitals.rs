//! How this replica is, for whoever watches over it: what is at hand, without a query and without waiting.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Upkeep;
use crate::domain::measure::Measures;
use crate::gateway::Readiness;
use crate::gateway::log::LogVitals;
use crate::store::StoreVitals;
use crate::upstream::PoolVitals;

/// The servers of all tenants that this replica serves, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Switched off.
    pub disabled: usize,
    /// Nothing of them is shown.
    pub quarantined: usize,
    /// Reached a short while ago.
    pub connected: usize,
    /// Not reached lately.
    pub disconnected: usize,
}

/// How this replica is.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// Whether it should get traffic.
    pub readiness: Readiness,
    /// How long ago the database confirmed what is known here; `None` before the first time.
    pub snapshot_age: Option<Duration>,
    /// By how many revisions the tenant that is behind the most is behind what the last comparison found.
    pub revision_lag: i64,
    /// Whether changes are heard of at once.
    pub is_listening: bool,
    /// Tenants that it serves.
    pub tenants: usize,
    /// Replicas that live, this one included.
    pub replicas: u32,
    /// The servers of these tenants.
    pub servers: ServerCounts,
    /// Streams on which servers announce changes to this replica.
    pub announcing: usize,
    /// Connections to servers.
    pub upstreams: PoolVitals,
    /// The database.
    pub store: StoreVitals,
    /// The activity log.
    pub log: LogVitals,
    /// Attempts over a rate limit, since the start.
    pub rate_limited: u64,
    /// Requests without a valid key, since the start.
    pub strangers: u64,
}

impl Upkeep {
    /// How this replica is now.
    pub fn vitals(&self) -> Vitals {
        Vitals {
            readiness: self.readiness(),
            snapshot_age: self.tenants.live.confirmed_ago(),
            revision_lag: self.revision_lag(),
            is_listening: self.is_listening.load(Ordering::Relaxed),
            tenants: self.tenants.live.ids().len(),
            replicas: self.tenants.limits.replicas(),
            servers: self.count_servers(),
            announcing: self.streams.held_now(),
            upstreams: self.upstreams.vitals(),
            store: self.store.vitals(),
            log: self.log.activity.vitals(),
            rate_limited: self.tenants.limits.shed.get(),
            strangers: self.tenants.uses.strangers.get(),
        }
    }

    /// How long upstreams take.
    pub fn upstream_measures(&self) -> &Measures {
        self.upstreams.measures()
    }

    fn revision_lag(&self) -> i64 {
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = behind.iter().filter_map(|change| {
            let live = self.tenants.live.get(change.tenant)?;
            Some(change.rev - live.rev(change.kind))
        });
        lag.max().unwrap_or_default().max(0)
    }

    fn count_servers(&self) -> ServerCounts {
        let mut counts = ServerCounts::default();
        for tenant in self.tenants.live.all() {
            for server in tenant.catalogue_now().servers() {
                *match () {
                    () if !server.enabled => &mut counts.disabled,
                    () if server.quarantined => &mut counts.quarantined,
                    () if server.connected => &mut counts.connected,
                    () => &mut counts.disconnected,
                } += 1;
            }
        }
        counts
    }
}
