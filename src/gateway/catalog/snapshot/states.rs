//! States of a catalogue's servers, for `/events` and other followers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Catalog;
use crate::domain::tool::PinState;
use crate::gateway::catalog::tool::ServerEntry;

/// State of a server at one revision of the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerState {
    /// True if the server is switched on.
    pub enabled: bool,
    /// True if agents see none of its tools and offers.
    pub quarantined: bool,
    /// True if the server was listed or pinged successfully a short while ago.
    pub connected: bool,
    /// Number of approved tools.
    pub approved: usize,
    /// Number of new tools without a decision.
    pub pending: usize,
    /// Number of tools whose definition differs from the approved one.
    pub changed: usize,
    /// Number of blocked tools.
    pub blocked: usize,
    /// Number of prompts, resources and templates that wait for a decision.
    pub waiting_offers: usize,
}

/// State of every server, by server name.
pub type ServerStates = BTreeMap<String, ServerState>;

impl Catalog {
    /// Returns the state of every server, counted once per catalogue.
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
        for server in self.servers() {
            if let Some(state) = states.get_mut(&server.name) {
                state.waiting_offers = self.offers().waiting_at(server.id);
            }
        }
        states
    }
}
