//! Health of this replica, from values at hand: no query, no waiting.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Upkeep;
use crate::domain::measure::Measures;
use crate::gateway::Readiness;
use crate::gateway::log::LogVitals;
use crate::store::StoreVitals;
use crate::upstream::PoolVitals;

/// Number of servers of all tenants that this replica serves, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Servers that are switched off.
    pub disabled: usize,
    /// Enabled servers in quarantine, whose tools agents do not see.
    pub quarantined: usize,
    /// Servers reached a short while ago.
    pub connected: usize,
    /// Servers not reached lately.
    pub disconnected: usize,
}

/// Health of this replica.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// Whether the replica should get traffic.
    pub readiness: Readiness,
    /// Time since the database confirmed the snapshots; `None` before the first time.
    pub snapshot_age: Option<Duration>,
    /// Largest number of revisions by which a tenant's snapshot is behind the last comparison.
    pub revision_lag: i64,
    /// True while the listener receives notices of changes.
    pub is_listening: bool,
    /// Number of tenants that the replica serves.
    pub tenants: usize,
    /// Number of live replicas, this one included.
    pub replicas: u32,
    /// Servers of these tenants.
    pub servers: ServerCounts,
    /// Number of streams on which servers announce changes to this replica.
    pub announcing: usize,
    /// State of the connections to servers.
    pub upstreams: PoolVitals,
    /// State of the database connections.
    pub store: StoreVitals,
    /// Load of the activity log.
    pub log: LogVitals,
    /// Attempts refused over a rate limit, since the start.
    pub rate_limited: u64,
    /// Requests without a valid key, since the start.
    pub strangers: u64,
}

impl Upkeep {
    /// Returns the health of this replica now.
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

    /// Returns the metrics of requests to upstreams.
    pub fn upstream_measures(&self) -> &Measures {
        self.upstreams.measures()
    }

    fn revision_lag(&self) -> i64 {
        let behind = self.behind.lock();
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
