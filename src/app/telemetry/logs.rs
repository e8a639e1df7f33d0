//! Logs: text for people or JSON for collectors, always on stderr.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::app::config::{LogFormat, Telemetry};
use crate::gateway::current_span;

/// Starts logging as configured; an unreadable filter falls back to `info`.
pub(in crate::app) fn start(telemetry: &Telemetry) {
    let filter = EnvFilter::try_new(&telemetry.log_filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = without_rmcp(filter, &telemetry.log_filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match telemetry.log_format {
        LogFormat::Json => builder.json().flatten_event(true).map_event_format(WithSpan).try_init(),
        LogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
    };
    // a second start in one process (tests) keeps the first
    drop(started);
}

/// Silences rmcp unless the configured filter names it: it logs what upstreams say, word for word and as often as they
/// say it.
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
