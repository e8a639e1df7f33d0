//! The environment: settings, and facts about the host.

use std::path::PathBuf;

use config::ValueKind;

use super::error::ConfigError;
use super::layers::{Layer, LayerOrigin, Setting, add, closest, unknown};
use super::{Host, names};

/// Facts about the host that the environment contains, other than settings.
#[derive(Debug, Default)]
pub(super) struct Ambient {
    pub(super) host: Host,
    /// Default data directory, `XDG_DATA_HOME/mcpproxy` or `HOME/.local/share/mcpproxy`; `None` if neither variable is
    /// an absolute path.
    pub(super) data_dir: Option<PathBuf>,
}

/// Sorts the environment into settings and facts about the host.
pub(super) fn sort(
    known: &Layer,
    pairs: impl Iterator<Item = (String, String)>,
) -> Result<(Layer, Ambient), ConfigError> {
    let (mut layer, mut ambient) = (Layer::new(), Ambient::default());
    // Sorted, so that of several mistakes always the same one is reported.
    let mut pairs: Vec<(String, String)> = pairs.collect();
    pairs.sort_unstable();
    let (mut homes, mut platform_url) = ((None, None), None);
    for (name, value) in pairs {
        if let Some(rest) = name.strip_prefix(names::PREFIX) {
            variable(known, &name, rest, value, &mut layer)?;
            continue;
        }
        match name.as_str() {
            "DATABASE_URL" if !value.trim().is_empty() => {
                let value = ValueKind::String(value.trim().to_owned());
                platform_url = Some(Setting { value, origin: LayerOrigin::Variable(name) });
            }
            "KUBERNETES_SERVICE_HOST" => ambient.host.in_kubernetes = !value.is_empty(),
            "MCPPROXY_IMAGE" => ambient.host.in_image = !value.is_empty(),
            "PATH" => {
                let folders = std::env::split_paths(&value).filter(|folder| folder.is_absolute());
                ambient.host.search_path = folders.collect();
            }
            "XDG_DATA_HOME" => homes.0 = absolute(&value),
            "HOME" => homes.1 = absolute(&value).map(|home| home.join(".local/share")),
            _ => refuse_single_underscores(known, &name)?,
        }
    }
    ambient.data_dir = homes.0.or(homes.1).map(|home| home.join("mcpproxy"));
    // mcpproxy's own name takes precedence over the one that platforms use
    if let Some(url) = platform_url {
        layer.entry("database.url".to_owned()).or_insert(url);
    }
    Ok((layer, ambient))
}

/// Returns this process's environment. A variable that is not valid UTF-8 is skipped, unless it matters.
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
        return Err(unknown(format!("The {origin}"), closest(known, &dotted).map(names::variable)));
    };
    add(layer, key, default, ValueKind::String(value), origin)
}

/// Refuses a variable that would be a setting with other underscores: it would silently have no effect.
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
