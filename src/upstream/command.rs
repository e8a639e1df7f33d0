//! The deployment's programs: what the API may name, and who may use it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Where programs are looked for whose entry sets no `PATH`.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Stands for every tenant.
const ALL: &str = "*";
/// Shortest value of the environment that is looked for in what a program writes, in bytes: shorter ones are
/// words, and stand everywhere.
const SECRET_BYTES_MIN: usize = 6;

/// A program that tenants may run as an upstream server.
pub struct ProgramCommand {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    tenants: Vec<String>,
}

impl fmt::Debug for ProgramCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // both may hold secrets
        f.debug_struct("Command").finish_non_exhaustive()
    }
}

impl ProgramCommand {
    /// A program with its arguments, its whole environment, and the names of the tenants that may use it.
    pub fn new(argv: Vec<String>, mut env: BTreeMap<String, String>, tenants: Vec<String>) -> ProgramCommand {
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        ProgramCommand { argv, env, tenants }
    }

    /// The program and its arguments.
    pub(super) fn argv(&self) -> Option<(&str, &[String])> {
        self.argv.split_first().map(|(program, arguments)| (program.as_str(), arguments))
    }

    /// Its whole environment.
    pub(super) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Values of its environment that nobody else may see.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let env = self.env.iter().filter(|(name, _)| *name != "PATH" && *name != "HOME");
        env.map(|(_, value)| value.as_str()).filter(|value| value.len() >= SECRET_BYTES_MIN)
    }

    fn is_for(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|name| name == ALL || name == tenant)
    }
}

/// Why a server's program cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCommand {
    /// The deployment runs no programs.
    Off,
    /// It has none of this name for this tenant.
    Unknown,
}

impl NoCommand {
    /// A sentence for callers.
    pub fn sentence(self) -> &'static str {
        match self {
            NoCommand::Off => "this deployment runs no stdio servers (stdio.enabled)",
            NoCommand::Unknown => "this deployment has no command of this name for this tenant",
        }
    }
}

/// All programs of the deployment.
#[derive(Debug, Default)]
pub struct Commands {
    /// `None`: switched off.
    by_name: Option<BTreeMap<String, Arc<ProgramCommand>>>,
}

impl Commands {
    /// These programs by name.
    pub fn new(by_name: BTreeMap<String, ProgramCommand>) -> Commands {
        let by_name = by_name.into_iter().map(|(name, command)| (name, Arc::new(command)));
        Commands { by_name: Some(by_name.collect()) }
    }

    /// None at all.
    pub fn off() -> Commands {
        Commands::default()
    }

    /// A program that this tenant may use.
    ///
    /// # Errors
    /// One that does not exist and one that is not for this tenant are the same.
    pub fn find(&self, name: &str, tenant: &str) -> Result<Arc<ProgramCommand>, NoCommand> {
        let by_name = self.by_name.as_ref().ok_or(NoCommand::Off)?;
        by_name.get(name).filter(|command| command.is_for(tenant)).cloned().ok_or(NoCommand::Unknown)
    }

    /// Whether the deployment runs none.
    pub fn are_off(&self) -> bool {
        self.by_name.is_none()
    }

    /// The names of the programs that this tenant may use.
    pub fn names_for(&self, tenant: &str) -> Vec<&str> {
        let all = self.by_name.iter().flatten();
        all.filter(|(_, command)| command.is_for(tenant)).map(|(name, _)| name.as_str()).collect()
    }
}
