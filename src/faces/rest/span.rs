//! Span of a request that runs a tool. Other requests have none: they are in the activity log.

use http::StatusCode;
use http::request::Parts;
use parking_lot::Mutex;

use super::error::code_of;
use crate::domain::end::End;
use crate::domain::span::{Span, TENANT};
use crate::faces::listener::Peer;
use crate::faces::{Faces, client, wire};
use crate::gateway::{Attempt, CallOutcome, GatewayError, OpenSpan};

/// Path below `/api/v1` of the requests that have a span.
const PATH: &str = "/tools/call";
/// Route of these requests, with its prefix.
const ROUTE: &str = "/api/v1/tools/call";

/// Span of a request until it ends; empty for most requests.
#[derive(Default)]
pub(super) struct RequestSpan(Mutex<Option<OpenSpan>>);

impl RequestSpan {
    /// Begins the span of a request, if its trace is recorded. Returns the attempt as a part of it.
    pub(super) fn begin(faces: &Faces, parts: &Parts, attempt: Attempt) -> (RequestSpan, Attempt) {
        let tracer = faces.gateway.options.tracer.as_ref().filter(|_| parts.uri.path() == PATH);
        let begun = tracer
            .and_then(|tracer| tracer.begin(wire::trace::incoming(&parts.headers, &[]), attempt.started));
        let Some((trace, span)) = begun else { return (RequestSpan::default(), attempt) };
        let span = span.map(|span| describe(span, faces, parts, &attempt));
        (RequestSpan(Mutex::new(span)), attempt.traced(&trace))
    }

    /// Notes how the call ended.
    pub(super) fn called(&self, outcome: &CallOutcome) {
        self.note(|span| match outcome {
            CallOutcome::Result { head, .. } => End::result(head.is_error).tell(span),
            CallOutcome::UpstreamError { .. } => span.fail("upstream_error"),
            CallOutcome::Refused(refused) => span.fail(refused.refusal.code.as_str()),
            _ => {}
        });
    }

    /// Ends the span, with the status of the response.
    pub(super) fn answered(&self, status: StatusCode, error: Option<&GatewayError>) {
        self.note(|span| {
            span.set("http.response.status_code", i64::from(status.as_u16()));
            if let Some(error) = error {
                span.fail(code_of(error));
            }
            // an error of the client is no fault of the server (OpenTelemetry conventions for HTTP)
            span.is_error &= !status.is_client_error();
        });
        if let Some(span) = self.0.lock().take() {
            span.end();
        }
    }

    fn note(&self, note: impl FnOnce(&mut Span)) {
        if let Some(span) = self.0.lock().as_mut() {
            span.note(note);
        }
    }
}

fn describe(mut span: OpenSpan, faces: &Faces, parts: &Parts, attempt: &Attempt) -> OpenSpan {
    span.note(|span| {
        span.target("POST", ROUTE);
        span.set("http.request.method", "POST");
        span.set("http.route", ROUTE);
        if let Some(peer) = parts.extensions.get::<Peer>() {
            client::describe(span, peer.address, &parts.headers, &faces.connections);
        }
        span.set("mcpproxy.endpoint", attempt.source.as_str());
        span.set(TENANT, attempt.caller.tenant_name().to_owned());
        if let Some(key) = attempt.caller.key {
            span.set("mcpproxy.key", key.0.to_string());
        }
    });
    span
}
