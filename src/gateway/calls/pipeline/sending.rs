//! A request on its way to an upstream, until its outcome is known. One value serves the call itself, the histogram and the
//! span (OpenTelemetry conventions for MCP, client side).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::outcome::CallOutcome;
use crate::domain::activity::Record;
use crate::domain::end::End;
use crate::domain::measure::Measures;
use crate::domain::refusal::Refusal;
use crate::domain::span::{Span, TENANT, shown, shown_uri};
use crate::gateway::catalog::ServerEntry;
use crate::gateway::log::Attempt;
use crate::gateway::trace::OpenSpan;
use crate::upstream::Sent;

/// JSON-RPC error code of a request whose state does not open.
const INVALID_PARAMS: i64 = -32602;

/// Subject of a request's span, under the server's own name.
pub(super) enum SpanSubject<'a> {
    /// A tool.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// A resource, by its URI.
    Resource(&'a str),
    /// Any other request, such as a completion.
    Other,
}

/// A request that may be sent. If dropped before [`Sending::ended`], it counts as given up.
pub(super) struct Sending<'a> {
    measures: &'a Measures,
    method: &'static str,
    began: Instant,
    /// Dispatch state, filled in by the upstream connection.
    pub(super) sent: Arc<Sent>,
    /// Span of the request; `None` if the trace is not recorded.
    span: Option<OpenSpan>,
    end: End,
}

impl<'a> Sending<'a> {
    /// Begins the span and the waiting time of a request. Writes the trace context into `meta`, if the attempt has a trace.
    pub(super) fn begin(
        measures: &'a Measures,
        attempt: &Attempt,
        server: &ServerEntry,
        record: &Record,
        (method, about): (&'static str, SpanSubject<'_>),
        meta: &mut Vec<(String, Bytes)>,
    ) -> Sending<'a> {
        let span = attempt.trace.as_ref().and_then(|trace| {
            let span = trace.client();
            trace.carry(span.as_ref(), meta);
            span
        });
        let span = span.map(|mut span| {
            span.note(|span| {
                describe(span, method, &about);
                server.target.upstream.tell(span);
                span.set(TENANT, attempt.caller.tenant_name().to_owned());
                span.set("mcpproxy.server", server.name.clone());
                // completions have no lasting record
                if method != "completion/complete" {
                    span.set("mcpproxy.record", record.id.to_string());
                }
                if let Some(tier) = record.tier {
                    span.set("mcpproxy.tier", tier.as_str());
                }
            });
            span
        });
        Sending { measures, method, began: Instant::now(), sent: Arc::default(), span, end: End::GIVEN_UP }
    }

    /// Returns the time since the request began, waiting included, except for persons who are asked.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.sent.asked())
    }

    /// Ends the request with its outcome. Returns the time the upstream took; `None` if it was not sent. A request that was
    /// answered without being sent gets no span.
    pub(super) fn ended(mut self, concluded: &Result<CallOutcome, Refusal>) -> Option<Duration> {
        self.end = match concluded {
            Ok(CallOutcome::Result { head, .. }) => End::result(head.is_error),
            Ok(CallOutcome::InputRequired { .. }) => End::Well,
            Ok(CallOutcome::UpstreamError { code, .. }) => End::asked(*code),
            Ok(CallOutcome::Refused(refused)) => End::Failed(refused.refusal.code.as_str()),
            Ok(CallOutcome::InvalidState) => End::asked(INVALID_PARAMS),
            Err(refusal) => End::Failed(refusal.code.as_str()),
        };
        let is_none = concluded.is_ok() && !self.sent.is_dispatched();
        if let Some(span) = self.span.take_if(|_| is_none) {
            span.forget();
        }
        self.sent.took().map(|(took, _)| took)
    }
}

impl Drop for Sending<'_> {
    /// Ends the span, and counts the request if it was dispatched. A request that was never sent gets a span with the reason
    /// only.
    fn drop(&mut self) {
        if let Some((took, between)) = self.sent.took() {
            self.measures.ended((self.method, None), between, took, self.end.labels());
        }
        let Some(mut span) = self.span.take() else { return };
        span.note(|span| {
            if let Some((id, version)) = self.sent.sent_as() {
                span.set("jsonrpc.request.id", id.to_string());
                span.set("mcp.protocol.version", version);
            }
            self.end.tell(span);
        });
        let settled = self.sent.settled().unwrap_or_else(Instant::now);
        span.end_after(settled.duration_since(self.began));
    }
}

fn describe(span: &mut Span, method: &'static str, about: &SpanSubject<'_>) {
    span.name = method.into();
    span.set("mcp.method.name", method);
    match about {
        SpanSubject::Tool(name) => {
            let name = shown(name);
            span.target(method, &name);
            span.set("gen_ai.tool.name", name);
            span.set("gen_ai.operation.name", "execute_tool");
        }
        SpanSubject::Prompt(name) => {
            let name = shown(name);
            span.target(method, &name);
            span.set("gen_ai.prompt.name", name);
        }
        SpanSubject::Resource(uri) => span.set("mcp.resource.uri", shown_uri(uri)),
        SpanSubject::Other => {}
    }
}
