//! Settings as they were given, to take some of them again while the gateway runs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::error::ConfigError;
use super::layers::{self, Layer};
use super::stdio::StdioCommand;
use super::{Sections, environment, read};

/// Settings that may change while the gateway runs.
const LIVE: [&str; 3] = ["egress.allow", "stdio.commands", "telemetry.log_filter"];

/// Settings as they were given, with the file that they can be read from again.
#[derive(Clone)]
pub struct GivenSettings {
    file: Option<PathBuf>,
    settings: Layer,
}

impl fmt::Debug for GivenSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the settings hold secrets
        f.debug_struct("GivenSettings").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Settings that were read again.
#[derive(Debug)]
pub struct LaterSettings {
    /// Networks that are not public and in which upstreams are allowed all the same.
    pub egress_allow: Vec<IpNet>,
    /// Programs that tenants may run as upstream servers, by name.
    pub stdio_commands: BTreeMap<String, StdioCommand>,
    /// Filter directives of the log.
    pub log_filter: String,
    /// Names of the settings above that have another value than before.
    pub changed: Vec<String>,
    /// Names of other settings that have another value than at the start.
    pub needs_restart: Vec<String>,
    /// Settings in force once those above are.
    pub given: GivenSettings,
}

impl GivenSettings {
    pub(super) fn new(file: Option<&Path>, settings: Layer) -> GivenSettings {
        GivenSettings { file: file.map(Path::to_owned), settings }
    }

    /// Reads the file again, under the same environment, and checks every setting as at the start.
    ///
    /// # Errors
    /// [`ConfigError::NoFile`] if no file was given at the start; otherwise as [`super::Config::load`].
    pub fn reread(&self) -> Result<LaterSettings, ConfigError> {
        let file = self.file.as_deref().ok_or(ConfigError::NoFile)?;
        let (settings, _) = read(Some(file), environment::of_process()?.into_iter())?;
        let sections: Sections = layers::deserialize(&settings)?;
        let differs = |name: &String| {
            let value = |layer: &Layer| layer.get(name).map(|setting| setting.value.clone());
            value(&settings) != value(&self.settings)
        };
        let (changed, needs_restart) = settings
            .keys()
            .filter(|name| differs(name))
            .cloned()
            .partition(|name| LIVE.contains(&name.as_str()));
        let mut given = self.clone();
        let live = settings.iter().filter(|(name, _)| LIVE.contains(&name.as_str()));
        given.settings.extend(live.map(|(name, setting)| (name.clone(), setting.clone())));
        Ok(LaterSettings {
            egress_allow: sections.egress.allow,
            stdio_commands: sections.stdio.commands,
            log_filter: sections.telemetry.log_filter,
            changed,
            needs_restart,
            given,
        })
    }
}
