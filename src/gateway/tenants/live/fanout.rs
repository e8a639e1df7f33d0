//! Notifications of changed lists to the streams that clients hold open on `/mcp/direct`.
//!
//! Streams that see the same lists form one group, which is woken only when those lists have changed. Fingerprints on this
//! replica's own snapshots are compared; a notice of the database only triggers a reload.

mod groups;
pub(in crate::gateway::tenants) mod served;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{broadcast, watch};

use self::groups::Groups;
use self::served::{Served, WasMisled};
use super::LiveTenant;
use crate::domain::fingerprint::Fingerprint;
use crate::gateway::catalog::DirectView;

/// Signals buffered per stream; a stream that falls further behind checks everything again.
const SIGNALS_MAX: usize = 64;

/// Fingerprints of the lists that a caller sees: equal fingerprints are equal lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prints {
    /// Fingerprint of the tools.
    pub tools: Fingerprint,
    /// Fingerprint of the prompts.
    pub prompts: Fingerprint,
    /// Fingerprint of resources and templates, whose changes share one notification.
    pub resources: Fingerprint,
}

impl Prints {
    fn of(view: &DirectView) -> Prints {
        Prints { tools: view.print, prompts: view.prompts_print, resources: view.resources_print }
    }
}

/// Signal to a tenant's streams, other than changed lists.
#[derive(Clone, Debug)]
pub(in crate::gateway::tenants) enum Signal {
    /// Keys or settings may have changed: each stream must check whether it may go on.
    Access,
    /// Keys were served outdated lists.
    Misled(Arc<[WasMisled]>),
    /// Notices of outdated lists were lost since this moment.
    Deaf(Instant),
}

/// Open streams of a tenant on this replica, and the lists it served lately.
#[derive(Debug)]
pub(in crate::gateway) struct Fanout {
    pub(in crate::gateway::tenants) groups: Groups,
    pub(in crate::gateway::tenants) signals: broadcast::Sender<Signal>,
    /// Notified with every new catalogue.
    pub(in crate::gateway::tenants) moved: watch::Sender<()>,
    pub(in crate::gateway::tenants) served: Served,
}

impl Default for Fanout {
    fn default() -> Fanout {
        Fanout {
            groups: Groups::default(),
            signals: broadcast::Sender::new(SIGNALS_MAX),
            moved: watch::Sender::default(),
            served: Served::default(),
        }
    }
}

impl Fanout {
    /// Returns whether any stream follows the states of the servers.
    pub(in crate::gateway) fn is_followed(&self) -> bool {
        self.moved.receiver_count() > 0
    }

    /// Notifies the streams after a new catalogue was swapped in.
    pub(in crate::gateway) fn moved(&self, live: &Arc<LiveTenant>) {
        self.moved.send_replace(());
        self.groups.stir(live);
    }

    /// Makes every stream check whether it may go on, after a change of keys or settings, or when they can no longer be
    /// confirmed.
    pub(in crate::gateway) fn check(&self) {
        // fails only without open streams
        drop(self.signals.send(Signal::Access));
    }

    /// Notifies the streams that this replica received no notices since this moment, so notices of outdated lists were lost.
    pub(in crate::gateway) fn gap(&self, since: Instant) {
        drop(self.signals.send(Signal::Deaf(since)));
    }
}
