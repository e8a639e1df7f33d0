//! Logs. Text for people, JSON for collectors, always on stderr.

use tracing_subscriber::EnvFilter;

use super::config::{LogFormat, Telemetry};

/// Starts logging as configured; an unreadable filter falls back to `info`.
pub(super) fn start(telemetry: &Telemetry) {
    let filter = EnvFilter::try_new(&telemetry.log_filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match telemetry.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
    };
    // a second start in one process (tests) keeps the first
    drop(started);
}
