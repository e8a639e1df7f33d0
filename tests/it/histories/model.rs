//! What agents may see of a server, said once more and shortly: the contract, sections 6 and 7, without any of the
//! gateway's code.

use std::collections::BTreeSet;

/// Tools of a server.
pub const TOOLS: usize = 3;

/// The version of a tool that says that it is destructive; every other one says that it only reads.
pub const DESTRUCTIVE: u8 = 2;

/// What a person said of a tool, in the place of what its server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// That it is destructive: it holds whatever the definition becomes.
    Worse,
    /// That it only reads: it holds for the version that was looked at.
    Harmless(u8),
}

/// Which tools a key may use.
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
    /// Its first listing after a release is taken as it is.
    pub baselined: bool,
    /// Whether it answers, at each of the places where it can be.
    pub up: [bool; 2],
    /// Where the gateway looks for it.
    pub place: usize,
    /// Whether it did when it was listed last.
    pub connected: bool,
    /// The version of each tool that it offers; 0 for none.
    pub offered: [u8; TOOLS],
    /// The version of each tool that was listed last.
    pub listed: [u8; TOOLS],
    /// What a person, the baseline or `auto_approve` took.
    pub approved: [Option<u8>; TOOLS],
    pub blocked: [bool; TOOLS],
    pub said: [Option<Said>; TOOLS],
}

impl Server {
    /// Just added by an administrator, and listed at once.
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

    /// What a listing finds.
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

    /// Somebody who may not release it says that it is at its other place. What was trusted was trusted there, and what
    /// is blocked stays blocked.
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

    /// Whether a tool counts as one that only reads.
    fn reads(&self, tool: usize) -> bool {
        match self.said[tool] {
            Some(Said::Worse) => false,
            Some(Said::Harmless(version)) if version == self.listed[tool] => true,
            _ => self.listed[tool] != DESTRUCTIVE,
        }
    }

    /// Whether a key of this ceiling may see a tool.
    pub fn shows_to(&self, ceiling: Ceiling, tool: usize) -> bool {
        self.shows(tool) && (ceiling == Ceiling::All || self.reads(tool))
    }

    /// Whether an agent may see a tool.
    pub fn shows(&self, tool: usize) -> bool {
        let is_open = self.enabled && !self.quarantined && self.connected;
        let listed = self.listed[tool];
        is_open && listed != 0 && self.approved[tool] == Some(listed) && !self.blocked[tool]
    }
}

/// All that may be the case. The gateway lists a server by itself as well, at moments of its own, so a history can leave
/// more than one state; what is seen decides between them.
#[derive(Clone, Debug)]
pub struct World {
    states: Vec<Vec<Server>>,
}

impl World {
    pub fn of(servers: Vec<Server>) -> World {
        World { states: vec![servers] }
    }

    /// Something happens to one server, whichever state it is in.
    pub fn happens(&mut self, server: usize, what: impl Fn(&mut Server)) {
        self.states.iter_mut().for_each(|state| what(&mut state[server]));
        self.merge();
    }

    /// In any state; all agree on what histories do, and differ only in what was listed.
    pub fn any(&self, server: usize) -> &Server {
        &self.states[0][server]
    }

    /// Whether in every state the tool was listed last in the version that is offered.
    pub fn is_sure_of(&self, server: usize) -> bool {
        let first = &self.states[0][server];
        self.states.iter().all(|state| state[server] == *first)
    }

    /// What was seen is among what may be the case: the rest is not. `false` when nothing is left, and then nothing has
    /// changed.
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

    /// Whether this tool may be seen in some state.
    pub fn may_show(&self, server: usize, tool: usize) -> bool {
        self.with_listings().iter().any(|state| state[server].shows(tool))
    }

    /// All of it that may be seen, for whoever wants to know why it is not.
    pub fn expected(&self, ceiling: Ceiling) -> Vec<BTreeSet<(usize, usize)>> {
        self.with_listings().iter().map(|state| shown(state, ceiling)).collect()
    }

    /// These states, and what they become when any servers are listed.
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
