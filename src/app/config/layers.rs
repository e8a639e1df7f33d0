//! Layers of settings, and how they are merged. Each value keeps its source.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use config::{FileFormat, Source, Value, ValueKind};
use serde::de::DeserializeOwned;

use super::error::ConfigError;
use super::{EffectiveSetting, names, values};
use crate::domain::near;

/// Built-in defaults: every setting, its meaning, its default.
pub(super) const DEFAULT_TOML: &str = include_str!("../../default.toml");
/// Most bytes of a configuration file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayerOrigin {
    /// The built-in `default.toml`.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A generated secret, kept in this file.
    Generated(PathBuf),
}

impl fmt::Display for LayerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayerOrigin::Default => f.write_str("the built-in default"),
            LayerOrigin::File(path) => write!(f, "in {}", path.display()),
            LayerOrigin::Variable(name) => write!(f, "environment variable {name}"),
            LayerOrigin::Generated(path) => write!(f, "kept in {}", path.display()),
        }
    }
}

/// A value with its source.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) value: ValueKind,
    pub(super) origin: LayerOrigin,
}

/// Settings by dotted name. The built-in layer has all settings, the others only what was given.
pub(super) type Layer = BTreeMap<String, Setting>;

/// Settings of all layers, merged.
#[derive(Debug)]
pub(super) struct LayeredSettings {
    merged: Layer,
}

impl LayeredSettings {
    /// Creates the settings from the built-in layer.
    pub(super) fn new(built_in: Layer) -> LayeredSettings {
        LayeredSettings { merged: built_in }
    }

    /// Merges a layer, whose values take precedence.
    pub(super) fn overlay(&mut self, layer: Layer) {
        self.merged.extend(layer);
    }

    /// Returns all settings.
    pub(super) fn known(&self) -> &Layer {
        &self.merged
    }

    /// Gives settings with the same meaning the same value; refuses two given values that differ.
    pub(super) fn join_synonyms(&mut self) -> Result<(), ConfigError> {
        for (first, second) in names::SYNONYMS {
            let (Some(a), Some(b)) = (self.merged.get(first).cloned(), self.merged.get(second).cloned())
            else {
                continue;
            };
            match (a.origin == LayerOrigin::Default, b.origin == LayerOrigin::Default) {
                (false, false) if a.value != b.value => return Err(conflict((first, &a), (second, &b))),
                (true, false) => self.merged.insert(first.to_owned(), b),
                (false, true) => self.merged.insert(second.to_owned(), a),
                _ => None,
            };
        }
        Ok(())
    }

    /// Converts the settings to typed sections. The values were checked before, so a failure here is a default or a
    /// rule that does not fit the types. Its text might contain a value and is not shown.
    pub(super) fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let mut builder = config::Config::builder();
        // The typed form has each setting once.
        let is_synonym = |key: &str| names::SYNONYMS.iter().any(|(synonym, _)| *synonym == key);
        for (key, setting) in self.merged.iter().filter(|(key, _)| !is_synonym(key)) {
            builder = builder
                .set_override(key, Value::new(None, setting.value.clone()))
                .map_err(|_| ConfigError::BuiltIn { at: format!(" at {key}") })?;
        }
        builder.build().and_then(config::Config::try_deserialize).map_err(|error| match error {
            config::ConfigError::At { key: Some(key), .. }
            | config::ConfigError::Type { key: Some(key), .. } => {
                ConfigError::BuiltIn { at: format!(" at {}", names::shown(&key)) }
            }
            _ => ConfigError::BuiltIn { at: String::new() },
        })
    }

    /// Returns all settings for display to an operator.
    pub(super) fn effective(&self) -> Vec<EffectiveSetting> {
        let entry = |(name, setting): (&String, &Setting)| EffectiveSetting {
            name: name.clone(),
            value: values::shown(name, &setting.value),
            origin: setting.origin.to_string(),
        };
        self.merged.iter().map(entry).collect()
    }
}

/// Reads the built-in `default.toml`.
pub(super) fn built_in() -> Result<Layer, ConfigError> {
    let tables = parse(DEFAULT_TOML).map_err(|_| ConfigError::BuiltIn { at: String::new() })?;
    let mut layer = Layer::new();
    flatten(tables, "", &|key| key == "stdio.commands", &mut |key, value| {
        layer.insert(key, Setting { value, origin: LayerOrigin::Default });
        Ok(())
    })?;
    Ok(layer)
}

/// Reads a configuration file.
pub(super) fn file(known: &Layer, path: &Path) -> Result<Layer, ConfigError> {
    let fail = |reason: &str| ConfigError::File { path: path.to_owned(), reason: reason.to_owned() };
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => fail("is not valid UTF-8. Give a TOML file like default.toml"),
            // most likely the command line is wrong
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => {
                fail(&format!("cannot be read ({error}). Check its path and permissions"))
            }
            _ => ConfigError::Io {
                path: path.to_owned(),
                reason: format!(
                    "cannot be read ({error}). Check the path and permissions of this configuration file"
                ),
            },
        })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(fail("is larger than 1 MiB. Give a TOML file like default.toml"));
    }
    let tables = parse(&text).map_err(|at| fail(&format!("is not valid TOML{at}. Correct it")))?;
    let origin = LayerOrigin::File(path.to_owned());
    let mut layer = Layer::new();
    flatten(tables, "", &|key| known.contains_key(names::canonical(key)), &mut |name, value| {
        let key = names::canonical(&name);
        let Some(default) = known.get(key) else {
            if is_empty_section(known, &name, &value) {
                return Ok(());
            }
            let subject = format!("`{}` ({origin})", names::shown(&name));
            return Err(unknown(subject, closest(known, &name).map(str::to_owned)));
        };
        let value =
            values::coerce(key, &default.value, value).map_err(|must| value_error(key, &origin, must))?;
        add(&mut layer, key, Setting { value, origin: origin.clone() })
    })?;
    Ok(layer)
}

pub(super) fn closest<'a>(known: &'a Layer, name: &str) -> Option<&'a str> {
    near::closest(name, known.keys().map(String::as_str))
}

fn is_empty_section(known: &Layer, name: &str, value: &ValueKind) -> bool {
    let section = format!("{name}.");
    matches!(value, ValueKind::Table(table) if table.is_empty())
        && known.keys().any(|key| key.starts_with(&section))
}

/// Adds a setting to a layer. A setting given twice, under two names, must have the same value.
pub(super) fn add(layer: &mut Layer, key: &str, setting: Setting) -> Result<(), ConfigError> {
    if let Some(other) = layer.get(key).filter(|other| other.value != setting.value) {
        let alias =
            names::ALIASES.iter().find(|(_, canonical)| *canonical == key).map_or(key, |(alias, _)| alias);
        return Err(conflict((alias, other), (key, &setting)));
    }
    layer.insert(key.to_owned(), setting);
    Ok(())
}

fn conflict(first: (&str, &Setting), second: (&str, &Setting)) -> ConfigError {
    let describe = |(name, setting): (&str, &Setting)| format!("{name} ({})", setting.origin);
    ConfigError::Conflict { first: describe(first), second: describe(second) }
}

pub(super) fn unknown(subject: String, meant: Option<String>) -> ConfigError {
    let suggestion = meant.map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
    ConfigError::UnknownName { subject, suggestion }
}

pub(super) fn value_error(name: &str, origin: &LayerOrigin, must: impl Into<String>) -> ConfigError {
    ConfigError::Value { name: name.to_owned(), origin: origin.to_string(), must: must.into() }
}

/// Parses TOML. The error is only the position: the parser's own text quotes the line, which may contain a secret.
fn parse(text: &str) -> Result<config::Map<String, Value>, String> {
    config::File::from_str(text, FileFormat::Toml).collect().map_err(|error| {
        let config::ConfigError::FileParse { cause, .. } = error else { return String::new() };
        let text = cause.to_string();
        let place = text.lines().next().and_then(|first| first.strip_prefix("TOML parse error at "));
        place.map_or_else(String::new, |place| format!(" ({place})"))
    })
}

/// Passes each setting to `sink`: every value that is not a table, and every table that is empty or a setting itself.
fn flatten(
    tables: config::Map<String, Value>,
    prefix: &str,
    is_setting: &dyn Fn(&str) -> bool,
    sink: &mut dyn FnMut(String, ValueKind) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    for (name, value) in tables {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value.kind {
            ValueKind::Table(inner) if !inner.is_empty() && !is_setting(&key) => {
                flatten(inner, &key, is_setting, sink)?;
            }
            kind => sink(key, kind)?,
        }
    }
    Ok(())
}
