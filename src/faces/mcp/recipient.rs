//! Recipients of outcomes, and the way to answer them.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::operation::{Operation, OperationSubject};
use super::pages;
use super::result::Answered;
use super::{ClientEra, Endpoint};
use crate::domain::end::End;
use crate::domain::refusal::Code;
use crate::faces::auth::NeededScope;
use crate::faces::sse;
use crate::faces::wire::error::json_response;
use crate::gateway::{CallOutcome, Refused};

/// Function that renders the answer to an outcome, with the end that telemetry records.
pub(super) type Render = fn(&To, &CallOutcome) -> (Answered, End);

/// Recipient of an outcome, and the way to answer it.
pub(super) struct To {
    pub(super) endpoint: Endpoint,
    pub(super) era: ClientEra,
    pub(super) id: String,
    /// Whether the client reads event streams. If so, a call that it cancelled gets no message at all.
    pub(super) streams: bool,
    /// True if the client opens pages for a person (`elicitation.url`).
    pub(super) opens_pages: bool,
    /// Function that renders the answer.
    pub(super) render: Render,
    /// Subject of the request.
    pub(super) about: OperationSubject,
    /// Telemetry of the request.
    pub(super) operation: Operation,
}

impl To {
    /// Returns the answer, and ends the telemetry of the request.
    pub(super) fn answer(&self, outcome: &CallOutcome) -> Answered {
        let unknown = |code| match code {
            Code::NotFound | Code::InvalidName | Code::RecordUnavailable => true,
            // the rate is checked before the URI is looked up
            Code::RateLimited => matches!(self.about, OperationSubject::Resource(_)),
            _ => false,
        };
        if !matches!(outcome, CallOutcome::Refused(refused) if unknown(refused.refusal.code)) {
            self.operation.about(&self.about);
        }
        let page = match outcome {
            CallOutcome::Refused(Refused { refusal, .. }) if self.opens_pages => {
                refusal.page.as_deref().map(|page| (refusal, page))
            }
            _ => None,
        };
        let (answered, end) = match page {
            Some((refusal, page)) => pages::asked(self.era, &self.id, refusal, page),
            None => (self.render)(self, outcome),
        };
        self.operation.ended(end);
        answered
    }

    /// Responds with the answer to an outcome. A cancelled call gets no message (MCP 2025-11-25, cancellation): a client
    /// that reads streams gets an event stream without one.
    pub(super) fn respond(&self, outcome: &CallOutcome) -> Response {
        self.response(self.answer(outcome))
    }

    pub(super) fn response(&self, answered: Answered) -> Response {
        match answered {
            Answered::Withdrawn(_) if self.streams => {
                sse::event_stream(Bytes::from_static(b": cancelled\n\n").into())
            }
            Answered::Failed(error) => error.response(Some(&self.id)),
            Answered::Rejected(text) => json_response(StatusCode::BAD_REQUEST, text),
            Answered::NeedsScope(text, operation) => {
                NeededScope(operation).refuse(json_response(StatusCode::OK, text))
            }
            Answered::Message(text) | Answered::Withdrawn(text) => json_response(StatusCode::OK, text),
        }
    }
}
