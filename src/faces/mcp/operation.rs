//! A request as telemetry sees it: the span of what a client asked (OpenTelemetry conventions for MCP).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Version};

use super::Endpoint;
use super::ended::Ended;
use super::session::Session;
use crate::domain::measure::{known_method, known_version};
use crate::domain::span::{Span, shown, shown_uri};
use crate::domain::trace::TraceParent;
use crate::faces::wire;
use crate::gateway::{Attempt, Caller, Gateway, OpenSpan, Trace};

/// What is asked, and by whom.
pub(super) struct Question<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) caller: &'a Caller,
    pub(super) endpoint: Endpoint,
    pub(super) headers: &'a HeaderMap,
    pub(super) version: Version,
    /// The other end of the connection.
    pub(super) peer: Option<SocketAddr>,
    pub(super) method: &'a str,
    /// The raw id; notifications have none.
    pub(super) id: Option<&'a str>,
    pub(super) meta: Option<&'a str>,
}

/// A request on its way; handles on it are shared. Whose last handle is dropped without an end was given up by its client.
#[derive(Clone, Default)]
pub(super) struct Operation {
    trace: Option<Arc<Trace>>,
    /// Where it is recorded, until it ends.
    span: Option<Arc<Mutex<Option<OpenSpan>>>>,
}

impl Operation {
    /// Begins; where nobody is told of traces, with nothing.
    pub(super) fn begin(asked: &Question<'_>) -> Operation {
        let Some(tracer) = asked.gateway.tracer() else { return Operation::default() };
        let Some((trace, span)) = tracer.begin(wire::trace::incoming(asked.headers, asked.meta)) else {
            return Operation::default();
        };
        let span = span.map(|mut span| {
            span.note(|span| asked.describe(span));
            Arc::new(Mutex::new(Some(span)))
        });
        Operation { trace: Some(trace), span }
    }

    /// What it is done in the name of.
    pub(super) fn here(&self) -> Option<TraceParent> {
        self.trace.as_ref().map(|trace| trace.here())
    }

    /// An attempt as a part of it.
    pub(super) fn part(&self, attempt: Attempt) -> Attempt {
        match &self.trace {
            Some(trace) => attempt.traced(trace),
            None => attempt,
        }
    }

    /// Whether anything noted of it is told.
    pub(super) fn is_recorded(&self) -> bool {
        self.span.is_some()
    }

    /// Notes the session that it came in.
    pub(super) fn session(&self, session: &Session) {
        self.note(|span| span.set("mcp.session.id", session.id.clone()));
    }

    /// Notes the revision that is spoken.
    pub(super) fn speaks(&self, version: &str) {
        if let Some(version) = known_version(version) {
            self.note(|span| span.set("mcp.protocol.version", version));
        }
    }

    /// Notes the tool that it is about: one that there is, since clients send any name.
    pub(super) fn tool(&self, name: &str) {
        self.note(|span| {
            let name = shown(name);
            span.target("tools/call", &name);
            span.set("gen_ai.tool.name", name);
        });
    }

    /// The same of a prompt.
    pub(super) fn prompt(&self, method: &str, name: &str) {
        self.note(|span| {
            let name = shown(name);
            span.target(method, &name);
            span.set("gen_ai.prompt.name", name);
        });
    }

    /// Notes what it reads.
    pub(super) fn resource(&self, uri: &str) {
        self.note(|span| span.set("mcp.resource.uri", shown_uri(uri)));
    }

    /// Ends it; what comes later does not count.
    pub(super) fn ended(&self, ended: Ended) {
        if let Some(mut span) = self.take() {
            span.note(|span| ended.note(span));
            span.end();
        }
    }

    /// A handle of its own on what is not over when the others are dropped.
    pub(super) fn apart(&self) -> Operation {
        let span = self.take().map(|span| Arc::new(Mutex::new(Some(span))));
        Operation { trace: self.trace.clone(), span }
    }

    fn take(&self) -> Option<OpenSpan> {
        self.span.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, note: impl FnOnce(&mut Span)) {
        let Some(span) = &self.span else { return };
        if let Some(span) = span.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            span.note(note);
        }
    }
}

impl Question<'_> {
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
            span.set("client.address", peer.ip().to_canonical().to_string());
            span.set("client.port", i64::from(peer.port()));
        }
        if method == "tools/call" {
            span.set("gen_ai.operation.name", "execute_tool");
        }
        span.set("mcpproxy.endpoint", self.endpoint.as_str());
        span.set("mcpproxy.tenant", self.caller.tenant_name().to_owned());
        if let Some(key) = self.caller.key {
            span.set("mcpproxy.key", key.0.to_string());
        }
    }
}
