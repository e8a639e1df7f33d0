//! Servers that are programs of the deployment.

use std::sync::Arc;

use super::Described;
use crate::domain::span::Span;
use crate::upstream::target::command::{NoCommand, ProgramCommand};

/// Program of a stdio server.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the program's entry in the deployment.
    pub name: String,
    /// Entry of the program, or the reason why this tenant has none.
    pub command: Result<Arc<ProgramCommand>, NoCommand>,
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
