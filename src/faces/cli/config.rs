//! `mcpproxy config`: what a gateway started here would be told. It asks no gateway: the composition root reads the
//! configuration, this shows it.

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
    /// Say whether `serve` would start with it, and what to correct if not; nothing is written or connected
    Check,
    /// Show every setting, where it was given, and what it is; secrets are left out
    Show {
        /// Only what is not the default
        #[arg(long)]
        changed: bool,
        #[command(flatten)]
        output: Output,
    },
}

/// A configuration as it was found to be.
pub struct FoundSettings {
    /// Each setting.
    pub settings: Vec<FoundSetting>,
    /// Sentences about the whole.
    pub notes: Vec<String>,
}

/// One setting.
pub struct FoundSetting {
    /// Its dotted name.
    pub name: String,
    /// Its value, if it is no secret.
    pub value: String,
    /// Where it was given.
    pub origin: String,
    /// Whether that is the built-in default.
    pub is_default: bool,
}

const COLUMNS: [Column; 3] = [
    ("SETTING", |setting| text(setting, "name")),
    ("VALUE", |setting| text(setting, "value")),
    ("FROM", |setting| text(setting, "origin")),
];

impl ConfigCommand {
    /// The configuration file that was named.
    pub fn file(&self) -> Option<&std::path::Path> {
        self.config.as_deref()
    }

    /// Shows what was asked for of a configuration that can be used.
    ///
    /// # Errors
    /// Nobody reads the output.
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
