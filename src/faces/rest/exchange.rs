//! A request with everything that its handler needs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;

use super::error::RestError;
use super::fields::{Fields, Nulls};
use super::params::{ParamNames, Params};
use super::place::TenantPlaces;
use super::show::{RestAnswer, RouteAnswer};
use super::span::RequestSpan;
use crate::domain::activity::Source;
use crate::domain::id::TenantId;
use crate::domain::json::{self, JsonFault, Member};
use crate::faces::body::{BodyError, hold_answer, read_body};
use crate::faces::request::RequestId;
use crate::faces::sse::{OpenStream, StreamKind};
use crate::faces::wire::error::json_response;
use crate::faces::wire::headers::{CLI, SOURCE};
use crate::faces::{Faces, client, wire};
use crate::gateway::{Attempt, Caller, Gateway, GatewayError, MemoryHold, MemoryPurpose, overloaded};

/// Longest wait of an answer for memory, before it is made.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Request with its caller, its parts and its body.
pub(super) struct Exchange {
    pub(super) faces: Arc<Faces>,
    /// Attempt to record: the caller, and the start.
    pub(super) attempt: Attempt,
    /// Path below `/api/v1`, as received.
    pub(super) path: String,
    segments: Vec<(String, String)>,
    query: Query,
    headers: HeaderMap,
    body: Result<Bytes, BodyError>,
    /// Reason for which the act came to nothing, where the answer is no error; `None` if it did not.
    failure: Mutex<Option<String>>,
    /// Memory taken for the answer before it is made; `None` if none was taken.
    memory: Mutex<Option<MemoryHold>>,
    /// Telemetry of the request.
    pub(super) span: RequestSpan,
}

/// Parameters of a request.
enum Query {
    /// Raw query of an HTTP request.
    Raw(Option<String>),
    /// Names and values of a management tool's arguments.
    Given(Vec<(&'static str, String)>),
}

/// Parts of a request that a management tool makes, without HTTP.
pub(super) struct Inward {
    /// Path below `/api/v1` for the record, as in [`Exchange::path`].
    pub(super) path: String,
    /// Names that the act is about, by the part of the path that they are in a route.
    pub(super) segments: Vec<(String, String)>,
    /// Parameters, each once.
    pub(super) params: Vec<(&'static str, String)>,
    /// Body of the request; empty if there is none.
    pub(super) body: Bytes,
}

impl Exchange {
    /// Creates an exchange without an HTTP request, for an attempt that came by another face.
    pub(super) fn inward(faces: Arc<Faces>, attempt: Attempt, inward: Inward) -> Exchange {
        let Inward { path, segments, params, body } = inward;
        let query = Query::Given(params);
        let (headers, span) = (HeaderMap::new(), RequestSpan::default());
        let (memory, failure) = (Mutex::default(), Mutex::default());
        Exchange { faces, attempt, path, segments, query, headers, body: Ok(body), memory, failure, span }
    }

    /// Returns whether the request came over MCP, where a model may ask. Nothing is approved or released there (behaviour,
    /// section 8).
    pub(super) fn is_over_mcp(&self) -> bool {
        matches!(self.attempt.source, Source::Mcp | Source::Direct)
    }

    /// Takes an HTTP request in. Only a missing caller or an unreadable path is answered here. A body that cannot be read is
    /// a failure of the attempt, which is recorded like any other.
    pub(super) async fn open(faces: Arc<Faces>, request: Request) -> Result<Arc<Exchange>, Response> {
        let (mut parts, body) = request.into_parts();
        let request_id = parts.extensions.get::<RequestId>().map(|id| id.0.clone());
        let Some(caller) = parts.extensions.get::<Arc<Caller>>().cloned() else {
            // the gate lets no request pass without a caller: refused all the same
            let message = "a valid API key is needed";
            let status = StatusCode::UNAUTHORIZED;
            return Err(wire::error::render(status, "unauthenticated", message, None, request_id.as_deref()));
        };
        let Ok(segments) = RawPathParams::from_request_parts(&mut parts, &()).await else {
            return Err(wire::error::not_found(request_id.as_deref()));
        };
        let mut attempt = Attempt::now(caller, source(&parts.headers));
        attempt.request_id = request_id;
        attempt.client = wire::headers::client(&parts.headers);
        attempt.client_address = client::ClientAddress::in_extensions(&parts.extensions);
        attempt.trace_id = wire::trace::trace_id(&parts.headers, &[]);
        attempt.language = wire::headers::language(&parts.headers);
        let (span, attempt) = RequestSpan::begin(&faces, &parts, attempt);
        let bytes_max = faces.options.request_bytes_max;
        let body = read_body(body, bytes_max, &faces.gateway, &attempt.caller).await;
        Ok(Arc::new(Exchange {
            faces,
            attempt,
            path: parts.uri.path().to_owned(),
            segments: segments.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            query: Query::Raw(parts.uri.query().map(str::to_owned)),
            headers: parts.headers,
            body,
            memory: Mutex::default(),
            failure: Mutex::default(),
            span,
        }))
    }

    /// Returns the services of the gateway.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.faces.gateway
    }

    /// Returns the caller.
    pub(super) fn caller(&self) -> &Caller {
        &self.attempt.caller
    }

    /// Returns the caller, to be kept.
    pub(super) fn caller_handle(&self) -> &Arc<Caller> {
        &self.attempt.caller
    }

    /// Returns a part of the path, decoded; empty if the route has no such part.
    pub(super) fn segment(&self, name: &str) -> &str {
        self.segments.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Returns the headers.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Takes a slot for a stream of this caller.
    ///
    /// # Errors
    /// The key, or all keys of its tenant together, have too many streams open.
    pub(super) fn open_stream(&self, kind: StreamKind) -> Result<OpenStream, GatewayError> {
        let opened = OpenStream::begin(&self.faces, &self.attempt.caller, kind);
        opened.map_err(|too_many| GatewayError::Busy(too_many.text()))
    }

    /// Returns the keys that seal event ids of the caller's tenant.
    pub(super) fn places(&self) -> TenantPlaces {
        self.faces.places.of(self.attempt.caller.tenant_id())
    }

    /// Returns the number of streams that a tenant's keys hold open on this replica.
    pub(super) fn streams_of(&self, tenant: TenantId) -> usize {
        self.faces.streams.of_tenant(tenant)
    }

    /// Reads the parameters, each of them one of `names`.
    ///
    /// # Errors
    /// The first parameter that is unknown, repeated, empty or malformed.
    pub(super) fn params(&self, names: ParamNames) -> Result<Params, GatewayError> {
        match &self.query {
            Query::Raw(query) => Params::parse(query.as_deref(), names),
            Query::Given(params) => Params::of(params, names),
        }
    }

    /// Returns the query of an HTTP request as received.
    pub(super) fn raw_query(&self) -> Option<&str> {
        match &self.query {
            Query::Raw(query) => query.as_deref(),
            Query::Given(_) => None,
        }
    }

    /// Returns the id of the request, for its response.
    pub(super) fn request_id(&self) -> Option<&str> {
        self.attempt.request_id.as_deref()
    }

    /// Returns the body as received; `None` if it could not be read, or is not UTF-8.
    pub(super) fn raw_body(&self) -> Option<&str> {
        self.body.as_ref().ok().and_then(|body| std::str::from_utf8(body).ok())
    }

    /// Returns the bytes of the body and the members of the object in them, after checking that there is only one way to
    /// read them. Must be called within [`Self::parse`], since it may take long.
    pub(super) fn object(&self) -> Result<(&Bytes, Vec<Member<'_>>), RestError> {
        let body = self.body.as_ref().map_err(|error| RestError::from_body(*error, self.body_bytes_max()))?;
        if body.is_empty() {
            return Err(invalid("a JSON object is needed as body").into());
        }
        check_content_type(content_type(&self.headers).as_deref())?;
        let text = std::str::from_utf8(body).map_err(|_| invalid("the body is not UTF-8"))?;
        let members = json::members_of_text(text).map_err(|fault| body_fault(&fault))?;
        Ok((body, members))
    }

    /// Reads the body's fields, each of them one of `allowed`.
    pub(super) async fn fields(&self, allowed: &[&str], nulls: Nulls) -> Result<Fields, RestError> {
        self.read_fields(Some(allowed), nulls).await
    }

    /// Reads the body's fields, whatever they are called.
    pub(super) async fn any_fields(&self) -> Result<Fields, RestError> {
        self.read_fields(None, Nulls::Kept).await
    }

    async fn read_fields(&self, allowed: Option<&[&str]>, nulls: Nulls) -> Result<Fields, RestError> {
        let read = || Ok(Fields::read(&self.object()?.1, allowed, nulls)?);
        self.parse(read).await
    }

    /// Checks that the body of a request that needs none is absent, or an object without fields.
    pub(super) async fn no_body(&self) -> Result<(), RestError> {
        if self.body.as_ref().is_ok_and(Bytes::is_empty) {
            return Ok(());
        }
        self.fields(&[], Nulls::Kept).await.map(drop)
    }

    /// Parses the body: at once if it is small, else queued with other long work of the caller's tenant.
    pub(super) async fn parse<T: Send>(&self, parse: impl FnOnce() -> T + Send) -> T {
        let bytes = self.body.as_ref().map_or(0, Bytes::len);
        self.gateway().tenants.parse(self.caller(), bytes, parse).await
    }

    /// Refuses a platform key that names no tenant, on routes about tools.
    pub(super) fn needs_tenant(&self) -> Result<(), GatewayError> {
        if self.caller().tenant_id() == TenantId::PLATFORM {
            let message = "name the tenant to act in with the header X-Tenant: NAME";
            return Err(GatewayError::invalid("X-Tenant", message));
        }
        Ok(())
    }

    /// Notes why the act came to nothing, for its record: its answer is no error.
    pub(super) fn note_failure(&self, failure: Option<String>) {
        *self.failure.lock() = failure;
    }

    /// Takes what [`Exchange::note_failure`] noted.
    pub(super) fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    /// Takes memory for an answer of about this size, before anything is loaded for it.
    ///
    /// # Errors
    /// `overloaded` where answers of the key, its tenant or the replica hold as much as they may.
    pub(super) async fn expect_answer(&self, bytes: usize) -> Result<(), RestError> {
        let memory = || self.memory.lock();
        let before = memory().take();
        let new =
            || self.gateway().tenants.memory(self.caller(), MemoryPurpose::Answer).waiting(ANSWER_WAIT_MAX);
        let mut hold = before.unwrap_or_else(new);
        let short = |_| GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Answer)));
        hold.grow(bytes).await.map_err(short)?;
        *memory() = Some(hold);
        Ok(())
    }

    /// Gives an answer its form. JSON holds memory until it has been written; streams have their own bounds.
    async fn written(&self, answer: RestAnswer) -> Result<Response, RestError> {
        let memory = self.memory.lock().take();
        match answer? {
            RouteAnswer::Json(status, text) => {
                let held = hold_answer(self.gateway(), self.caller(), memory, text).await;
                let short = |_| GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Answer)));
                Ok(json_response(status, held.map_err(short)?))
            }
            RouteAnswer::Nothing => Ok(StatusCode::NO_CONTENT.into_response()),
            RouteAnswer::Ready(response) => Ok(response),
        }
    }

    /// Returns the response for an answer.
    pub(super) async fn finish(&self, answer: RestAnswer) -> Response {
        let answer = self.written(answer).await;
        let (response, error) = match answer {
            Ok(response) => (response, None),
            Err(error) => (error.render(self.request_id()), Some(error)),
        };
        self.span.answered(response.status(), error.as_ref().map(RestError::cause));
        response
    }

    fn body_bytes_max(&self) -> usize {
        self.faces.options.request_bytes_max
    }
}

fn invalid(message: impl Into<String>) -> GatewayError {
    GatewayError::Invalid { field: None, message: message.into() }
}

fn body_fault(fault: &JsonFault) -> GatewayError {
    match fault {
        JsonFault::DuplicateMember { name } => GatewayError::invalid(name.clone(), fault.to_string()),
        JsonFault::NotAnObject => invalid("the body must be a JSON object"),
        other => invalid(format!("the body cannot be read: {other}")),
    }
}

/// Returns the source of the request: the command line if it says so in its header, else REST.
fn source(headers: &HeaderMap) -> Source {
    match headers.get(SOURCE) {
        Some(value) if value == CLI => Source::Cli,
        _ => Source::Rest,
    }
}

/// Returns the content type of the body; `None` without the header. Unreadable bytes count as an unknown type.
fn content_type(headers: &HeaderMap) -> Option<String> {
    headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?").to_owned())
}

/// Accepted content types. The second is what `curl -d` declares for any body. It must be JSON all the same, and no page can
/// send it here by itself, for want of the key's header.
const ACCEPTED: [&str; 2] = ["application/json", "application/x-www-form-urlencoded"];

fn check_content_type(value: Option<&str>) -> Result<(), RestError> {
    let essence = value.map(|value| value.split_once(';').map_or(value, |(essence, _)| essence).trim());
    match essence {
        Some(other) if !ACCEPTED.iter().any(|known| other.eq_ignore_ascii_case(known)) => {
            Err(RestError::content_type())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_or_of_no_declared_type() {
        for good in [
            None,
            Some("application/json"),
            Some("Application/JSON ; charset=utf-8"),
            Some("application/x-www-form-urlencoded"),
        ] {
            assert!(check_content_type(good).is_ok(), "{good:?}");
        }
        for bad in ["", "text/plain", "application/json5", "multipart/form-data", "?"] {
            assert!(check_content_type(Some(bad)).is_err(), "{bad}");
        }
    }
}
