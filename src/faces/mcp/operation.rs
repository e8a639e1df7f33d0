//! A request as telemetry sees it: the span of what a client asked (OpenTelemetry conventions for MCP).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Version};

use super::jsonrpc::RpcError;
use super::session::Session;
use super::{Endpoint, Era, HANDSHAKE, MODERN, jsonrpc};
use crate::domain::json::{self, Member};
use crate::domain::refusal::Code;
use crate::domain::span::{Span, shown, shown_uri};
use crate::domain::trace::TraceParent;
use crate::faces::wire;
use crate::gateway::{Attempt, CallOutcome, Caller, Gateway, OpenSpan, Trace};

/// The methods that are called by their name.
const METHODS: [&str; 22] = [
    "initialize",
    "ping",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "resources/templates/list",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/list",
    "tasks/cancel",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
];
/// What any other is called: clients send what they like.
const OTHER: &str = "_OTHER";

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
    pub(super) params: &'a [Member<'a>],
    pub(super) meta: Option<&'a str>,
    pub(super) is_modern: bool,
}

/// How it ended.
pub(super) enum Ended {
    /// As it should, or with a question to the client.
    Well,
    /// The tool said that it failed.
    ToolError,
    /// With a result that says what was refused.
    Refused(&'static str),
    /// With a JSON-RPC error of this code, for a reason of ours.
    Error { code: i64, reason: Option<&'static str> },
}

impl Ended {
    /// How a call of a tool ended.
    pub(super) fn of_call(endpoint: Endpoint, era: Era, outcome: &CallOutcome) -> Ended {
        match outcome {
            CallOutcome::Refused(refused)
                if endpoint == Endpoint::Search || refused.refusal.code != Code::NotFound =>
            {
                Ended::Refused(refused.refusal.code.as_str())
            }
            outcome => Ended::of_ask(era, outcome),
        }
    }

    /// How anything else ended that an upstream was asked.
    pub(super) fn of_ask(era: Era, outcome: &CallOutcome) -> Ended {
        match outcome {
            CallOutcome::Result { head, .. } if head.is_error => Ended::ToolError,
            CallOutcome::Result { .. } | CallOutcome::InputRequired { .. } => Ended::Well,
            CallOutcome::InvalidState => RpcError::invalid_state().ended(),
            CallOutcome::UpstreamError(raw) => {
                let text = std::str::from_utf8(raw).unwrap_or_default();
                let code = json::find_members(text, ["code"]).ok().and_then(|[code]| code?.parse().ok());
                Ended::Error { code: code.unwrap_or_default(), reason: None }
            }
            CallOutcome::Refused(refused) => match refused.refusal.code {
                Code::NotFound => RpcError::invalid_params("").ended(),
                Code::RateLimited => RpcError::rate_limited(era, &refused.refusal).ended(),
                _ => RpcError::refusal(&refused.refusal).ended(),
            },
        }
    }

    fn note(self, span: &mut Span) {
        match self {
            Ended::Well => {}
            Ended::ToolError => span.fail("tool_error"),
            Ended::Refused(code) => span.fail(code),
            Ended::Error { code, reason } => {
                span.set("rpc.response.status_code", code.to_string());
                match reason {
                    Some(reason) => span.fail(reason),
                    // what the caller did wrong is no fault of the server
                    None if jsonrpc::is_callers_fault(code) => {}
                    None => span.fail(code.to_string()),
                }
            }
        }
    }
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
        self.note(|span| {
            span.set("mcp.session.id", session.id.clone());
            if let Some(version) = HANDSHAKE.into_iter().find(|known| *known == session.version) {
                span.set("mcp.protocol.version", version);
            }
        });
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

    /// Ends it; what comes later does not count.
    pub(super) fn ended(&self, ended: impl FnOnce() -> Ended) {
        if let Some(mut span) = self.take() {
            span.note(|span| ended().note(span));
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
        let method = METHODS.into_iter().find(|known| *known == self.method).unwrap_or(OTHER);
        span.name = method.into();
        span.set("mcp.method.name", method);
        if let Some(id) = self.id.filter(|id| *id != "null") {
            span.set("jsonrpc.request.id", shown(id.trim_matches('"')));
        }
        if let Some(version) = self.protocol_version() {
            span.set("mcp.protocol.version", version);
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
        if method == "resources/read"
            && let Some(uri) = self.text("uri")
        {
            span.set("mcp.resource.uri", shown_uri(&uri));
        }
        span.set("mcpproxy.endpoint", self.endpoint.as_str());
        span.set("mcpproxy.tenant", self.caller.tenant_name().to_owned());
        if let Some(key) = self.caller.key {
            span.set("mcpproxy.key", key.0.to_string());
        }
    }

    fn protocol_version(&self) -> Option<&'static str> {
        if self.is_modern {
            return Some(MODERN);
        }
        // one in a session speaks the session's
        if self.headers.contains_key("mcp-session-id") {
            return None;
        }
        let said = self.headers.get("mcp-protocol-version")?;
        HANDSHAKE.into_iter().find(|known| said == known)
    }

    fn text(&self, name: &str) -> Option<String> {
        let raw = self.params.iter().find(|member| member.name == name)?.value;
        serde_json::from_str(raw).ok()
    }
}
