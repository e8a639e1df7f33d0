//! Rules for the values of settings, beyond their types.

use std::net::SocketAddr;

use config::ValueKind;
use ipnet::IpNet;
use tracing_subscriber::EnvFilter;

use super::error::{ConfigError, must};
use super::layers::{Layer, LayerOrigin, value_error};
use super::values::texts;
use super::{search, secret};
use crate::domain::glob;
use crate::domain::intent::IntentMode;
use crate::domain::operation::OperationType;
use crate::domain::settings;

/// Longest duration that can be set, in seconds: a day.
const SECONDS_MAX: i64 = 86_400;
/// Name of the memory budget's setting. Its least value but 0, in bytes, is [`MEMORY_BYTES_MIN`]: a quarter of that
/// still takes a request of the default bound.
const MEMORY: &str = "limits.memory_bytes_max";
const MEMORY_BYTES_MIN: i64 = 16 << 20;

/// Returns the words that a setting accepts; `None` for settings without fixed words.
fn words(key: &str) -> Option<&'static [&'static str]> {
    Some(match key {
        "intent_declaration.mode" => &IntentMode::WORDS,
        "stdio.enabled" => &["auto", "on", "off"],
        "telemetry.log_format" => &["text", "json"],
        "telemetry.otlp_protocol" => &["http/protobuf", "grpc"],
        _ => return settings::words(key.strip_prefix("defaults.")?),
    })
}

/// Returns the least and greatest value of a whole-number setting, both allowed.
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
        "server.workers" => (0, 256),
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

/// Checks every setting, given or default.
pub(super) fn check(settings: &Layer) -> Result<(), ConfigError> {
    for (key, setting) in settings {
        let fail = |must: String| value_error(key, &setting.origin, must);
        match &setting.value {
            ValueKind::I64(value) => check_number(key, *value).map_err(fail)?,
            ValueKind::Float(value) if !(0.0..=1.0).contains(value) => {
                return Err(fail("must be between 0.0 and 1.0".to_owned()));
            }
            ValueKind::String(text) => check_text(key, text).map_err(fail)?,
            ValueKind::Array(_) => check_list(key, &texts(&setting.value), &setting.origin)?,
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

/// Checks the rules between settings.
fn check_together(settings: &Layer) -> Result<(), ConfigError> {
    for (low, high) in ORDERED {
        let (Some(least), Some(most)) = (settings.get(low), settings.get(high)) else {
            continue;
        };
        if let (ValueKind::I64(a), ValueKind::I64(b)) = (&least.value, &most.value)
            && a > b
        {
            let must = format!("must not be above {high} ({})", most.origin);
            return Err(value_error(low, &least.origin, must));
        }
    }
    check_login(settings)?;
    search::check_together(settings)
}

/// Checks the settings of logins by browser.
fn check_login(settings: &Layer) -> Result<(), ConfigError> {
    for (name, needed) in
        [("console.issuer", "server.public_url"), ("console.client_secret", "console.client_id")]
    {
        let (Some(given), Some(other)) = (settings.get(name), settings.get(needed)) else { continue };
        let is_empty = |value: &ValueKind| matches!(value, ValueKind::String(text) if text.is_empty());
        if !is_empty(&given.value) && is_empty(&other.value) {
            return Err(value_error(name, &given.origin, format!("needs {needed}, which is not set")));
        }
    }
    Ok(())
}

fn check_number(key: &str, value: i64) -> Result<(), String> {
    let (least, greatest) = range(key);
    let (least, besides) =
        if key == MEMORY { (MEMORY_BYTES_MIN, "0, for the default, or ") } else { (least, "") };
    must(
        (least..=greatest).contains(&value) || (key == MEMORY && value == 0),
        format!("must be {besides}a whole number from {least} to {greatest}"),
    )
}

fn check_text(key: &str, text: &str) -> Result<(), String> {
    if let Some(words) = words(key) {
        return must(words.contains(&text), format!("must be one of: {}", words.join(", ")));
    }
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
        "server.public_url" if !text.is_empty() => must(is_public_url(text), PUBLIC_URL),
        "oauth.client_metadata_url" if !text.is_empty() => must(is_public_url(text), PUBLIC_URL),
        "search.embeddings_url" if !text.is_empty() => search::check_url(text),
        "search.embeddings_model" => search::check_model(text),
        "search.embeddings_api_key" => search::check_key(text),
        "telemetry.log_filter" => must(
            !text.is_empty() && EnvFilter::try_new(text).is_ok(),
            "must be levels, of all or of parts, such as \"info\" or \"info,mcpproxy=debug\"",
        ),
        "telemetry.service_name" => must(!text.is_empty(), "must not be empty"),
        _ => Ok(()),
    }
}

const PUBLIC_URL: &str = "must be an https:// URL, or http:// with a loopback address, without user name, query or fragment, for \
                          example https://mcp.example.com";

/// Returns whether a text is a URL that clients can be sent to: over TLS, unless they are on this machine.
fn is_public_url(text: &str) -> bool {
    let Ok(url) = url::Url::parse(text) else { return false };
    let is_local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => return false,
    };
    let is_plain = !text.contains(['?', '#', '@']) && !text.contains(char::is_whitespace);
    is_plain && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

const ADDRESS: &str = "must be an IP address with a port, for example 127.0.0.1:8080 or [::]:8080";

/// Checks a list, whatever its source.
pub(super) fn check_list(key: &str, entries: &[&str], origin: &LayerOrigin) -> Result<(), ConfigError> {
    if key == "defaults.allowed_tools" && (entries.is_empty() || entries.len() > glob::PATTERNS_MAX) {
        return Err(value_error(key, origin, "must have from 1 to 200 globs, for example \"*\""));
    }
    for (index, entry) in entries.iter().enumerate() {
        let check = match key {
            "sessions.key" => secret::check_text_secret(entry),
            "secrets.master_key" => secret::MasterKey::parse(entry).map(|_| ()),
            "egress.allow" | "server.trusted_proxies" => {
                must(entry.parse::<IpNet>().is_ok(), "must be a network such as 10.0.0.0/8")
            }
            "server.allowed_hosts" => check_host(entry),
            "server.allowed_origins" => check_origin(entry),
            "defaults.host_prompts" => {
                let known = OperationType::parse(entry).is_some();
                must(known, format!("must be one of: {}", OperationType::WORDS.join(", ")))
            }
            "defaults.allowed_tools" => {
                let most = glob::PATTERN_BYTES_MAX;
                must(entry.len() <= most, format!("must be at most {most} bytes"))
            }
            _ => Ok(()),
        };
        check.map_err(|must| value_error(&format!("{key}, entry {},", index + 1), origin, must))?;
    }
    Ok(())
}

fn check_host(entry: &str) -> Result<(), String> {
    let fits = entry.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c)) || entry == "*";
    must(fits, "must be a host name, `name:port`, or `*`, without a scheme or path")
}

fn check_origin(entry: &str) -> Result<(), String> {
    let host = entry.split_once("://").map_or("", |(_, host)| host);
    let fits = entry.is_ascii() && !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
    must(fits || entry == "*", "must be an origin such as https://example.com, without a path")
}
