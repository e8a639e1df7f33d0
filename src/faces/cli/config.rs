//! `mcpproxy config`: checks and shows the configuration that `serve` would use. No gateway is asked: the composition root
//! reads the configuration, and this module shows it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json, value::to_raw_value};

use super::failure::Failure;
use super::output::{self, Column, Output, text};

/// `mcpproxy config`
#[derive(Args)]
pub struct ConfigCommand {
    #[command(subcommand)]
    command: Command,
    /// Configuration file (TOML); the environment (MCPPROXY__SECTION__KEY) wins over it
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Check whether `serve` would start, and say what to correct; nothing is written or connected
    Check,
    /// Show every setting with its value and origin; secrets are redacted
    Show {
        /// Show only settings that are not the default
        #[arg(long)]
        changed: bool,
        #[command(flatten)]
        output: Output,
    },
}

/// Configuration as found in the file and the environment.
pub struct FoundSettings {
    /// All settings.
    pub settings: Vec<FoundSetting>,
    /// Remarks on the configuration as a whole.
    pub notes: Vec<String>,
}

/// Setting with its value and origin.
pub struct FoundSetting {
    /// Dotted name of the setting.
    pub name: String,
    /// Value of the setting; `[redacted]` for a secret.
    pub value: String,
    /// Origin of the value, for example the default, the file or an environment variable.
    pub origin: String,
    /// Whether the value is the built-in default.
    pub is_default: bool,
}

const COLUMNS: [Column; 3] = [
    ("SETTING", |setting| text(setting, "name")),
    ("VALUE", |setting| text(setting, "value")),
    ("FROM", |setting| text(setting, "origin")),
];

impl ConfigCommand {
    /// Returns the configuration file named on the command line.
    pub fn file(&self) -> Option<&std::path::Path> {
        self.config.as_deref()
    }

    /// Prints the result of the command for a usable configuration.
    ///
    /// # Errors
    /// The output cannot be written, or not in the requested format.
    pub fn show(self, found: &FoundSettings) -> Result<(), Failure> {
        match self.command {
            Command::Check => {
                let given = found.settings.iter().filter(|setting| !setting.is_default).count();
                output::line(&format!(
                    "The configuration can be used: {given} of {} settings are given.",
                    found.settings.len()
                ))?;
                found.notes.iter().try_for_each(|note| output::line(note))
            }
            Command::Show { changed, output } => {
                let shown = found.settings.iter().filter(|setting| !(changed && setting.is_default));
                let items: Vec<Value> = shown
                    .map(|setting| {
                        json!({"name": setting.name, "value": setting.value, "origin": setting.origin})
                    })
                    .collect();
                let raw = items.iter().map(to_raw_value).collect::<Result<Vec<_>, _>>();
                output.items(&raw.map_err(|error| Failure::Usage(error.to_string()))?, &COLUMNS)
            }
        }
    }
}
