//! Servers that are programs of the deployment.

use std::sync::Arc;

use super::Described;
use crate::domain::span::Span;
use crate::upstream::target::command::{Commands, NoCommand, ProgramCommand};

/// Program of a stdio server.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the program's entry in the deployment.
    pub name: String,
    /// Entry of the program, or the reason why this tenant has none.
    pub command: Result<Arc<ProgramCommand>, NoCommand>,
    /// Number of times that the deployment's programs had been replaced when the entry was looked up.
    pub generation: u64,
}

impl Program {
    /// Returns the program of a server of this tenant, as the deployment has it now.
    pub fn find(commands: &Commands, name: &str, tenant: &str) -> Program {
        let (command, generation) = commands.look_up(name, tenant);
        Program { name: name.to_owned(), command, generation }
    }

    /// Returns whether both run the same program in the same way, or neither runs any.
    pub(super) fn is_same(&self, other: &Program) -> bool {
        self.name == other.name
            && match (&self.command, &other.command) {
                (Ok(own), Ok(other)) => own.runs_as(other),
                (own, other) => own.as_ref().err() == other.as_ref().err(),
            }
    }
}

impl Described for Program {
    fn is_run_here(&self) -> bool {
        true
    }

    fn obstacle(&self) -> Option<&'static str> {
        self.command.as_ref().err().map(|why| why.sentence())
    }

    fn secrets(&self) -> Vec<&str> {
        self.command.iter().flat_map(|command| command.secrets()).collect()
    }

    fn binding(&self) -> String {
        format!("program {}", self.name)
    }

    fn tell(&self, span: &mut Span) {
        span.set("network.transport", "pipe");
    }
}
