//! Values of settings: how texts of the environment become typed values, and how values are shown.

use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::str::FromStr;

use config::{Value, ValueKind};

use super::{secret, stdio};

/// Most entries of a list.
const LIST_ENTRIES_MAX: usize = 1000;
/// Settings whose values are never shown.
const SECRET: [&str; 8] = [
    "auth.bootstrap_key",
    "console.client_secret",
    "database.direct_url",
    "database.url",
    "search.embeddings_api_key",
    "secrets.master_key",
    "sessions.key",
    "stdio.commands",
];

/// Turns a value into the type of its default; texts are read as the environment writes them.
/// The error is the end of a sentence that begins with the setting's name.
pub(super) fn coerce(
    key: &str,
    default: &ValueKind,
    given: ValueKind,
) -> Result<ValueKind, Cow<'static, str>> {
    use ValueKind::{Array, Boolean, Float, I64, String, Table};
    match (default, given) {
        (String(_), String(text)) => Ok(String(text.trim().to_owned())),
        (String(_), _) => Err("must be a text".into()),
        (Boolean(_), given @ Boolean(_)) | (I64(_), given @ I64(_)) | (Float(_), given @ Float(_)) => {
            Ok(given)
        }
        (Boolean(_), given) => parsed(&given).map(Boolean).ok_or("must be true or false".into()),
        (I64(_), given) => parsed(&given).map(I64).ok_or("must be a whole number".into()),
        (Float(_), I64(value)) => Ok(Float(value as f64)),
        (Float(_), given) => parsed(&given).map(Float).ok_or("must be a number".into()),
        (Array(_), given) => list(key, given).map_err(Cow::from),
        (Table(_), given) => stdio::read(given).map_err(Cow::from),
        _ => Err("has a type that is not supported".into()),
    }
}

fn parsed<T: FromStr>(given: &ValueKind) -> Option<T> {
    let ValueKind::String(text) = given else { return None };
    text.trim().parse().ok()
}

/// Error text for a list in brackets or quotes that is given as a text. Taken literally, they would be part of its
/// entries; a secret with them would match on no other replica. Some tools keep the quotes of values.
const BRACKETS: &str = "must be given without brackets or quotes when it is a text: its entries, separated by commas \
                        (`new,old`); only TOML has lists in brackets, of texts in quotes";

/// Splits a list that is written as one text, as in the environment, at commas and line breaks.
pub(super) fn entries<'a>(key: &str, text: &'a str) -> Result<Vec<&'a str>, &'static str> {
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let entries: Vec<&str> = entries.collect();
    let is_enclosed = |entry: &&str| {
        let quotes = ['"', '\''];
        entry.starts_with(quotes)
            || entry.ends_with(quotes)
            || ((entry.starts_with('[') || entry.ends_with(']')) && !is_address(key, entry))
    };
    if entries.iter().any(is_enclosed) { Err(BRACKETS) } else { Ok(entries) }
}

/// Returns whether an entry in brackets is an IPv6 address: `[::1]:8080`, or `http://[::1]` as an origin. Only lists of
/// hosts and origins have such entries.
fn is_address(key: &str, entry: &str) -> bool {
    let host = match key {
        "server.allowed_hosts" => entry,
        "server.allowed_origins" if !entry.starts_with('[') => {
            entry.split_once("://").map_or("", |(_, host)| host)
        }
        _ => return false,
    };
    let Some((address, port)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return false;
    };
    address.parse::<Ipv6Addr>().is_ok() && !port.contains(['[', ']'])
}

fn list(key: &str, given: ValueKind) -> Result<ValueKind, &'static str> {
    let texts: Vec<String> = match given {
        ValueKind::String(text) => entries(key, &text)?.into_iter().map(str::to_owned).collect(),
        ValueKind::Array(items) => items
            .into_iter()
            .map(|item| match item.kind {
                ValueKind::String(text) => Ok(text),
                _ => Err("must be a list of texts"),
            })
            .collect::<Result<_, _>>()?,
        _ => return Err("must be a list of texts"),
    };
    if texts.len() > LIST_ENTRIES_MAX {
        return Err("must have at most 1000 entries");
    }
    let texts = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    Ok(ValueKind::Array(texts.map(|text| Value::new(None, text)).collect()))
}

/// Returns the texts of a list; empty for any other value.
pub(super) fn texts(value: &ValueKind) -> Vec<&str> {
    match value {
        ValueKind::Array(items) => items
            .iter()
            .filter_map(|item| match &item.kind {
                ValueKind::String(text) => Some(text.as_str()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Formats a value for an operator; secrets, and values that may contain one, are redacted.
pub(super) fn shown(key: &str, value: &ValueKind) -> String {
    let is_empty = match value {
        ValueKind::String(text) => text.is_empty(),
        ValueKind::Array(items) => items.is_empty(),
        ValueKind::Table(table) => table.is_empty(),
        _ => false,
    };
    if SECRET.contains(&key) && !is_empty {
        return secret::REDACTED.to_owned();
    }
    match value {
        ValueKind::String(text) => format!("{text:?}"),
        ValueKind::Array(_) => format!("{:?}", texts(value)),
        ValueKind::Boolean(value) => value.to_string(),
        ValueKind::I64(value) => value.to_string(),
        ValueKind::Float(value) => format!("{value:?}"),
        ValueKind::Table(_) => "{}".to_owned(),
        _ => String::new(),
    }
}
