//! `stdio.commands`: the programs that tenants may run as upstream servers. The API only names one of them.

use std::collections::BTreeMap;

use config::{Value, ValueKind};
use serde::Deserialize;

use super::secret::Secret;

/// Most programs in the table.
const COMMANDS_MAX: usize = 1000;
/// Longest name of a program, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Error text for a malformed entry. It does not repeat the entry, which may contain secrets.
const SHAPE: &str = "must be NAME = { argv = [\"/path/to/program\", …], env = { KEY = \"value\" }, tenants = [\"name\"] } with NAME of \
     letters, digits, - and _; argv and tenants are required";

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

/// Reads the table, or the JSON object that stands for it in the environment, and checks its shape.
pub(super) fn read(given: ValueKind) -> Result<ValueKind, &'static str> {
    let table = match given {
        ValueKind::Table(table) => table,
        ValueKind::String(text) if text.trim().is_empty() => return Ok(ValueKind::Table(config::Map::new())),
        ValueKind::String(text) => match serde_json::from_str(&text) {
            Ok(Value { kind: ValueKind::Table(table), .. }) => table,
            _ => return Err("must be a JSON object when given as a text"),
        },
        _ => return Err(SHAPE),
    };
    let fits =
        table.len() <= COMMANDS_MAX && table.iter().all(|(name, command)| is_command(name, &command.kind));
    if fits { Ok(ValueKind::Table(table)) } else { Err(SHAPE) }
}

fn is_command(name: &str, command: &ValueKind) -> bool {
    let named = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let ValueKind::Table(fields) = command else { return false };
    let fits = |(field, value): (&String, &Value)| match (field.as_str(), &value.kind) {
        ("argv" | "tenants", ValueKind::Array(items)) => !items.is_empty() && items.iter().all(is_text),
        ("env", ValueKind::Table(env)) => env.iter().all(|(name, value)| is_variable(name) && is_text(value)),
        _ => false,
    };
    named && ["argv", "tenants"].iter().all(|field| fields.contains_key(*field)) && fields.iter().all(fits)
}

fn is_text(value: &Value) -> bool {
    // The operating system takes no NUL in arguments and variables.
    matches!(&value.kind, ValueKind::String(text) if !text.contains('\0'))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
