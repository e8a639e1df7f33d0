//! `mcpproxy man`: writes manual pages, for packages.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;

/// `mcpproxy man`
#[derive(Args)]
pub struct ManualPages {
    /// Folder for the pages; created if needed
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl ManualPages {
    pub(super) fn run(self, program: clap::Command) -> Result<(), Failure> {
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(program, &self.folder));
        written.map_err(|error| {
            Failure::Unwritten(format!("{}: {error}; give a folder that is yours", self.folder.display()))
        })
    }
}
