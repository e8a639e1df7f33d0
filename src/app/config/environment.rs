//! The environment: settings, and what it says about the place.

use std::path::PathBuf;

use config::ValueKind;

use super::error::ConfigError;
use super::layers::{Layer, LayerOrigin, Setting, add, closest, unknown, value_error};
use super::{Host, names, values};

/// What the environment says about the place rather than about settings.
#[derive(Debug, Default)]
pub(super) struct Ambient {
    pub(super) host: Host,
    /// `XDG_DATA_HOME/mcpproxy` or `HOME/.local/share/mcpproxy`.
    pub(super) data_dir: Option<PathBuf>,
}

/// The environment, sorted.
#[derive(Debug, Default)]
pub(super) struct Environment {
    /// Settings by names that platforms use: `DATABASE_URL`.
    pub(super) platform: Layer,
    /// Settings by our own names; they win.
    pub(super) own: Layer,
    pub(super) ambient: Ambient,
}

/// Sorts the environment into settings and circumstances.
pub(super) fn sort(
    known: &Layer,
    pairs: impl Iterator<Item = (String, String)>,
) -> Result<Environment, ConfigError> {
    let mut found = Environment::default();
    // Sorted, so that of several mistakes it is always the same one that is reported.
    let mut pairs: Vec<(String, String)> = pairs.collect();
    pairs.sort_unstable();
    let mut homes = (None, None);
    for (name, value) in pairs {
        if let Some(rest) = name.strip_prefix(names::PREFIX) {
            variable(known, &name, rest, value, &mut found.own)?;
            continue;
        }
        match name.as_str() {
            "DATABASE_URL" if !value.trim().is_empty() => {
                let value = ValueKind::String(value.trim().to_owned());
                let setting = Setting { value, origin: LayerOrigin::Variable(name) };
                found.platform.insert("database.url".to_owned(), setting);
            }
            "KUBERNETES_SERVICE_HOST" => found.ambient.host.in_kubernetes = !value.is_empty(),
            "MCPPROXY_IMAGE" => found.ambient.host.in_image = !value.is_empty(),
            "PATH" => {
                let folders = std::env::split_paths(&value).filter(|folder| folder.is_absolute());
                found.ambient.host.search_path = folders.collect();
            }
            "XDG_DATA_HOME" => homes.0 = absolute(&value),
            "HOME" => homes.1 = absolute(&value).map(|home| home.join(".local/share")),
            _ => refuse_single_underscores(known, &name)?,
        }
    }
    found.ambient.data_dir = homes.0.or(homes.1).map(|home| home.join("mcpproxy"));
    Ok(found)
}

/// This process's environment.
pub(super) fn of_process() -> Result<Vec<(String, String)>, ConfigError> {
    let mut pairs = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => pairs.push((name, value)),
            Err(_) if name.starts_with("MCPPROXY_") || name == "DATABASE_URL" || name == "HOME" => {
                return Err(ConfigError::NotUtf8 { name });
            }
            Err(_) => {}
        }
    }
    Ok(pairs)
}

fn variable(
    known: &Layer,
    name: &str,
    rest: &str,
    value: String,
    layer: &mut Layer,
) -> Result<(), ConfigError> {
    let dotted = rest.to_ascii_lowercase().replace("__", ".");
    let key = names::canonical(&dotted);
    let origin = LayerOrigin::Variable(names::shown(name));
    let Some(default) = known.get(key).filter(|_| *rest == rest.to_ascii_uppercase()) else {
        let subject = format!("The {origin}");
        return Err(unknown(subject, closest(known, &dotted).map(names::variable)));
    };
    let value = values::coerce(key, &default.value, ValueKind::String(value))
        .map_err(|must| value_error(key, &origin, must))?;
    add(layer, key, Setting { value, origin })
}

/// A variable that is one of ours but for its underscores would be silently without effect.
fn refuse_single_underscores(known: &Layer, name: &str) -> Result<(), ConfigError> {
    let Some(rest) = name.strip_prefix("MCPPROXY_") else { return Ok(()) };
    let squeezed = |text: &str| text.replace(['_', '.'], "").to_ascii_lowercase();
    let meant = squeezed(rest);
    let Some(key) = known.keys().find(|key| squeezed(key) == meant) else { return Ok(()) };
    let subject = format!("The environment variable {}", names::shown(name));
    Err(unknown(subject, Some(names::variable(key))))
}

fn absolute(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text)).filter(|path| path.is_absolute())
}
