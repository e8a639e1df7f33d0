//! A collector of traces: OTLP over gRPC and over HTTP, as the protocol's own definitions have them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::wait::eventually;

/// How long spans may take to arrive.
const ARRIVAL_WAIT_MAX: Duration = Duration::from_secs(10);

/// Which side of a request a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Server,
    Client,
    Other,
}

/// A span as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub kind: Kind,
    pub trace: String,
    pub id: String,
    /// "" for a root.
    pub parent: String,
    pub state: String,
    /// Linked spans, as `trace/id`.
    pub links: Vec<String>,
    pub is_error: bool,
    pub took_s: f64,
    pub attributes: BTreeMap<String, String>,
    pub resource: BTreeMap<String, String>,
}

impl Seen {
    /// An attribute, or "".
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// Whether it failed, and of what.
    pub fn ended(&self) -> (bool, &str) {
        (self.is_error, self.get("error.type"))
    }
}

#[derive(Default)]
struct Heap {
    spans: Mutex<Vec<Seen>>,
    /// Everything that came, for a look at what should not be in it.
    raw: Mutex<String>,
    /// Spans that come over HTTP wait while this is true.
    waits: watch::Sender<bool>,
}

/// The running collector; stops when dropped.
pub struct Collector {
    /// `http://127.0.0.1:PORT` of OTLP over HTTP.
    pub http: String,
    /// The same over gRPC.
    pub grpc: String,
    heap: Arc<Heap>,
    tasks: [JoinHandle<()>; 2],
}

impl Collector {
    pub async fn start() -> Collector {
        let heap = Arc::new(Heap::default());
        let over_http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let over_grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = format!("http://{}", over_http.local_addr().unwrap());
        let grpc = format!("http://{}", over_grpc.local_addr().unwrap());
        let kept = Arc::clone(&heap);
        let routes = Router::new().route(
            "/v1/traces",
            post(move |body: Bytes| {
                let kept = Arc::clone(&kept);
                async move {
                    drop(kept.waits.subscribe().wait_for(|waits| !waits).await);
                    kept.take(ExportTraceServiceRequest::decode(body).unwrap());
                }
            }),
        );
        let service = TraceServiceServer::from_arc(Arc::clone(&heap));
        let incoming = futures_util::stream::unfold(over_grpc, |listener| async move {
            let accepted = listener.accept().await;
            Some((accepted.map(|(stream, _)| stream), listener))
        });
        let tasks = [
            tokio::spawn(async move { axum::serve(over_http, routes).await.unwrap() }),
            tokio::spawn(async move {
                let server = tonic::transport::Server::builder().add_service(service);
                server.serve_with_incoming(incoming).await.unwrap();
            }),
        ];
        Collector { http, grpc, heap, tasks }
    }

    /// The settings with which a gateway sends its traces here, at once.
    pub fn settings(&self) -> Vec<(&str, &str)> {
        vec![("MCPPROXY__TELEMETRY__OTLP_ENDPOINT", &self.http), ("OTEL_BSP_SCHEDULE_DELAY", "50")]
    }

    /// From now on what comes over HTTP waits for an answer, or is taken at once again.
    pub fn hold(&self, holds: bool) {
        self.heap.waits.send_replace(holds);
    }

    /// Everything that arrived so far.
    pub fn spans(&self) -> Vec<Seen> {
        self.heap.spans.lock().unwrap().clone()
    }

    /// The same as text.
    pub fn raw(&self) -> String {
        self.heap.raw.lock().unwrap().clone()
    }

    /// The spans of a trace, as soon as there are so many, and never more: servers first.
    pub async fn trace(&self, id: &str, count: usize) -> Vec<Seen> {
        let found = || async {
            let mut found = self.spans();
            found.retain(|span| span.trace == id);
            found.sort_by_key(|span| span.kind != Kind::Server);
            assert!(found.len() <= count, "{found:?}");
            (found.len() == count).then_some(found)
        };
        eventually(&format!("{count} spans of {id}"), ARRIVAL_WAIT_MAX, found).await
    }

    /// The first span of this name.
    pub async fn named(&self, name: &str) -> Seen {
        let found = || async { self.spans().into_iter().find(|span| span.name == name) };
        eventually(&format!("a span {name}"), ARRIVAL_WAIT_MAX, found).await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Heap {
    fn take(&self, request: ExportTraceServiceRequest) {
        self.raw.lock().unwrap().push_str(&format!("{request:?}\n"));
        for resource in request.resource_spans {
            let about = texts(resource.resource.map(|resource| resource.attributes).unwrap_or_default());
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                self.spans.lock().unwrap().push(seen(span, &about));
            }
        }
    }
}

#[tonic::async_trait]
impl TraceService for Heap {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.raw.lock().unwrap().push_str(&format!("{:?}\n", request.metadata()));
        self.take(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

fn seen(span: Span, resource: &BTreeMap<String, String>) -> Seen {
    assert!(span.events.is_empty(), "{span:?}");
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    assert!(u128::from(span.end_time_unix_nano) <= now, "it ends after it arrives: {span:?}");
    Seen {
        name: span.name,
        kind: match span.kind {
            2 => Kind::Server,
            3 => Kind::Client,
            _ => Kind::Other,
        },
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state,
        links: span.links.iter().map(|l| format!("{}/{}", hex(&l.trace_id), hex(&l.span_id))).collect(),
        is_error: span.status.is_some_and(|status| status.code == 2),
        took_s: (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e9,
        attributes: texts(span.attributes),
        resource: resource.clone(),
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |attribute: KeyValue| {
        let value = match attribute.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (attribute.key, value)
    };
    attributes.into_iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
