//! Programs that the deployment configures for stdio servers, and the tenants that may use them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// `PATH` of programs whose entry sets none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Name in an entry's list of tenants that stands for every tenant.
const ALL: &str = "*";
/// Shortest environment value that is masked in a program's output, in bytes: shorter values are common words.
const SECRET_BYTES_MIN: usize = 6;

/// Program that tenants may run as an upstream server.
pub struct ProgramCommand {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    tenants: Vec<String>,
}

impl fmt::Debug for ProgramCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // arguments and environment may hold secrets
        f.debug_struct("Command").finish_non_exhaustive()
    }
}

impl ProgramCommand {
    /// Creates a program from its command line, its environment and the names of the tenants that may use it. `*`
    /// stands for every tenant. The environment is complete, except that a missing `PATH` gets a default.
    pub fn new(argv: Vec<String>, mut env: BTreeMap<String, String>, tenants: Vec<String>) -> ProgramCommand {
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        ProgramCommand { argv, env, tenants }
    }

    /// Returns the program and its arguments; `None` if the command line is empty.
    pub(in crate::upstream) fn argv(&self) -> Option<(&str, &[String])> {
        self.argv.split_first().map(|(program, arguments)| (program.as_str(), arguments))
    }

    /// Returns the whole environment of the program.
    pub(in crate::upstream) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Returns the environment values to mask in the program's output: all but `PATH`, `HOME` and values under 6
    /// bytes.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let env = self.env.iter().filter(|(name, _)| *name != "PATH" && *name != "HOME");
        env.map(|(_, value)| value.as_str()).filter(|value| value.len() >= SECRET_BYTES_MIN)
    }

    /// Returns whether both run the same program in the same way, whoever may use it.
    pub(super) fn runs_as(&self, other: &ProgramCommand) -> bool {
        self.argv == other.argv && self.env == other.env
    }

    fn is_for(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|name| name == ALL || name == tenant)
    }
}

/// Reason why a server's program cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCommand {
    /// The deployment runs no programs.
    Off,
    /// The deployment has no program of this name for this tenant.
    Unknown,
}

impl NoCommand {
    /// Returns the reason as a sentence for callers.
    pub fn sentence(self) -> &'static str {
        match self {
            NoCommand::Off => "this deployment runs no stdio servers (stdio.enabled)",
            NoCommand::Unknown => "this deployment has no command of this name for this tenant",
        }
    }
}

/// Programs that the deployment configures; they may be replaced while the gateway runs.
#[derive(Debug, Default)]
pub struct Commands {
    now: ArcSwap<Offered>,
}

/// Programs of the deployment, as one reading of its settings names them.
#[derive(Debug, Default)]
struct Offered {
    /// Number of replacements before.
    generation: u64,
    /// Programs by name; `None` if stdio servers are switched off.
    by_name: Option<BTreeMap<String, Arc<ProgramCommand>>>,
}

/// Result of a look-up: the program, or why there is none, and the number of replacements before.
pub(super) type LookedUp = (Result<Arc<ProgramCommand>, NoCommand>, u64);

impl Commands {
    /// Creates the set of programs from their names and commands.
    pub fn new(by_name: BTreeMap<String, ProgramCommand>) -> Commands {
        let commands = Commands {
            now: ArcSwap::from_pointee(Offered { generation: 0, by_name: Some(BTreeMap::new()) }),
        };
        commands.replace(by_name);
        commands
    }

    /// Replaces all programs, unless the deployment runs none. Programs that run are not touched.
    pub fn replace(&self, by_name: BTreeMap<String, ProgramCommand>) {
        if self.are_off() {
            return;
        }
        let by_name: BTreeMap<_, _> =
            by_name.into_iter().map(|(name, command)| (name, Arc::new(command))).collect();
        self.now.rcu(|before| Offered { generation: before.generation + 1, by_name: Some(by_name.clone()) });
    }

    /// Creates the set of a deployment that runs no programs.
    pub fn off() -> Commands {
        Commands::default()
    }

    /// Returns the program `name` if the tenant may use it.
    ///
    /// # Errors
    /// [`NoCommand::Off`] if the deployment runs no programs; [`NoCommand::Unknown`] if the program does not exist or
    /// is not for this tenant.
    pub fn find(&self, name: &str, tenant: &str) -> Result<Arc<ProgramCommand>, NoCommand> {
        self.look_up(name, tenant).0
    }

    pub(super) fn look_up(&self, name: &str, tenant: &str) -> LookedUp {
        let now = self.now.load();
        let found = match &now.by_name {
            None => Err(NoCommand::Off),
            Some(by_name) => {
                by_name.get(name).filter(|command| command.is_for(tenant)).cloned().ok_or(NoCommand::Unknown)
            }
        };
        (found, now.generation)
    }

    /// Returns whether the deployment runs no programs.
    pub fn are_off(&self) -> bool {
        self.now.load().by_name.is_none()
    }

    /// Returns the names of the programs that this tenant may use.
    pub fn names_for(&self, tenant: &str) -> Vec<String> {
        let now = self.now.load();
        let all = now.by_name.iter().flatten();
        all.filter(|(_, command)| command.is_for(tenant)).map(|(name, _)| name.clone()).collect()
    }
}
