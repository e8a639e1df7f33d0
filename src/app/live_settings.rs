//! Settings that change while the gateway runs: read again from the file, and put into force.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::config::{Config, GivenSettings, StdioCommand};
use super::telemetry::LogDirectives;
use crate::gateway::{LiveSettings, Reread};
use crate::upstream::{Commands, Egress, ProgramCommand};

/// Settings file of this process, and the parts that follow it.
#[derive(Debug)]
pub(super) struct SettingsInForce {
    given: Mutex<GivenSettings>,
    log_filter: LogDirectives,
    commands: Arc<Commands>,
    egress: Arc<Egress>,
}

impl SettingsInForce {
    pub(super) fn new(
        config: &Config,
        log_filter: &LogDirectives,
        commands: &Arc<Commands>,
        egress: &Arc<Egress>,
    ) -> SettingsInForce {
        SettingsInForce {
            given: Mutex::new(config.given.clone()),
            log_filter: log_filter.clone(),
            commands: Arc::clone(commands),
            egress: Arc::clone(egress),
        }
    }
}

impl LiveSettings for SettingsInForce {
    fn reread(&self) -> Result<Reread, String> {
        let mut given = self.given.lock();
        // all of it is checked here: nothing below can fail half-way
        let later = given.reread().map_err(|error| error.to_string())?;
        self.egress.allow_only(later.egress_allow);
        self.commands.replace(by_name(&later.stdio_commands));
        self.log_filter.set(&later.log_filter);
        *given = later.given;
        Ok(Reread { changed: later.changed, needs_restart: later.needs_restart })
    }
}

/// Returns the programs that tenants may run on this replica.
pub(super) fn commands(config: &Config) -> Arc<Commands> {
    Arc::new(match config.stdio_enabled {
        true => Commands::new(by_name(&config.stdio_commands)),
        false => Commands::off(),
    })
}

fn by_name(commands: &BTreeMap<String, StdioCommand>) -> BTreeMap<String, ProgramCommand> {
    let command = |entry: &StdioCommand| {
        let env = entry.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        ProgramCommand::new(entry.argv.clone(), env.collect(), entry.tenants.clone())
    };
    commands.iter().map(|(name, entry)| (name.clone(), command(entry))).collect()
}
