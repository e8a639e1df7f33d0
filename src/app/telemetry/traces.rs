//! Traces: export of finished spans to a collector over OTLP.
//!
//! Spans wait in a bounded queue for a thread of the SDK that sends them in batches. Recording a span never waits. When
//! the queue is full, because the collector is slow or away, spans are lost, and that is logged at intervals.

mod queue;

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use opentelemetry::trace::{Link, SpanContext, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, SpanId, TraceId};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanLinks, SpanProcessor,
};
use parking_lot::Mutex;

use self::queue::{QUEUE_SPANS_MAX, Queue};
use crate::app::config::{OtlpProtocol, Telemetry};
use crate::domain::id::ReplicaId;
use crate::domain::span::{Span, SpanKind, Value};
use crate::domain::trace::TraceParent;
use crate::gateway::{LostSpans, SpanSink, Tracer};

/// Most spans in one batch.
const BATCH_SPANS_MAX: usize = 512;
/// Timeout of the collector for one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for the last spans at shutdown. [`FLUSH_MIN`] is granted even when all other time is used up.
const FLUSH_MAX: Duration = Duration::from_secs(3);
const FLUSH_MIN: Duration = Duration::from_millis(500);
/// Interval between two warnings about lost spans.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);
/// Path at which collectors take spans over HTTP.
const HTTP_PATH: &str = "/v1/traces";

/// Export of spans to the collector.
pub(in crate::app) struct Traces {
    processor: Arc<BatchSpanProcessor>,
    tracer: Arc<Tracer>,
}

impl Traces {
    /// Starts the export; `None` if no collector is configured.
    ///
    /// # Errors
    /// The configured endpoint cannot be used.
    pub(in crate::app) fn start(telemetry: &Telemetry, replica: ReplicaId) -> anyhow::Result<Option<Traces>> {
        let Some(endpoint) = &telemetry.otlp_endpoint else { return Ok(None) };
        let exporter = exporter(endpoint, telemetry.otlp_protocol)
            .context("telemetry.otlp_endpoint cannot be used for traces")?;
        let queue = Arc::new(Queue::default());
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS_MAX)
            .with_max_export_batch_size(BATCH_SPANS_MAX);
        let patient = Patient { exporter, queue: Arc::clone(&queue), told: Mutex::default() };
        let mut processor = BatchSpanProcessor::builder(patient).with_batch_config(config.build()).build();
        processor.set_resource(&resource(telemetry, replica));
        let processor = Arc::new(processor);
        let scope = InstrumentationScope::builder("mcpproxy").with_version(env!("CARGO_PKG_VERSION")).build();
        let sink = Sink { processor: Arc::clone(&processor), queue, scope };
        let tracer = Arc::new(Tracer::new(Box::new(sink), telemetry.sample_ratio));
        Ok(Some(Traces { processor, tracer }))
    }

    /// Returns the tracer, which begins spans.
    pub(in crate::app) fn tracer(&self) -> Arc<Tracer> {
        Arc::clone(&self.tracer)
    }

    /// Sends the spans that still wait, and shuts down, by `deadline` or soon after.
    pub(in crate::app) async fn stop(self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now()).clamp(FLUSH_MIN, FLUSH_MAX);
        let ended = tokio::task::spawn_blocking(move || self.processor.shutdown_with_timeout(left)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("stopping before the last spans were sent");
        }
    }
}

fn exporter(endpoint: &str, protocol: OtlpProtocol) -> anyhow::Result<Otlp> {
    // the HTTP client has TLS, but leaves the choice of its provider to the process
    drop(rustls::crypto::ring::default_provider().install_default());
    let exporter = match protocol {
        OtlpProtocol::Grpc => {
            let builder = Otlp::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT);
            let is_secure = endpoint.starts_with("https://");
            let tls = || ClientTlsConfig::new().with_enabled_roots();
            if is_secure { builder.with_tls_config(tls()).build() } else { builder.build() }
        }
        OtlpProtocol::HttpProtobuf => {
            let endpoint = endpoint.trim_end_matches('/');
            let path = if endpoint.ends_with(HTTP_PATH) { "" } else { HTTP_PATH };
            let endpoint = format!("{endpoint}{path}");
            Otlp::builder().with_http().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT).build()
        }
    };
    Ok(exporter?)
}

/// Returns the attributes of this replica in traces; `OTEL_RESOURCE_ATTRIBUTES` may add to them.
fn resource(telemetry: &Telemetry, replica: ReplicaId) -> Resource {
    Resource::builder()
        .with_service_name(telemetry.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", replica.to_string()))
        .build()
}

/// Entry of finished spans into the queue.
struct Sink {
    processor: Arc<BatchSpanProcessor>,
    queue: Arc<Queue>,
    scope: InstrumentationScope,
}

impl SpanSink for Sink {
    fn take(&self, span: Span) {
        if self.queue.enter(&span) {
            self.processor.on_end(data(span, self.scope.clone()));
        }
    }

    fn lost(&self) -> LostSpans {
        self.queue.lost()
    }
}

/// Converts a span into the SDK's type.
fn data(span: Span, scope: InstrumentationScope) -> SpanData {
    let state = span.state.and_then(|state| TraceState::from_str(&state).ok()).unwrap_or_default();
    let mut links = SpanLinks::default();
    links.links.extend(span.link.map(|link| Link::with_context(context(link, true, TraceState::NONE))));
    let attribute = |(name, value): (&'static str, Value)| match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
    };
    SpanData {
        span_context: context(span.context, false, state),
        parent_span_id: SpanId::from_bytes(span.parent.unwrap_or_default()),
        parent_span_is_remote: span.is_parent_remote,
        span_kind: match span.kind {
            SpanKind::Server => opentelemetry::trace::SpanKind::Server,
            SpanKind::Client => opentelemetry::trace::SpanKind::Client,
        },
        name: span.name,
        start_time: span.start,
        end_time: span.end,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links,
        status: if span.is_error { Status::error("") } else { Status::Unset },
        instrumentation_scope: scope,
    }
}

fn context(span: TraceParent, is_remote: bool, state: TraceState) -> SpanContext {
    let flags = TraceFlags::default().with_sampled(span.is_sampled);
    let (trace, span) = (TraceId::from_bytes(span.trace), SpanId::from_bytes(span.span));
    SpanContext::new(trace, span, flags, is_remote, state)
}

/// Exporter whose failures are logged at intervals, not each time.
#[derive(Debug)]
struct Patient<E> {
    exporter: E,
    queue: Arc<Queue>,
    /// Time of the last warning about lost spans, and the number of lost spans by then.
    told: Mutex<(Option<Instant>, LostSpans)>,
}

impl<E: SpanExporter> SpanExporter for Patient<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans: Vec<SpanId> = batch.iter().map(|span| span.span_context.span_id()).collect();
        let sent = self.exporter.export(batch).await;
        self.queue.leave(spans.iter().map(|span| span.to_bytes()));
        let reason = sent.err().map(|error| {
            self.queue.unsent(spans.len());
            error.to_string()
        });
        self.complain(reason.as_deref().unwrap_or("more than the collector takes"));
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E> Patient<E> {
    fn complain(&self, reason: &str) {
        let mut told = self.told.lock();
        if told.0.is_some_and(|at| at.elapsed() < COMPLAINT_INTERVAL) {
            return;
        }
        let (lost, before) = (self.queue.lost(), told.1);
        let spans = lost.all() - before.all();
        if spans > 0 {
            let over_share = lost.over_share - before.over_share;
            *told = (Some(Instant::now()), lost);
            tracing::warn!(
                spans,
                over_share,
                reason,
                "spans were lost: telemetry.otlp_endpoint does not take them"
            );
        }
    }
}
