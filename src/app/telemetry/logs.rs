//! Logs: text for people or JSON for collectors, always on stderr.

use std::fmt;
use std::sync::Arc;

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::app::config::{LogFormat, Telemetry};
use crate::gateway::current_span;

/// Filter of the log, which can be replaced while the program runs.
#[derive(Clone)]
pub(in crate::app) struct LogDirectives(Arc<dyn Fn(EnvFilter) + Send + Sync>);

impl fmt::Debug for LogDirectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogDirectives").finish_non_exhaustive()
    }
}

impl LogDirectives {
    /// Replaces the directives of the filter.
    pub(in crate::app) fn set(&self, directives: &str) {
        (self.0)(filter(directives));
    }
}

/// Starts logging as configured, and returns the filter.
pub(in crate::app) fn start(telemetry: &Telemetry) -> LogDirectives {
    let filter = filter(&telemetry.log_filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match telemetry.log_format {
        LogFormat::Json => {
            let builder =
                builder.json().flatten_event(true).map_event_format(WithSpan).with_filter_reloading();
            let handle = builder.reload_handle();
            // a second start in one process (tests) keeps the first
            drop(builder.try_init());
            LogDirectives(Arc::new(move |filter| {
                // fails only for a subscriber that is gone
                handle.reload(filter).ok();
            }))
        }
        LogFormat::Text => {
            let builder = builder.with_ansi(false).with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            drop(builder.try_init());
            LogDirectives(Arc::new(move |filter| {
                // fails only for a subscriber that is gone
                handle.reload(filter).ok();
            }))
        }
    }
}

/// Returns the filter of these directives, which were checked with the other settings.
fn filter(directives: &str) -> EnvFilter {
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    without_quotes(filter, directives)
}

/// Crates that log what upstreams and web pages say, word for word and as often as they say it.
const QUOTING: [&str; 4] = ["rmcp", "html5ever", "markup5ever", "cookie_store"];

/// Silences the crates of [`QUOTING`] that the configured filter does not name.
fn without_quotes(filter: EnvFilter, configured: &str) -> EnvFilter {
    let unnamed = QUOTING.into_iter().filter(|name| !configured.contains(name));
    let silent = unnamed.filter_map(|name| format!("{name}={}", LevelFilter::OFF).parse::<Directive>().ok());
    silent.fold(filter, EnvFilter::add_directive)
}

/// Formatter of JSON lines that adds the ids of the current span.
struct WithSpan<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithSpan<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(span) = current_span() else { return self.0.format_event(context, writer, event) };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let Some(open) = line.trim_end().strip_suffix('}') else { return writer.write_str(&line) };
        writeln!(writer, r#"{open},"trace_id":"{}","span_id":"{}"}}"#, span.trace_id(), span.span_id())
    }
}
