//! The span of a request to an upstream, on behalf of a caller (OpenTelemetry conventions for MCP, client side).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Uri;

use super::{Attempt, CallOutcome};
use crate::domain::activity::Record;
use crate::domain::json;
use crate::domain::refusal::Refusal;
use crate::domain::span::{Span, shown, shown_uri};
use crate::gateway::catalog::ServerEntry;
use crate::gateway::trace::OpenSpan;
use crate::upstream::{SentAs, Target};

/// What the upstream is asked for, by its own name.
pub(super) enum About<'a> {
    /// A tool.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// What is at a URI.
    Resource(&'a str),
    /// Nothing that has a name.
    Other,
}

/// A request to an upstream as telemetry sees it; nothing, where nobody is told.
#[derive(Default)]
pub(super) struct ClientSpan(Option<Recorded>);

struct Recorded {
    span: OpenSpan,
    sent_as: Arc<SentAs>,
}

impl ClientSpan {
    /// Begins, and says in `_meta` what the request is part of. Where no traces are made, `_meta` stays as it came.
    pub(super) fn begin(
        attempt: &Attempt,
        server: &ServerEntry,
        record: &Record,
        (method, about): (&'static str, About<'_>),
        meta: &mut Vec<(String, Bytes)>,
    ) -> ClientSpan {
        let Some(trace) = &attempt.trace else { return ClientSpan::default() };
        let span = trace.client();
        trace.carry(span.as_ref(), meta);
        ClientSpan(span.map(|mut span| {
            span.note(|span| {
                describe(span, method, &about);
                to(span, &server.target);
                span.set("mcpproxy.tenant", attempt.caller.tenant_name().to_owned());
                span.set("mcpproxy.server", server.name.clone());
                // completions have no record that stays
                if method != "completion/complete" {
                    span.set("mcpproxy.record", record.id.to_string());
                }
                if let Some(tier) = record.tier {
                    span.set("mcpproxy.tier", tier);
                }
            });
            Recorded { span, sent_as: Arc::default() }
        }))
    }

    /// Where is noted what the request was sent as.
    pub(super) fn sent_as(&self) -> Option<Arc<SentAs>> {
        self.0.as_ref().map(|recorded| Arc::clone(&recorded.sent_as))
    }

    /// Ends it. One that was answered without being sent was none.
    pub(super) fn ended(self, outcome: &Result<CallOutcome, Refusal>, dispatched: &AtomicBool) {
        let Some(Recorded { mut span, sent_as }) = self.0 else { return };
        if outcome.is_ok() && !dispatched.load(Ordering::Relaxed) {
            return span.forget();
        }
        span.note(|span| {
            if let Some((id, version)) = sent_as.last() {
                span.set("jsonrpc.request.id", id.to_string());
                span.set("mcp.protocol.version", version);
            }
            match outcome {
                Ok(CallOutcome::Result { head, .. }) if head.is_error => span.fail("tool_error"),
                // to whoever asked, every error is one
                Ok(CallOutcome::UpstreamError(raw)) => {
                    let code = error_code(raw);
                    span.set("rpc.response.status_code", code.clone());
                    span.fail(code);
                }
                Ok(_) => {}
                Err(refusal) => span.fail(refusal.code.as_str()),
            }
        });
        span.end();
    }
}

fn describe(span: &mut Span, method: &'static str, about: &About<'_>) {
    span.name = method.into();
    span.set("mcp.method.name", method);
    match about {
        About::Tool(name) => {
            let name = shown(name);
            span.target(method, &name);
            span.set("gen_ai.tool.name", name);
            span.set("gen_ai.operation.name", "execute_tool");
        }
        About::Prompt(name) => {
            let name = shown(name);
            span.target(method, &name);
            span.set("gen_ai.prompt.name", name);
        }
        About::Resource(uri) => span.set("mcp.resource.uri", shown_uri(uri)),
        About::Other => {}
    }
}

/// Where it goes: of a URL the host and port, and of a program that it is one.
fn to(span: &mut Span, target: &Target) {
    if target.program.is_some() {
        span.set("network.transport", "pipe");
        return;
    }
    span.set("network.transport", "tcp");
    span.set("network.protocol.name", "http");
    span.set("network.protocol.version", "1.1");
    let Ok(uri) = target.url.parse::<Uri>() else { return };
    if let Some(host) = uri.host() {
        span.set("server.address", host.trim_matches(['[', ']']).to_owned());
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        span.set("server.port", i64::from(port));
    }
}

/// The code of an upstream's error. One that is no number was refused when it was read.
fn error_code(raw: &Bytes) -> String {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let code = json::find_members(text, ["code"]).ok().and_then(|[code]| code?.parse::<i64>().ok());
    code.unwrap_or_default().to_string()
}
