//! Model of what agents may see of a server: the contract, sections 6 and 7, without any of the gateway's
//! code.

use std::collections::BTreeSet;

/// Tools of a server.
pub const TOOLS: usize = 3;

/// The version of a tool that says that it is destructive; every other one says that it only reads.
pub const DESTRUCTIVE: u8 = 2;

/// Override of a tool's annotations by a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// The tool is destructive, whatever its definition becomes.
    Worse,
    /// The tool only reads; this holds for the version that the person looked at.
    Harmless(u8),
}

/// Ceiling of a key: the tools that it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    All,
    Read,
}

/// A server as a history has left it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub enabled: bool,
    pub quarantined: bool,
    pub auto_approve: bool,
    /// True once a listing after the release has set the baseline.
    pub baselined: bool,
    /// True where the server answers, for each of its two places.
    pub up: [bool; 2],
    /// Index of the place at which the gateway looks for the server.
    pub place: usize,
    /// True if the server answered its last listing.
    pub connected: bool,
    /// Version of each tool that the server offers; 0 for none.
    pub offered: [u8; TOOLS],
    /// Version of each tool at the last listing; 0 for none.
    pub listed: [u8; TOOLS],
    /// Version of each tool that a person, the baseline or `auto_approve` approved.
    pub approved: [Option<u8>; TOOLS],
    pub blocked: [bool; TOOLS],
    pub said: [Option<Said>; TOOLS],
}

impl Server {
    /// Returns a server that an administrator has just added, listed at once.
    pub fn added(auto_approve: bool, offered: [u8; TOOLS]) -> Server {
        let mut server = Server {
            enabled: true,
            quarantined: false,
            auto_approve,
            baselined: false,
            up: [true; 2],
            place: 0,
            connected: false,
            offered,
            listed: [0; TOOLS],
            approved: [None; TOOLS],
            blocked: [false; TOOLS],
            said: [None; TOOLS],
        };
        server.list();
        server
    }

    /// Lists the server, and notes what the listing finds.
    pub fn list(&mut self) {
        if !self.enabled {
            return;
        }
        self.connected = self.up[self.place];
        if !self.connected {
            return;
        }
        self.listed = self.offered;
        let takes = !self.quarantined && (self.auto_approve || !self.baselined);
        for (tool, listed) in self.listed.into_iter().enumerate() {
            if takes && listed != 0 && !self.blocked[tool] {
                self.approved[tool] = Some(listed);
            }
        }
        self.baselined |= !self.quarantined;
    }

    /// Moves the server to its other place, by an operator who may not release it. Approvals are lost with
    /// the old place, blocks stay.
    pub fn moves(&mut self) {
        self.place = 1 - self.place;
        self.quarantined = true;
        self.auto_approve = false;
        self.baselined = false;
        self.connected = false;
        self.listed = [0; TOOLS];
        self.approved = [None; TOOLS];
        self.said = [None; TOOLS];
        self.list();
    }

    /// Returns whether a tool counts as one that only reads.
    fn reads(&self, tool: usize) -> bool {
        match self.said[tool] {
            Some(Said::Worse) => false,
            Some(Said::Harmless(version)) if version == self.listed[tool] => true,
            _ => self.listed[tool] != DESTRUCTIVE,
        }
    }

    /// Returns whether a key of this ceiling may see a tool.
    pub fn shows_to(&self, ceiling: Ceiling, tool: usize) -> bool {
        self.shows(tool) && (ceiling == Ceiling::All || self.reads(tool))
    }

    /// Returns whether an agent may see a tool.
    pub fn shows(&self, tool: usize) -> bool {
        let is_open = self.enabled && !self.quarantined && self.connected;
        let listed = self.listed[tool];
        is_open && listed != 0 && self.approved[tool] == Some(listed) && !self.blocked[tool]
    }
}

/// Set of possible states. The gateway also lists servers by itself, at times of its own, so that a history
/// can lead to several states. Observations decide between them.
#[derive(Clone, Debug)]
pub struct World {
    states: Vec<Vec<Server>>,
}

impl World {
    pub fn of(servers: Vec<Server>) -> World {
        World { states: vec![servers] }
    }

    /// Applies a change to one server in every state. Since the last look, the gateway may have listed any server: what a
    /// server offers then is listed before the change.
    pub fn happens(&mut self, server: usize, what: impl Fn(&mut Server)) {
        self.states = self.with_listings();
        self.states.iter_mut().for_each(|state| what(&mut state[server]));
        self.merge();
    }

    /// Returns a server in the first state. States agree on the effects of a history, and differ only in
    /// listings.
    pub fn any(&self, server: usize) -> &Server {
        &self.states[0][server]
    }

    /// Returns whether a server is equal in all states.
    pub fn is_sure_of(&self, server: usize) -> bool {
        let first = &self.states[0][server];
        self.states.iter().all(|state| state[server] == *first)
    }

    /// Keeps the states in which exactly `seen` is visible. Returns `false`, and changes nothing, if there is
    /// no such state.
    pub fn sees(&mut self, ceiling: Ceiling, seen: &BTreeSet<(usize, usize)>) -> bool {
        let states = self.with_listings().into_iter().filter(|state| shown(state, ceiling) == *seen);
        let states: Vec<Vec<Server>> = states.collect();
        if states.is_empty() {
            return false;
        }
        self.states = states;
        self.merge();
        true
    }

    /// Returns whether a tool may be seen in some state.
    pub fn may_show(&self, server: usize, tool: usize) -> bool {
        self.with_listings().iter().any(|state| state[server].shows(tool))
    }

    /// Returns what may be seen in each state, for the message of a failed check.
    pub fn expected(&self, ceiling: Ceiling) -> Vec<BTreeSet<(usize, usize)>> {
        self.with_listings().iter().map(|state| shown(state, ceiling)).collect()
    }

    /// Returns the states, and those that result from listing any of the servers.
    fn with_listings(&self) -> Vec<Vec<Server>> {
        let mut all = self.states.clone();
        for server in 0..self.states[0].len() {
            for state in all.clone() {
                let mut listed = state;
                listed[server].list();
                if !all.contains(&listed) {
                    all.push(listed);
                }
            }
        }
        all
    }

    fn merge(&mut self) {
        let mut kept: Vec<Vec<Server>> = Vec::new();
        for state in std::mem::take(&mut self.states) {
            if !kept.contains(&state) {
                kept.push(state);
            }
        }
        self.states = kept;
    }
}

fn shown(state: &[Server], ceiling: Ceiling) -> BTreeSet<(usize, usize)> {
    let all =
        state.iter().enumerate().flat_map(|(at, server)| (0..TOOLS).map(move |tool| (at, server, tool)));
    all.filter(|(_, server, tool)| server.shows_to(ceiling, *tool)).map(|(at, _, tool)| (at, tool)).collect()
}

#[test]
fn an_announced_change_may_be_listed_before_the_next_act() {
    let both = BTreeSet::from([(0, 0), (0, 1)]);
    let mut world = World::of(vec![Server::added(true, [1, 1, 0])]);
    world.happens(0, |server| server.offered[0] = DESTRUCTIVE);
    assert!(world.clone().sees(Ceiling::Read, &both), "not listed yet");
    world.happens(0, |server| server.up[0] = false);
    assert!(world.clone().sees(Ceiling::Read, &both), "never listed");
    assert!(world.clone().sees(Ceiling::Read, &BTreeSet::from([(0, 1)])), "listed before it went down");
    assert!(world.clone().sees(Ceiling::Read, &BTreeSet::new()), "listed in vain");
    assert!(!world.sees(Ceiling::Read, &BTreeSet::from([(0, 0)])));
}
