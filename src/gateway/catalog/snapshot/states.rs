//! What state the servers are in, for whoever follows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Catalog;
use crate::domain::tool::PinState;
use crate::gateway::catalog::tool::ServerEntry;

/// A server at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerState {
    /// Switched on.
    pub enabled: bool,
    /// Nothing of it is shown to agents.
    pub quarantined: bool,
    /// Listed or pinged successfully a short while ago.
    pub connected: bool,
    /// Tools that agents may have.
    pub approved: usize,
    /// Tools that nobody has looked at.
    pub pending: usize,
    /// Tools that are not what was approved.
    pub changed: usize,
    /// Tools that somebody refused.
    pub blocked: usize,
}

/// The state of every server, by name.
pub type ServerStates = BTreeMap<String, ServerState>;

impl Catalog {
    /// The state of every server, counted once for all who ask.
    pub fn states(&self) -> Arc<ServerStates> {
        Arc::clone(self.states.get_or_init(|| Arc::new(self.count_states())))
    }

    fn count_states(&self) -> ServerStates {
        let state = |server: &Arc<ServerEntry>| {
            let state = ServerState {
                enabled: server.enabled,
                quarantined: server.quarantined,
                connected: server.connected,
                ..ServerState::default()
            };
            (server.name.clone(), state)
        };
        let mut states: ServerStates = self.servers().iter().map(state).collect();
        for tool in self.all_tools() {
            let Some(state) = states.get_mut(&tool.server.name) else { continue };
            *match tool.state {
                PinState::Approved => &mut state.approved,
                PinState::Pending => &mut state.pending,
                PinState::Changed => &mut state.changed,
                PinState::Blocked => &mut state.blocked,
            } += 1;
        }
        states
    }
}
