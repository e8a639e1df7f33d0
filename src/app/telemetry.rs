//! Logs. Text for people, JSON for collectors, always on stderr.

mod metrics;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};

pub(super) use self::metrics::Metrics;
use super::config::{LogFormat, Telemetry};

/// Starts logging as configured; an unreadable filter falls back to `info`.
pub(super) fn start(telemetry: &Telemetry) {
    let filter = EnvFilter::try_new(&telemetry.log_filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = without_rmcp(filter, &telemetry.log_filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match telemetry.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
    };
    // a second start in one process (tests) keeps the first
    drop(started);
}

/// rmcp logs what upstreams say, word for word and as often as they say it: only whoever names it gets that.
fn without_rmcp(filter: EnvFilter, configured: &str) -> EnvFilter {
    if configured.contains("rmcp") {
        return filter;
    }
    let silent: Result<Directive, _> = format!("rmcp={}", LevelFilter::OFF).parse();
    match silent {
        Ok(silent) => filter.add_directive(silent),
        Err(_) => filter,
    }
}
