//! Who is told that its lists are other ones: streams that clients hold open on `/mcp/direct`.
//!
//! Streams that see the same are one group, which is woken when what it sees has changed, and by nothing else. What is
//! seen is compared by fingerprints, on this replica's own snapshots: a notice of the database only makes it reload.

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

/// Signals that a stream may be behind; one that is further behind looks at everything anew.
const SIGNALS_MAX: usize = 64;

/// What somebody sees, as fingerprints: equal ones are equal lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prints {
    /// Of the tools.
    pub tools: Fingerprint,
    /// Of the prompts.
    pub prompts: Fingerprint,
    /// Of the resources and their templates, of which changes are told together.
    pub resources: Fingerprint,
}

impl Prints {
    fn of(view: &DirectView) -> Prints {
        Prints { tools: view.print, prompts: view.prompts_print, resources: view.resources_print }
    }
}

/// What streams of a tenant are told besides other lists.
#[derive(Clone, Debug)]
pub(in crate::gateway::tenants) enum Signal {
    /// Keys or settings are other ones, or whose they are must be asked again.
    Access,
    /// Keys were served lists that were out of date.
    Misled(Arc<[WasMisled]>),
    /// Such signals were lost since then.
    Deaf(Instant),
}

/// The open streams of a tenant on this replica, and the lists it was served of late.
#[derive(Debug)]
pub(in crate::gateway) struct Fanout {
    pub(in crate::gateway::tenants) groups: Groups,
    pub(in crate::gateway::tenants) signals: broadcast::Sender<Signal>,
    /// Beats with every catalogue.
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
    /// Whether anybody follows the state of the servers.
    pub(in crate::gateway) fn is_followed(&self) -> bool {
        self.moved.receiver_count() > 0
    }

    /// There is another catalogue. After the swap.
    pub(in crate::gateway) fn moved(&self, live: &Arc<LiveTenant>) {
        self.moved.send_replace(());
        self.groups.stir(live);
    }

    /// Keys or settings have changed, or nothing is as sure as it was: every stream looks whether it may go on.
    pub(in crate::gateway) fn check(&self) {
        // nobody listens: nobody is told
        drop(self.signals.send(Signal::Access));
    }

    /// A replica's listener was deaf since this moment: what other replicas say besides changes was lost.
    pub(in crate::gateway) fn gap(&self, since: Instant) {
        drop(self.signals.send(Signal::Deaf(since)));
    }
}
