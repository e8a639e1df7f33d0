//! Names of settings, and the values that each accepts.

use serde_json::Value;

use super::{Scope, SettingError, ToolNames};
use crate::domain::annotations::Unannotated;
use crate::domain::glob;
use crate::domain::intent::IntentMode;
use crate::domain::near;
use crate::domain::operation::OperationType;
use crate::domain::policy::PolicyMode;
use crate::domain::reason::Language;

/// Settings that keys and tenants have.
const NAMES: [&str; 12] = [
    "strict_server_validation",
    "intent_declaration",
    "unannotated_tools",
    "max_operation",
    "allowed_tools",
    "direct_endpoint",
    "tool_names",
    "rate_limit",
    "policy_mode",
    "in_band_answers",
    "host_prompts",
    "locale",
];
/// Longest part of an unknown name that an error repeats, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;
/// Settings that only tenants have.
const NAMES_OF_TENANTS: [&str; 2] = ["response_limit", "activity_retention_days"];

fn unknown(name: &str, scope: Scope) -> SettingError {
    let known: Vec<&str> = names(scope).collect();
    let field: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
    let names = known.join(", ");
    let message = match near::closest(name, known.into_iter()) {
        _ if scope == Scope::Key && NAMES_OF_TENANTS.contains(&name) => {
            format!("'{field}' is a setting of tenants, and keys have none of their own; known: {names}")
        }
        Some(meant) => format!("unknown setting '{field}'; did you mean '{meant}'? Known: {names}"),
        None => format!("unknown setting '{field}'; known: {names}"),
    };
    SettingError { field, message }
}

/// Returns the words that a setting accepts; `None` for settings without fixed words.
pub fn words(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "intent_declaration" => &IntentMode::WORDS,
        "unannotated_tools" => &Unannotated::WORDS,
        "max_operation" => &OperationType::WORDS,
        "tool_names" => &ToolNames::WORDS,
        "policy_mode" => &PolicyMode::WORDS,
        "locale" => &Language::WORDS,
        _ => return None,
    })
}

/// Returns the names of the settings that a scope has.
pub fn names(scope: Scope) -> impl Iterator<Item = &'static str> {
    let of_tenants: &[&str] = if scope == Scope::Tenant { &NAMES_OF_TENANTS } else { &[] };
    NAMES.into_iter().chain(of_tenants.iter().copied())
}

/// Returns a description of the values that a setting of a tenant accepts; `None` for an unknown name.
pub fn accepted(name: &str) -> Option<String> {
    match words(name) {
        Some(words) => Some(format!("{} or null", words.join(", "))),
        None => expected(name, Scope::Tenant).map(str::to_owned),
    }
}

/// Returns whether a setting of this scope accepts a value. `null`, which inherits, is accepted by each; an unknown name accepts none.
pub fn accepts(name: &str, value: &Value, scope: Scope) -> bool {
    check_value(name, value, scope).is_ok()
}

/// Returns a description of the values of a setting without fixed words; `None` for a name that this scope does not have.
fn expected(name: &str, scope: Scope) -> Option<&'static str> {
    Some(match name {
        "strict_server_validation" | "direct_endpoint" | "in_band_answers" => "true, false or null",
        "host_prompts" => "a list of operation types (read, write, destructive), each once, or null",
        "allowed_tools" => "a list of globs on server:tool (at most 200, each at most 300 bytes) or null",
        "rate_limit" => "a whole number of attempts per minute, at least 1, or null",
        "response_limit" if scope == Scope::Tenant => "a whole number of characters (0 = off) or null",
        "activity_retention_days" if scope == Scope::Tenant => {
            "a whole number of days from 1 to 3650, or null"
        }
        _ => return None,
    })
}

/// Checks a value of a patch.
///
/// # Errors
/// [`SettingError`] for a name that this scope does not have, or a value that is not accepted.
pub(super) fn check_value(name: &str, value: &Value, scope: Scope) -> Result<(), SettingError> {
    let wrong = |expected: &str| SettingError {
        field: name.to_owned(),
        message: format!("{name} must be {expected}"),
    };
    if let Some(words) = words(name) {
        if value.is_null() || value.as_str().is_some_and(|text| words.contains(&text)) {
            return Ok(());
        }
        let meant = value.as_str().and_then(|text| near::closest(text, words.iter().copied()));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
        return Err(wrong(&format!("{} or null{meant}", words.join(", "))));
    }
    let expected = expected(name, scope).ok_or_else(|| unknown(name, scope))?;
    let good = match name {
        _ if value.is_null() => true,
        "strict_server_validation" | "direct_endpoint" | "in_band_answers" => value.is_boolean(),
        "host_prompts" => is_operation_list(value),
        "allowed_tools" => is_glob_list(value),
        "activity_retention_days" => value.as_u64().is_some_and(|n| (1..=3650).contains(&n)),
        "rate_limit" => value.as_u64().is_some_and(|n| n >= 1 && u32::try_from(n).is_ok()),
        _ => value.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
    };
    if good { Ok(()) } else { Err(wrong(expected)) }
}

fn is_operation_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| {
        let is_new = |(at, item): (usize, &Value)| !list.iter().take(at).any(|before| before == item);
        let is_known = |item: &Value| item.as_str().is_some_and(|word| OperationType::parse(word).is_some());
        list.iter().all(is_known) && list.iter().enumerate().all(is_new)
    })
}

fn is_glob_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| {
        list.len() <= glob::PATTERNS_MAX
            && list.iter().all(|item| {
                item.as_str().is_some_and(|text| !text.is_empty() && text.len() <= glob::PATTERN_BYTES_MAX)
            })
    })
}
