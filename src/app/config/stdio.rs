//! `stdio.commands`: the programs that tenants may run as upstream servers. The API only names one of them.

use std::collections::BTreeMap;

use config::{Value, ValueKind};
use serde::Deserialize;

use super::names;
use super::secret::Secret;
use crate::domain::near;

/// Most programs in the table.
const COMMANDS_MAX: usize = 1000;
/// Longest name of a program, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Form of the table. It does not repeat an entry, which may contain secrets.
const SHAPE: &str = "must be NAME = { argv = [\"/path/to/program\", …], env = { KEY = \"value\" }, tenants = [\"name\"] } with NAME of \
     letters, digits, - and _; argv and tenants are required";
/// Members of an entry.
const FIELDS: [&str; 3] = ["argv", "env", "tenants"];
/// Most bytes of a name that an error repeats.
const SHOWN_BYTES_MAX: usize = 64;

/// A program that tenants may run as an upstream server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StdioCommand {
    /// Program and its arguments; never empty.
    pub argv: Vec<String>,
    /// Complete environment of the program.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
    /// Names of the tenants that may use the program; `*` for all. Never empty.
    pub tenants: Vec<String>,
}

/// Setting `stdio.enabled`: whether programs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Enabled {
    /// Programs are run, except in Kubernetes.
    Auto,
    /// Programs are run.
    On,
    /// Programs are not run.
    Off,
}

impl Enabled {
    /// Returns whether programs are run on this machine.
    pub(super) fn holds(self, in_kubernetes: bool) -> bool {
        match self {
            Enabled::Auto => !in_kubernetes,
            Enabled::On => true,
            Enabled::Off => false,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StdioSection {
    pub(super) enabled: Enabled,
    pub(super) hide_data_dir: bool,
    pub(super) commands: BTreeMap<String, StdioCommand>,
}

/// Reads the table, or the JSON object that stands for it in the environment, and checks its shape. The error is the end
/// of a sentence; it names the entry and the member at fault, and no value.
pub(super) fn read(given: ValueKind) -> Result<ValueKind, String> {
    let table = match given {
        ValueKind::Table(table) => table,
        ValueKind::String(text) if text.trim().is_empty() => return Ok(ValueKind::Table(config::Map::new())),
        ValueKind::String(text) => match serde_json::from_str(&text) {
            Ok(Value { kind: ValueKind::Table(table), .. }) => table,
            _ => return Err("must be a JSON object when given as a text".to_owned()),
        },
        _ => return Err(SHAPE.to_owned()),
    };
    if table.len() > COMMANDS_MAX {
        return Err(format!("must have at most {COMMANDS_MAX} entries"));
    }
    // sorted, so that of several mistakes always the same one is reported
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    for (name, entry) in entries {
        check(name, &entry.kind).map_err(|fault| format!("{SHAPE} ({fault})"))?;
    }
    Ok(ValueKind::Table(table))
}

fn check(name: &str, entry: &ValueKind) -> Result<(), String> {
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !is_name {
        return Err("the name of an entry is not of this form".to_owned());
    }
    let ValueKind::Table(fields) = entry else { return Err(format!("{name} is no table")) };
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by_key(|(field, _)| *field);
    for (field, value) in &fields {
        let fits = match (field.as_str(), &value.kind) {
            ("argv" | "tenants", ValueKind::Array(items)) => !items.is_empty() && items.iter().all(is_text),
            ("env", ValueKind::Table(env)) => {
                env.iter().all(|(name, value)| is_variable(name) && is_text(value))
            }
            (field, _) if FIELDS.contains(&field) => false,
            _ => return Err(format!("{name} has an unknown member{}", meant(field))),
        };
        if !fits {
            return Err(format!("{name}.{field} does not fit"));
        }
    }
    let missing =
        ["argv", "tenants"].into_iter().find(|needed| fields.iter().all(|(field, _)| field != needed));
    missing.map_or(Ok(()), |missing| Err(format!("{name} has no {missing}")))
}

/// Returns the unknown member and what it was meant to be, if that can be told. Any other name may be a secret in the wrong
/// place.
fn meant(field: &str) -> String {
    match near::closest(field, FIELDS.into_iter()) {
        Some(meant) if field.len() <= SHOWN_BYTES_MAX => {
            format!(" {}, did you mean {meant}?", names::shown(field))
        }
        _ => String::new(),
    }
}

fn is_text(value: &Value) -> bool {
    // The operating system takes no NUL in arguments and variables.
    matches!(&value.kind, ValueKind::String(text) if !text.contains('\0'))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
