//! Connection of a command: URL, key and tenant, from flags, then the environment, then a profile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use super::client::ApiClient;
use super::failure::Failure;
use super::{input, output};

/// Default URL of the gateway.
const URL: &str = "http://127.0.0.1:8080";
/// Path of the profile file below the home directory.
const FILE: &str = ".config/mcpproxy/profiles.toml";
/// Name of the default profile.
const PROFILE: &str = "default";

/// Flags of every command that talks to a gateway.
#[derive(Args, Clone)]
#[command(next_help_heading = "Connection")]
pub(super) struct ApiConnection {
    /// URL of the gateway [default: http://127.0.0.1:8080] [env: MCPPROXY_URL]
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// API key. Prefer the environment or a profile: other users can read command lines [env: MCPPROXY_API_KEY]
    #[arg(long, global = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Tenant to act in, for a platform key; other keys act only in their own tenant [env: MCPPROXY_TENANT]
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    /// Name of the profile [default: default] [env: MCPPROXY_PROFILE]
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,
    /// Profile file: TOML, a table for each profile, with url, api_key and tenant
    /// [default: ~/.config/mcpproxy/profiles.toml] [env: MCPPROXY_PROFILES]
    #[arg(long, global = true, value_name = "PATH")]
    profiles: Option<PathBuf>,
}

/// Returns the value of a flag, else of its environment variable; `None` if that is empty or unset. Clap does not read the
/// variable, since its usage errors would name every set variable as a needed flag.
fn given(flag: Option<&String>, variable: &str) -> Option<String> {
    flag.cloned().or_else(|| input::variable(variable)).filter(|value| !value.is_empty())
}

/// Profile: address of a gateway, and credentials for it.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    url: Option<String>,
    api_key: Option<String>,
    tenant: Option<String>,
}

impl ApiConnection {
    /// Returns the connection with the flags of `other` where it has none of its own.
    pub(super) fn or(self, other: ApiConnection) -> ApiConnection {
        ApiConnection {
            url: self.url.or(other.url),
            api_key: self.api_key.or(other.api_key),
            tenant: self.tenant.or(other.tenant),
            profile: self.profile.or(other.profile),
            profiles: self.profiles.or(other.profiles),
        }
    }

    /// Creates a client for the connection.
    ///
    /// # Errors
    /// The profile file cannot be read, the profile is not in it, or the URL, key or tenant is not valid.
    pub(super) fn client(&self) -> Result<ApiClient, Failure> {
        let named = given(self.profile.as_ref(), "MCPPROXY_PROFILE");
        let profile = self.profile(named.as_deref())?;
        let key = given(self.api_key.as_ref(), "MCPPROXY_API_KEY");
        // the key of the environment replaces that of a profile that was named, which may be a mistake
        if let Some(name) =
            named.filter(|_| profile.api_key.is_some() && key.is_some() && key != profile.api_key)
        {
            output::note(&format!(
                "warning: the key of --api-key or MCPPROXY_API_KEY is used, not that of the profile {name}"
            ));
        }
        let url = given(self.url.as_ref(), "MCPPROXY_URL").or(profile.url).unwrap_or_else(|| URL.to_owned());
        let key = key.or(profile.api_key).filter(|key| !key.is_empty());
        let tenant = given(self.tenant.as_ref(), "MCPPROXY_TENANT").or(profile.tenant);
        ApiClient::new(&url, key.as_deref(), tenant.as_deref())
    }

    fn profile(&self, named: Option<&str>) -> Result<Profile, Failure> {
        let file = self.profiles.clone().or_else(|| given(None, "MCPPROXY_PROFILES").map(PathBuf::from));
        // the default file need not exist
        let must_exist = named.is_some() || file.is_some();
        let path = file.or_else(|| std::env::home_dir().map(|home| home.join(FILE)));
        let Some(path) = path.filter(|path| must_exist || path.exists()) else {
            return Ok(Profile::default());
        };
        let mut profiles = read(&path)?;
        let name = named.unwrap_or(PROFILE);
        match profiles.remove(name) {
            Some(profile) => Ok(profile),
            None if named.is_none() => Ok(Profile::default()),
            None => {
                let mut known: Vec<String> = profiles.into_keys().collect();
                known.sort_unstable();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let path = path.display();
                Err(Failure::Usage(format!("there is no profile '{name}' in {path}; there are: {known}")))
            }
        }
    }
}

fn read(path: &Path) -> Result<HashMap<String, Profile>, Failure> {
    let shown = path.display();
    if let Err(error) = std::fs::metadata(path) {
        return Err(Failure::Usage(format!("the profile file {shown} cannot be read: {error}")));
    }
    warn_of_readers(path);
    let source = config::File::from(path).format(config::FileFormat::Toml);
    let profiles =
        config::Config::builder().add_source(source).build().and_then(config::Config::try_deserialize);
    // the cause may quote the file, which holds keys
    profiles.map_err(|_| {
        Failure::Usage(format!(
            "{shown} cannot be read as profiles: it needs TOML with tables such as [default], which hold url, api_key and tenant, nothing else"
        ))
    })
}

/// Warns if other users can read the profile file, which holds keys.
fn warn_of_readers(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |data| data.permissions().mode());
    if mode & 0o077 != 0 {
        let path = path.display();
        output::note(&format!("warning: others on this machine can read {path}; chmod 600 {path}"));
    }
}
