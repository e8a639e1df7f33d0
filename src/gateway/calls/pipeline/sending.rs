//! A request on its way to an upstream, until it is known what became of it: one value for the call itself, the histogram
//! and the span (OpenTelemetry conventions for MCP, client side).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;

use super::outcome::CallOutcome;
use crate::domain::activity::Record;
use crate::domain::end::End;
use crate::domain::measure::{Measures, OTHER};
use crate::domain::refusal::Refusal;
use crate::domain::span::{Span, TENANT, shown, shown_uri};
use crate::gateway::catalog::ServerEntry;
use crate::gateway::log::Attempt;
use crate::gateway::trace::OpenSpan;
use crate::upstream::{Sent, Target};

/// What the upstream is asked for, by its own name.
pub(super) enum SpanSubject<'a> {
    /// A tool.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// What is at a URI.
    Resource(&'a str),
    /// Nothing that has a name.
    Other,
}

/// One that may be sent. Dropped without an end, it was given up.
pub(super) struct Sending<'a> {
    measures: &'a Measures,
    method: &'static str,
    began: Instant,
    /// Filled in by whoever sends it.
    pub(super) sent: Arc<Sent>,
    /// Where it is recorded.
    span: Option<OpenSpan>,
    end: End,
}

impl<'a> Sending<'a> {
    /// From now on it waits for its turn. Says in `_meta` what it is part of; where no traces are made, that stays as it
    /// came.
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
                to(span, &server.target);
                span.set(TENANT, attempt.caller.tenant_name().to_owned());
                span.set("mcpproxy.server", server.name.clone());
                // completions have no record that stays
                if method != "completion/complete" {
                    span.set("mcpproxy.record", record.id.to_string());
                }
                if let Some(tier) = record.tier {
                    span.set("mcpproxy.tier", tier);
                }
            });
            span
        });
        Sending { measures, method, began: Instant::now(), sent: Arc::default(), span, end: End::GIVEN_UP }
    }

    /// Since when it waits, or is under way.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// It has ended like this; gives how long the upstream took. What was answered without being sent has no span.
    pub(super) fn ended(mut self, concluded: &Result<CallOutcome, Refusal>) -> Option<Duration> {
        self.end = match concluded {
            Ok(CallOutcome::Result { head, .. }) => End::result(head.is_error),
            Ok(CallOutcome::InputRequired { .. }) => End::Well,
            Ok(CallOutcome::UpstreamError { code, .. }) => End::asked(*code),
            Ok(CallOutcome::Refused(_) | CallOutcome::InvalidState) => End::Failed(OTHER),
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
    /// What never had its turn has a span that says why, and is no request.
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
