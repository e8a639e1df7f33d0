//! Configuration: the built-in `default.toml`, then a file, then the environment; the later wins.
//!
//! Only this module reads the environment. A setting that is unknown, malformed or weak stops the start. The error is a
//! sentence that names the setting, its source and what to do, but never a value.

mod environment;
mod error;
mod fields;
mod given;
mod layers;
mod names;
mod policy;
mod rules;
mod search;
mod secret;
mod secret_files;
mod sections;
mod stdio;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use crate::domain::policy::RuleSet;
use crate::domain::settings::Defaults;
use environment::Ambient;
use layers::Layer;

pub use error::ConfigError;
pub use given::GivenSettings;
pub use search::EmbeddingsSettings;
pub use secret::{MasterKey, Secret, named_key};
pub use sections::{
    Activity, ConsoleSettings, Database, DatabaseLocation, Direct, IdentitySettings, LimitSettings,
    LogFormat, OauthSettings, OtlpProtocol, ServerSettings, Telemetry,
};
pub use stdio::StdioCommand;

/// Complete configuration of a gateway, read at its start. A few settings may change while it runs ([`GivenSettings`]);
/// a change of the others needs a restart.
#[derive(Clone, Debug)]
pub struct Config {
    /// Listeners and what they accept.
    pub server: ServerSettings,
    /// Location of the database, and how to connect to it.
    pub database: Database,
    /// Bootstrap key: the API key of the platform operator.
    pub bootstrap_key: Secret,
    /// File of the generated bootstrap key; `None` if the key is configured.
    pub bootstrap_key_file: Option<PathBuf>,
    /// Longest time that access data may go unconfirmed by the database before requests are answered 503.
    pub stale_max: Duration,
    /// Keys of session ids: never empty, the first signs, all verify.
    pub session_keys: Vec<Secret>,
    /// Keys of sealed credentials: never empty, the first encrypts, all decrypt.
    pub master_keys: Vec<MasterKey>,
    /// Settings of logins with an identity provider.
    pub identity: IdentitySettings,
    /// Settings of the console.
    pub console: ConsoleSettings,
    /// Settings of logins by browser.
    pub oauth: OauthSettings,
    /// Networks that are not public and in which upstreams are allowed all the same.
    pub egress_allow: Vec<IpNet>,
    /// Setting `stdio.enabled`: programs may run as upstream servers.
    pub stdio_enabled: bool,
    /// Setting `stdio.hide_data_dir`: programs of stdio servers have no access to files in `data_dir`.
    pub stdio_hide_data_dir: bool,
    /// Programs that tenants may run as upstream servers, by name.
    pub stdio_commands: BTreeMap<String, StdioCommand>,
    /// Embeddings service that helps with searches; `None` for none.
    pub embeddings: Option<EmbeddingsSettings>,
    /// Settings of `/mcp/direct`.
    pub direct: Direct,
    /// Settings of the activity log.
    pub activity: Activity,
    /// Default settings of keys, where neither the key nor its tenant sets others.
    pub defaults: Defaults,
    /// Rules of the deployment, from `policy.file`.
    pub policy: Arc<RuleSet>,
    /// Settings of logs, traces and metrics.
    pub telemetry: Telemetry,
    /// Limits that an operator may change.
    pub limits: LimitSettings,
    /// Settings as they were given.
    pub given: GivenSettings,
    /// Environment that the program detected at its start.
    pub host: Host,
}

/// Environment that the program detected at its start.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// True inside a pod of a Kubernetes cluster.
    pub in_kubernetes: bool,
    /// True inside mcpproxy's container image, which holds no other program.
    pub in_image: bool,
    /// Folders of `PATH`; only absolute ones.
    pub search_path: Vec<PathBuf>,
}

/// Effective value of a setting, for display to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Dotted name of the setting.
    pub name: String,
    /// Value of the setting; `[redacted]` for secrets.
    pub value: String,
    /// Source of the value, in words.
    pub origin: String,
}

impl EffectiveSetting {
    /// Returns whether the value is the built-in default.
    pub fn is_default(&self) -> bool {
        self.origin == layers::LayerOrigin::Default.to_string()
    }
}

/// A configuration that was read and found usable; nothing was written or generated for it.
#[derive(Debug)]
pub struct Review {
    /// All settings, in the order of their names.
    pub settings: Vec<EffectiveSetting>,
    /// Location of the database.
    pub location: DatabaseLocation,
    /// Names of the secrets that the first start generates.
    pub to_generate: Vec<&'static str>,
}

impl Review {
    /// Reads the configuration as [`Config::load_from_process`] does.
    ///
    /// # Errors
    /// As [`Config::load_from_process`].
    pub fn load_from_process(file: Option<&Path>) -> Result<Review, ConfigError> {
        Review::load(file, environment::of_process()?.into_iter())
    }

    /// Reads the configuration as [`Config::load`] does.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Review, ConfigError> {
        let (settings, ambient) = read(file, environment)?;
        let mut sections: Sections = layers::deserialize(&settings)?;
        let location = sections.database.location(&sections.data_dir, &ambient)?;
        sections.policy.rules()?;
        let to_generate = secret_files::to_generate(sections.take_keys(), &location)?;
        let shown = settings.iter().map(|(name, setting)| EffectiveSetting {
            name: name.clone(),
            value: values::shown(name, &setting.value),
            origin: setting.origin.to_string(),
        });
        Ok(Review { settings: shown.collect(), location, to_generate })
    }
}

impl Config {
    /// Reads the configuration from the built-in defaults, `file` and the given environment.
    ///
    /// Without a database URL, secrets that are not given are read from `data_dir/secrets`, and generated there first
    /// if need be. Nothing else is written.
    ///
    /// # Errors
    /// One sentence that names what is wrong, where it was given and what to do.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Config, ConfigError> {
        let (settings, ambient) = read(file, environment)?;
        let mut sections: Sections = layers::deserialize(&settings)?;
        let location = sections.database.location(&sections.data_dir, &ambient)?;
        let policy = sections.policy.rules()?;
        let keys = secret_files::resolve(sections.take_keys(), &location)?;
        Ok(Config {
            server: sections.server,
            database: sections.database.with_location(location),
            bootstrap_key: keys.bootstrap,
            bootstrap_key_file: keys.bootstrap_file,
            stale_max: sections.auth.stale_max,
            session_keys: keys.sessions,
            master_keys: keys.master,
            identity: sections.identity,
            console: sections.console,
            oauth: sections.oauth,
            egress_allow: sections.egress.allow,
            stdio_enabled: sections.stdio.enabled.holds(ambient.host.in_kubernetes),
            stdio_hide_data_dir: sections.stdio.hide_data_dir,
            stdio_commands: sections.stdio.commands,
            embeddings: Some(sections.search).filter(|service| !service.url.is_empty()),
            direct: sections.direct,
            defaults: Defaults {
                activity_retention_days: sections.activity.retention_days,
                ..sections.defaults
            },
            activity: sections.activity,
            policy,
            telemetry: sections.telemetry,
            limits: sections.limits,
            given: GivenSettings::new(file, settings),
            host: ambient.host,
        })
    }

    /// Reads the configuration from the built-in defaults, `file` and this process's environment.
    ///
    /// # Errors
    /// As [`Config::load`]; also when a variable that matters is not valid UTF-8.
    pub fn load_from_process(file: Option<&Path>) -> Result<Config, ConfigError> {
        Config::load(file, environment::of_process()?.into_iter())
    }
}

/// Configuration of `mcpproxy migrate`: the database, but none of the secrets of a serving gateway.
#[derive(Debug)]
pub struct MigrationConfig {
    /// Database to migrate.
    pub database: Database,
    /// Limits, of which the pool sizes are used.
    pub limits: LimitSettings,
    /// Settings of logs.
    pub telemetry: Telemetry,
    /// Environment that the program detected at its start.
    pub host: Host,
}

impl MigrationConfig {
    /// Reads the configuration as [`Config::load_from_process`] does, without asking for secrets.
    ///
    /// # Errors
    /// As [`Config::load_from_process`].
    pub fn load_from_process(file: Option<&Path>) -> Result<MigrationConfig, ConfigError> {
        let (settings, ambient) = read(file, environment::of_process()?.into_iter())?;
        let sections: Sections = layers::deserialize(&settings)?;
        let location = sections.database.location(&sections.data_dir, &ambient)?;
        Ok(MigrationConfig {
            database: sections.database.with_location(location),
            limits: sections.limits,
            telemetry: sections.telemetry,
            host: ambient.host,
        })
    }
}

/// Merges the sources and checks every setting.
fn read(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(Layer, Ambient), ConfigError> {
    let mut settings = layers::built_in()?;
    let (variables, ambient) = environment::sort(&settings, environment)?;
    if let Some(path) = file {
        let layer = layers::file(&settings, path)?;
        settings.extend(layer);
    }
    settings.extend(variables);
    rules::check(&settings)?;
    layers::join_synonyms(&mut settings)?;
    Ok((settings, ambient))
}

/// Sections as given in the sources, before secrets are resolved.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    data_dir: String,
    server: ServerSettings,
    database: sections::DatabaseSection,
    auth: sections::AuthSection,
    sessions: sections::SessionsSection,
    secrets: sections::SecretsSection,
    identity: IdentitySettings,
    console: ConsoleSettings,
    oauth: OauthSettings,
    egress: sections::EgressSection,
    stdio: stdio::StdioSection,
    search: EmbeddingsSettings,
    direct: Direct,
    activity: Activity,
    #[serde(with = "sections::DefaultsSection")]
    defaults: Defaults,
    policy: policy::PolicySection,
    telemetry: Telemetry,
    limits: LimitSettings,
}

impl Sections {
    /// Takes out the secrets for which files stand in where they are not given.
    fn take_keys(&mut self) -> secret_files::SecretsByKind {
        let bootstrap = self.auth.bootstrap_key.take().into_iter().collect();
        [bootstrap, std::mem::take(&mut self.sessions.key), std::mem::take(&mut self.secrets.master_key)]
    }
}
