//! `mcpproxy completions`: prints completion scripts for shells.

use clap::Args;
use clap_complete::Shell;

use super::failure::Failure;
use super::output;

/// `mcpproxy completions`
#[derive(Args)]
pub struct Completions {
    /// Shell, for example: mcpproxy completions bash > ~/.local/share/bash-completion/completions/mcpproxy
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut program: clap::Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "mcpproxy", &mut script);
        output::line(String::from_utf8_lossy(&script).trim_end())
    }
}
