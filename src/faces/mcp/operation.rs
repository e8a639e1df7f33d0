//! Telemetry of a client's request, from its arrival until its answer. It is always a sample of a histogram, and also a span
//! if its trace is recorded (OpenTelemetry conventions for MCP, server side).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Version};
use parking_lot::Mutex;

use super::Endpoint;
use super::jsonrpc::{BROKEN, RpcError};
use super::session::Session;
use crate::domain::end::End;
use crate::domain::json::Member;
use crate::domain::measure::{Between, OTHER, Transport, known_method, known_version};
use crate::domain::span::{Span, TENANT, shown, shown_uri};
use crate::domain::trace::TraceParent;
use crate::faces::{Faces, client, wire};
use crate::gateway::{Attempt, Caller, OpenSpan, Trace};

/// Description of a request, for its telemetry.
pub(super) struct OperationQuestion<'a> {
    pub(super) faces: &'a Arc<Faces>,
    pub(super) caller: &'a Caller,
    pub(super) endpoint: Endpoint,
    pub(super) headers: &'a HeaderMap,
    pub(super) version: Version,
    /// Client's end of the connection.
    pub(super) peer: Option<SocketAddr>,
    /// Time at which the request was taken in, after its head had been read.
    pub(super) began: Instant,
    pub(super) method: &'a str,
    /// Raw id; `None` for notifications.
    pub(super) id: Option<&'a str>,
    /// Members of `_meta`; none without it.
    pub(super) meta: &'a [Member<'a>],
}

/// Object of an upstream's that a request is about. It is recorded only if it exists, since clients send any name.
pub(super) enum OperationSubject {
    /// Tool, by its own raw name; `None` for a tool of the gateway's.
    Tool(Option<Bytes>),
    /// Prompt, with the method that asks for it.
    Prompt(&'static str, String),
    /// Resource at a URI.
    Resource(String),
    /// Any other object.
    Other,
}

/// Handle of a request under way, shared by everything that works on it. If the last handle is dropped without an end, the
/// client gave the request up.
#[derive(Clone)]
pub(super) struct Operation(Arc<Inner>);

struct Inner {
    faces: Arc<Faces>,
    began: Instant,
    method: &'static str,
    trace: Option<Arc<Trace>>,
    /// State until the request ends; `None` afterwards.
    open: Mutex<Option<Open>>,
}

/// Telemetry collected about a request that has not ended.
#[derive(Default)]
struct Open {
    tool: Option<&'static str>,
    version: Option<&'static str>,
    /// Whether the answer is a stream, which ends the request later.
    is_streaming: bool,
    span: Option<OpenSpan>,
}

impl Operation {
    /// Begins the telemetry of a request, with a span if its trace is recorded.
    pub(super) fn begin(asked: &OperationQuestion<'_>) -> Operation {
        let tracer = asked.faces.gateway.options.tracer.as_ref();
        let incoming = || wire::trace::incoming(asked.headers, asked.meta);
        let begun = tracer.and_then(|tracer| tracer.begin(incoming(), asked.began));
        let (trace, span) = begun.unzip();
        let span = span.flatten().map(|mut span| {
            span.note(|span| asked.describe(span));
            span
        });
        Operation(Arc::new(Inner {
            faces: Arc::clone(asked.faces),
            began: asked.began,
            method: known_method(asked.method),
            trace,
            open: Mutex::new(Some(Open { span, ..Open::default() })),
        }))
    }

    /// Records a request whose method could not be read. It has no span, which would need a name.
    pub(super) fn unreadable(faces: &Arc<Faces>, began: Instant, error: &RpcError) {
        let open = Open::default();
        faces.measures.ended((OTHER, open.tool), open.between(), began.elapsed(), error.end().labels());
    }

    /// Returns the span that work on the request belongs to; `None` without a trace.
    pub(super) fn here(&self) -> Option<TraceParent> {
        self.0.trace.as_ref().map(|trace| trace.here())
    }

    /// Returns the attempt as a part of the request's trace.
    pub(super) fn part(&self, attempt: Attempt) -> Attempt {
        match &self.0.trace {
            Some(trace) => attempt.traced(trace),
            None => attempt,
        }
    }

    /// Notes the session that the request came in.
    pub(super) fn session(&self, session: &Session) {
        self.note(|span| span.set("mcp.session.id", session.id.clone()));
    }

    /// Notes the revision that the client speaks, if it is known.
    pub(super) fn speaks(&self, version: &str) {
        let Some(version) = known_version(version) else { return };
        self.with(|open| {
            open.version = Some(version);
            open.note(|span| span.set("mcp.protocol.version", version));
        });
    }

    /// Notes which tool of the gateway's own is called. Tools of upstreams are too many for labels of a histogram.
    pub(super) fn own_tool(&self, name: &'static str) {
        self.with(|open| {
            open.tool = Some(name);
            open.note(|span| tool(span, name));
        });
    }

    /// Notes the object that the request is about, which must exist.
    pub(super) fn about(&self, about: &OperationSubject) {
        self.note(|span| match about {
            OperationSubject::Tool(Some(raw)) => {
                if let Ok(name) = serde_json::from_slice::<String>(raw) {
                    tool(span, &name);
                }
            }
            OperationSubject::Prompt(method, name) => {
                let name = shown(name);
                span.target(method, &name);
                span.set("gen_ai.prompt.name", name);
            }
            OperationSubject::Resource(uri) => span.set("mcp.resource.uri", shown_uri(uri)),
            OperationSubject::Tool(None) | OperationSubject::Other => {}
        });
    }

    /// Notes that the answer is a stream, which ends the request later.
    pub(super) fn streams(&self) {
        self.with(|open| open.is_streaming = true);
    }

    /// Ends the request well, unless it has ended already or its answer is a stream.
    pub(super) fn answered(&self) {
        if self.with(|open| open.is_streaming) == Some(false) {
            self.ended(End::Well);
        }
    }

    /// Ends the request. Later ends are ignored.
    pub(super) fn ended(&self, end: End) {
        self.0.ended(end);
    }

    fn with<T>(&self, change: impl FnOnce(&mut Open) -> T) -> Option<T> {
        self.0.open.lock().as_mut().map(change)
    }

    fn note(&self, note: impl FnOnce(&mut Span)) {
        self.with(|open| open.note(note));
    }
}

impl Inner {
    fn ended(&self, end: End) {
        let open = self.open.lock().take();
        let Some(open) = open else { return };
        let (took, between) = (self.began.elapsed(), open.between());
        self.faces.measures.ended((self.method, open.tool), between, took, end.labels());
        if let Some(mut span) = open.span {
            span.note(|span| end.tell(span));
            span.end_after(took);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // a panic ends the request too
        self.ended(if std::thread::panicking() { BROKEN } else { End::GIVEN_UP });
    }
}

impl Open {
    fn note(&mut self, note: impl FnOnce(&mut Span)) {
        if let Some(span) = &mut self.span {
            span.note(note);
        }
    }

    fn between(&self) -> Between {
        Between { transport: Transport::Tcp, version: self.version }
    }
}

impl OperationQuestion<'_> {
    fn describe(&self, span: &mut Span) {
        let method = known_method(self.method);
        span.name = method.into();
        span.set("mcp.method.name", method);
        if let Some(id) = self.id.filter(|id| *id != "null") {
            span.set("jsonrpc.request.id", shown(id.trim_matches('"')));
        }
        span.set("network.transport", "tcp");
        span.set("network.protocol.name", "http");
        span.set("network.protocol.version", if self.version == Version::HTTP_10 { "1.0" } else { "1.1" });
        if let Some(peer) = self.peer {
            client::describe(span, peer, self.headers, &self.faces.connections);
        }
        if method == "tools/call" {
            span.set("gen_ai.operation.name", "execute_tool");
        }
        span.set("mcpproxy.endpoint", self.endpoint.as_str());
        span.set(TENANT, self.caller.tenant_name().to_owned());
        if let Some(key) = self.caller.key {
            span.set("mcpproxy.key", key.0.to_string());
        }
    }
}

fn tool(span: &mut Span, name: &str) {
    let name = shown(name);
    span.target("tools/call", &name);
    span.set("gen_ai.tool.name", name);
}
