//! What each setting takes, beyond its type, and how texts of the environment become typed values.

use std::net::{Ipv6Addr, SocketAddr};

use config::{Value, ValueKind};
use ipnet::IpNet;

use super::error::ConfigError;
use super::layers::{self, Origin, Settings, value_error};
use super::{search, secret, stdio};
use crate::domain::glob;

/// Most entries of a list.
const LIST_ENTRIES_MAX: usize = 1000;
/// Longest wait that can be set, in seconds: a day.
const SECONDS_MAX: i64 = 86_400;
/// The memory budget, and its least value but 0, in bytes: a quarter of it still takes a request of the default bound.
const MEMORY: &str = "limits.memory_bytes_max";
const MEMORY_BYTES_MIN: i64 = 16 << 20;
/// Settings that are never shown.
const SECRET: [&str; 7] = [
    "auth.bootstrap_key",
    "database.direct_url",
    "database.url",
    "search.embeddings_api_key",
    "secrets.master_key",
    "sessions.key",
    "stdio.commands",
];

/// The values that a setting of words takes.
fn words(key: &str) -> Option<&'static [&'static str]> {
    Some(match key {
        "intent_declaration.mode" | "defaults.intent_declaration" => &["inferred", "required"],
        "defaults.unannotated_tools" => &["trust", "distrust"],
        "defaults.max_operation" => &["read", "write", "destructive"],
        "defaults.tool_names" => &["colon", "safe"],
        "stdio.enabled" => &["auto", "on", "off"],
        "telemetry.log_format" => &["text", "json"],
        "telemetry.otlp_protocol" => &["http/protobuf", "grpc"],
        _ => return None,
    })
}

/// The least and greatest value of a whole-number setting, both allowed.
fn range(key: &str) -> (i64, i64) {
    match key {
        "activity.preview_bytes" => (1, 1 << 20),
        "activity.retention_days" => (1, 3650),
        "database.statement_cache" => (0, 10_000),
        "defaults.rate_limit" => (0, 10_000_000),
        "defaults.response_limit" => (0, 100_000_000),
        "search.embeddings_batch" => (1, 256),
        "search.embeddings_wait_ms" => (1, 10_000),
        "search.embeddings_timeout_s" => (1, 600),
        "limits.activity_queue_bytes" => (1 << 16, 1 << 36),
        _ if key.starts_with("limits.database_pool_") => (1, 1000),
        "limits.definition_bytes_per_tenant_max" => (1, 1 << 36),
        MEMORY => (0, 1 << 38),
        _ if key.ends_with("_bytes_max") => (1, 1 << 30),
        "limits.drain_delay_s" => (0, 300),
        _ if key.ends_with("_s") => (1, SECONDS_MAX),
        _ if key.ends_with("_ms") => (1, SECONDS_MAX * 1000),
        _ => (1, 10_000_000),
    }
}

/// Turns a value into the type of its default; texts are read as the environment writes them.
/// The error is the end of a sentence that begins with the setting's name.
pub(super) fn coerce(key: &str, default: &ValueKind, given: ValueKind) -> Result<ValueKind, &'static str> {
    match (default, given) {
        (ValueKind::String(_), ValueKind::String(text)) => Ok(ValueKind::String(text.trim().to_owned())),
        (ValueKind::String(_), _) => Err("must be a text"),
        (ValueKind::Boolean(_), ValueKind::Boolean(value)) => Ok(ValueKind::Boolean(value)),
        (ValueKind::Boolean(_), ValueKind::String(text)) => {
            text.trim().parse().map(ValueKind::Boolean).map_err(|_| "must be true or false")
        }
        (ValueKind::Boolean(_), _) => Err("must be true or false"),
        (ValueKind::I64(_), ValueKind::I64(value)) => Ok(ValueKind::I64(value)),
        (ValueKind::I64(_), ValueKind::String(text)) => {
            text.trim().parse().map(ValueKind::I64).map_err(|_| "must be a whole number")
        }
        (ValueKind::I64(_), _) => Err("must be a whole number"),
        (ValueKind::Float(_), ValueKind::Float(value)) => Ok(ValueKind::Float(value)),
        (ValueKind::Float(_), ValueKind::I64(value)) => Ok(ValueKind::Float(value as f64)),
        (ValueKind::Float(_), ValueKind::String(text)) => {
            text.trim().parse().map(ValueKind::Float).map_err(|_| "must be a number")
        }
        (ValueKind::Float(_), _) => Err("must be a number"),
        (ValueKind::Array(_), given) => list(key, given),
        (ValueKind::Table(_), given) => stdio::read(given),
        _ => Err("has a type that is not supported"),
    }
}

/// What a list written as a text with brackets or quotes is told. Taken as they stand, they would be part of its
/// entries: of a secret, one that nobody else has. Some tools keep the quotes of what they are given.
const BRACKETS: &str = "must be given without brackets or quotes when it is a text: its entries, separated by commas \
                        (`new,old`); only TOML has lists in brackets, of texts in quotes";

/// The entries of a list that is written as one text, as in the environment: separated by commas, or line by line.
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

/// Hosts in brackets are addresses: `[::1]:8080`, and of an origin `http://[::1]`. No other list has any.
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

/// Checks every setting, given or default.
pub(super) fn check(settings: &Settings) -> Result<(), ConfigError> {
    for (key, setting) in settings.known() {
        let fail = |must: String| value_error(key, &setting.origin, must);
        match &setting.value {
            ValueKind::I64(value) => check_number(key, *value).map_err(fail)?,
            ValueKind::Float(value) if !(0.0..=1.0).contains(value) => {
                return Err(fail("must be between 0.0 and 1.0".to_owned()));
            }
            ValueKind::String(text) => check_text(key, text).map_err(fail)?,
            ValueKind::Array(_) => check_list(key, &layers::texts(&setting.value), &setting.origin)?,
            _ => {}
        }
    }
    check_together(settings)
}

/// Pairs of settings of which the first must not be above the second.
const ORDERED: [(&str, &str); 2] = [
    ("limits.activity_batch", "limits.activity_queue"),
    ("limits.upstream_rest_min_ms", "limits.upstream_rest_max_ms"),
];

/// Rules between settings.
fn check_together(settings: &Settings) -> Result<(), ConfigError> {
    for (low, high) in ORDERED {
        let (Some(least), Some(most)) = (settings.known().get(low), settings.known().get(high)) else {
            continue;
        };
        if let (ValueKind::I64(a), ValueKind::I64(b)) = (&least.value, &most.value)
            && a > b
        {
            return Err(value_error(
                low,
                &least.origin,
                format!("must not be above {high} ({})", most.origin),
            ));
        }
    }
    search::check_together(settings)
}

fn check_number(key: &str, value: i64) -> Result<(), String> {
    let (least, greatest) = range(key);
    if key == MEMORY && value != 0 && !(MEMORY_BYTES_MIN..=greatest).contains(&value) {
        return Err(format!(
            "must be 0, for the default, or a whole number from {MEMORY_BYTES_MIN} to {greatest}"
        ));
    }
    if (least..=greatest).contains(&value) {
        return Ok(());
    }
    Err(format!("must be a whole number from {least} to {greatest}"))
}

fn check_text(key: &str, text: &str) -> Result<(), String> {
    if let Some(words) = words(key) {
        return if words.contains(&text) {
            Ok(())
        } else {
            Err(format!("must be one of: {}", words.join(", ")))
        };
    }
    let must = |fits: bool, must: &str| if fits { Ok(()) } else { Err(must.to_owned()) };
    match key {
        "server.listen" => must(text.parse::<SocketAddr>().is_ok(), ADDRESS),
        "server.admin_listen" => must(text.is_empty() || text.parse::<SocketAddr>().is_ok(), ADDRESS),
        "database.url" | "database.direct_url" => must(
            text.is_empty() || text.starts_with("postgres://") || text.starts_with("postgresql://"),
            "must begin with postgres:// (user, password, host, port and database name follow)",
        ),
        "auth.bootstrap_key" if !text.is_empty() => secret::check_header_secret(text),
        "telemetry.otlp_endpoint" => must(
            text.is_empty()
                || ((text.starts_with("http://") || text.starts_with("https://"))
                    && !text.contains(['@', '?', '#'])),
            "must be an http:// or https:// URL without a user name, query or fragment: it is shown and logged",
        ),
        "search.embeddings_url" if !text.is_empty() => search::check_url(text),
        "search.embeddings_model" => search::check_model(text),
        "search.embeddings_api_key" => search::check_key(text),
        "telemetry.log_filter" | "telemetry.service_name" => must(!text.is_empty(), "must not be empty"),
        _ => Ok(()),
    }
}

const ADDRESS: &str = "must be an IP address with a port, for example 127.0.0.1:8080 or [::]:8080";

/// Checks a list, given anywhere.
pub(super) fn check_list(key: &str, entries: &[&str], origin: &Origin) -> Result<(), ConfigError> {
    if key == "defaults.allowed_tools" && (entries.is_empty() || entries.len() > glob::PATTERNS_MAX) {
        return Err(value_error(key, origin, "must have from 1 to 200 globs, for example \"*\""));
    }
    for (index, entry) in entries.iter().enumerate() {
        let check = match key {
            "sessions.key" => secret::check_text_secret(entry),
            "secrets.master_key" => secret::MasterKey::parse(entry).map(|_| ()),
            "egress.allow" | "server.trusted_proxies" => entry
                .parse::<IpNet>()
                .map(|_| ())
                .map_err(|_| "must be a network such as 10.0.0.0/8".to_owned()),
            "server.allowed_hosts" => check_host(entry),
            "server.allowed_origins" => check_origin(entry),
            "defaults.allowed_tools" if entry.len() > glob::PATTERN_BYTES_MAX => {
                Err(format!("must be at most {} bytes", glob::PATTERN_BYTES_MAX))
            }
            _ => Ok(()),
        };
        check.map_err(|must| value_error(&format!("{key}, entry {},", index + 1), origin, must))?;
    }
    Ok(())
}

fn check_host(entry: &str) -> Result<(), String> {
    let fits = entry.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c)) || entry == "*";
    if fits {
        Ok(())
    } else {
        Err("must be a host name, `name:port`, or `*`, without a scheme or path".to_owned())
    }
}

fn check_origin(entry: &str) -> Result<(), String> {
    let host = entry.split_once("://").map_or("", |(_, host)| host);
    let fits = entry.is_ascii() && !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
    if fits || entry == "*" {
        Ok(())
    } else {
        Err("must be an origin such as https://example.com, without a path".to_owned())
    }
}

/// A value for an operator's eyes; secrets are redacted, and so is whatever may hold one.
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
        ValueKind::Array(_) => format!("{:?}", layers::texts(value)),
        ValueKind::Boolean(value) => value.to_string(),
        ValueKind::I64(value) => value.to_string(),
        ValueKind::Float(value) => format!("{value:?}"),
        ValueKind::Table(_) => "{}".to_owned(),
        _ => String::new(),
    }
}
