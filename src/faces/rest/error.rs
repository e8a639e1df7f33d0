//! Conversion of failures into status codes and bodies, for all routes.

use std::fmt::Display;

use axum::response::Response;
use bytes::Bytes;
use http::{StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::domain::operation::{OperationType, Variant};
use crate::domain::refusal::{Class, Code, Refusal};
use crate::faces::auth::NeededScope;
use crate::faces::body::BodyError;
use crate::faces::wire::error::{json_response, render};
use crate::gateway::{GatewayError, MemoryPurpose, Refused, overloaded};

/// Longest message of an upstream's error that is repeated, in characters. The whole error stands beside it.
const UPSTREAM_MESSAGE_CHARS_MAX: usize = 1000;

/// Failure with the HTTP status of its response.
#[derive(Debug)]
pub(super) struct RestError {
    status: StatusCode,
    cause: GatewayError,
}

impl From<GatewayError> for RestError {
    fn from(cause: GatewayError) -> RestError {
        RestError { status: status_of(&cause), cause }
    }
}

impl RestError {
    /// Returns the failure for a body that was not read.
    pub(super) fn from_body(error: BodyError, bytes_max: usize) -> RestError {
        let (status, message) = match error {
            BodyError::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {bytes_max} bytes (limits.request_bytes_max)"),
            ),
            BodyError::Broken => (StatusCode::BAD_REQUEST, "the body did not arrive whole".to_owned()),
            BodyError::Slow => (StatusCode::REQUEST_TIMEOUT, "the body came too slowly".to_owned()),
            BodyError::NoMemory => {
                return GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Request))).into();
            }
        };
        RestError { status, cause: GatewayError::Invalid { field: None, message } }
    }

    /// Returns the failure for a body of another type than JSON.
    pub(super) fn content_type() -> RestError {
        let cause = GatewayError::invalid("Content-Type", "the body must be application/json");
        RestError { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, cause }
    }

    /// Returns the failure for an answer that cannot be written. The cause is logged, and not shown to the client.
    pub(super) fn unshowable(error: impl Display) -> RestError {
        tracing::error!(%error, "an answer could not be written");
        GatewayError::Unavailable.into()
    }

    /// Returns the failure for the activity log.
    pub(super) fn cause(&self) -> &GatewayError {
        &self.cause
    }

    /// Returns the response.
    pub(super) fn render(&self, request_id: Option<&str>) -> Response {
        let field = match &self.cause {
            GatewayError::Invalid { field, .. } => field.as_deref(),
            _ => None,
        };
        let response = render(self.status, code_of(&self.cause), &self.cause.to_string(), field, request_id);
        match &self.cause {
            GatewayError::Refused(refusal) => with_retry_after(response, refusal),
            _ => response,
        }
    }
}

fn status_of(error: &GatewayError) -> StatusCode {
    match error {
        GatewayError::NotFound(_) => StatusCode::NOT_FOUND,
        GatewayError::Forbidden(_) | GatewayError::MayNotDecide(_) => StatusCode::FORBIDDEN,
        GatewayError::Invalid { .. } => StatusCode::BAD_REQUEST,
        GatewayError::Conflict(_) => StatusCode::CONFLICT,
        GatewayError::Limit(_) => StatusCode::TOO_MANY_REQUESTS,
        GatewayError::Busy(_) | GatewayError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        GatewayError::Refused(refusal) => status_of_class(refusal.code.class()),
    }
}

/// Returns the code of a failure, for its response and its record.
pub(super) fn code_of(error: &GatewayError) -> &'static str {
    match error {
        GatewayError::NotFound(_) => "not_found",
        GatewayError::Forbidden(_) => "forbidden",
        GatewayError::MayNotDecide(why) => why.as_str(),
        GatewayError::Invalid { .. } => "invalid_request",
        GatewayError::Conflict(_) => "conflict",
        GatewayError::Limit(_) => "rate_limited",
        GatewayError::Busy(_) | GatewayError::Unavailable => "unavailable",
        GatewayError::Refused(refusal) => refusal.code.as_str(),
    }
}

fn status_of_class(class: Class) -> StatusCode {
    match class {
        Class::Check => StatusCode::UNPROCESSABLE_ENTITY,
        Class::Permission => StatusCode::FORBIDDEN,
        Class::NotFound => StatusCode::NOT_FOUND,
        Class::Rate => StatusCode::TOO_MANY_REQUESTS,
        Class::Limit => StatusCode::SERVICE_UNAVAILABLE,
        Class::AfterDispatch | Class::Cancelled => StatusCode::BAD_GATEWAY,
    }
}

/// Returns the response to a method that a path does not have.
pub(super) fn wrong_method(request_id: Option<&str>) -> Response {
    let message = "this path does not know that method";
    render(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", message, None, request_id)
}

/// Body of an error response: `{"error": …}`.
#[derive(Serialize)]
struct Envelope<T> {
    error: T,
}

#[derive(Serialize)]
struct RefusedBody<'a> {
    code: Code,
    message: &'a str,
    tool: Option<&'a str>,
    variant: Option<Variant>,
    declared: Option<OperationType>,
    expected: Option<OperationType>,
    recommended: Option<Variant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consent_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approver_says: Option<&'a str>,
    request_id: Option<&'a str>,
}

/// Returns the response to a call that did not run, or ran without a usable answer.
pub(super) fn refused(refused: &Refused, request_id: Option<&str>) -> Result<Response, RestError> {
    let Refused { refusal, tool, variant, declared, .. } = refused;
    let body = RefusedBody {
        code: refusal.code,
        message: &refusal.message,
        tool: tool.as_deref(),
        variant: *variant,
        declared: *declared,
        expected: refusal.expected,
        recommended: refusal.recommended,
        consent_id: refusal.consent_id,
        approver_says: refusal.approver_says.as_deref(),
        request_id,
    };
    let response = with_retry_after(write(status_of_class(refusal.code.class()), body)?, refusal);
    Ok(match refusal.scope_for() {
        Some(operation) => NeededScope(operation).refuse(response),
        None => response,
    })
}

#[derive(Serialize)]
struct UpstreamBody<'a> {
    code: &'a str,
    message: &'a str,
    upstream: Option<&'a RawValue>,
    request_id: Option<&'a str>,
}

/// Returns the response to an upstream's JSON-RPC error: the whole error, and its message where clients look for one.
pub(super) fn upstream(raw: &Bytes, request_id: Option<&str>) -> Result<Response, RestError> {
    #[derive(serde::Deserialize)]
    struct Head {
        message: String,
    }
    let message = match serde_json::from_slice::<Head>(raw) {
        Ok(head) if !head.message.is_empty() => {
            head.message.chars().take(UPSTREAM_MESSAGE_CHARS_MAX).collect()
        }
        _ => "the server answered with an error".to_owned(),
    };
    let upstream = serde_json::from_slice(raw).ok();
    let body = UpstreamBody { code: "upstream_error", message: &message, upstream, request_id };
    let text = serde_json::to_string(&Envelope { error: body }).map_err(RestError::unshowable)?;
    // holds the upstream's memory while the answer waits for a slow client
    let kept = Bytes::from_owner(Sharing { text, _share: raw.clone() });
    Ok(json_response(StatusCode::BAD_GATEWAY, kept))
}

/// Text that keeps the memory of the answer it was made of, which counts in the tenant's share.
struct Sharing {
    text: String,
    _share: Bytes,
}

impl AsRef<[u8]> for Sharing {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Adds `Retry-After`, if the refusal says when a retry may help.
fn with_retry_after(mut response: Response, refusal: &Refusal) -> Response {
    if let Some(seconds) = refusal.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn write(status: StatusCode, error: impl Serialize) -> Result<Response, RestError> {
    let text = serde_json::to_string(&Envelope { error }).map_err(RestError::unshowable)?;
    Ok(json_response(status, text))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::domain::operation::{OperationType, Variant};
    use crate::domain::refusal::Code;

    async fn read(response: Response) -> (u16, String) {
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn every_failure_has_its_status_and_code() {
        let refusal = || Box::new(Refusal::new(Code::RecordUnavailable, "m"));
        let rows = [
            (GatewayError::NotFound("key"), 404, "not_found", "key not found"),
            (GatewayError::Forbidden("no".into()), 403, "forbidden", "no"),
            (GatewayError::Conflict("taken".into()), 409, "conflict", "taken"),
            (GatewayError::Limit("full".into()), 429, "rate_limited", "full"),
            (GatewayError::Refused(refusal()), 503, "record_unavailable", "m"),
        ];
        for (error, status, code, message) in rows {
            let expected =
                format!(r#"{{"error":{{"code":"{code}","message":"{message}","request_id":"r"}}}}"#);
            assert_eq!(read(RestError::from(error).render(Some("r"))).await, (status, expected));
        }
        let (status, text) = read(RestError::from(GatewayError::Unavailable).render(None)).await;
        assert_eq!((status, text.contains(r#""code":"unavailable""#)), (503, true), "{text}");
    }

    #[tokio::test]
    async fn a_field_is_named() {
        let (status, text) =
            read(RestError::from(GatewayError::invalid("limit", "no")).render(Some("r"))).await;
        let body: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({"code": "invalid_request", "field": "limit", "message": "no", "request_id": "r"});
        assert_eq!((status, &body["error"]), (400, &expected));
        assert_eq!(read(RestError::from_body(BodyError::TooLarge, 9).render(None)).await.0, 413);
        assert_eq!(read(RestError::from_body(BodyError::Broken, 9).render(None)).await.0, 400);
        assert_eq!(read(RestError::content_type().render(None)).await.0, 415);
    }

    #[tokio::test]
    async fn refusals_say_what_to_do_instead() {
        let refusal = Refusal::new(Code::ServerMismatch, "Tool \"x\"")
            .expecting(OperationType::Destructive)
            .recommending(Variant::Destructive);
        let about = Refused {
            refusal,
            tool: Some("a:b".into()),
            variant: Some(Variant::Read),
            declared: None,
            is_structured: true,
        };
        let (status, text) = read(refused(&about, Some("r")).unwrap()).await;
        assert_eq!(status, 422);
        assert_eq!(
            text,
            r#"{"error":{"code":"server_mismatch","message":"Tool \"x\"","tool":"a:b","variant":"call_tool_read","declared":null,"expected":"destructive","recommended":"call_tool_destructive","request_id":"r"}}"#
        );
    }

    #[test]
    fn classes_have_their_status() {
        let rows = [
            (Code::InvalidName, 422),
            (Code::ToolChanged, 422),
            (Code::OperationNotPermitted, 403),
            (Code::NotFound, 404),
            (Code::RateLimited, 429),
            (Code::Overloaded, 503),
            (Code::UpstreamTimeout, 502),
        ];
        for (code, status) in rows {
            assert_eq!(status_of_class(code.class()).as_u16(), status, "{code:?}");
        }
    }

    #[tokio::test]
    async fn an_upstreams_error_stays_as_it_was() {
        let raw = Bytes::from_static(br#"{ "code":-32000,"message":"no","data":1e400 }"#);
        let expected = r#"{"error":{"code":"upstream_error","message":"no","upstream":{ "code":-32000,"message":"no","data":1e400 },"request_id":"r"}}"#;
        assert_eq!(read(upstream(&raw, Some("r")).unwrap()).await, (502, expected.to_owned()));
        let broken = read(upstream(&Bytes::from_static(b"{"), None).unwrap()).await;
        assert_eq!(
            broken.1,
            r#"{"error":{"code":"upstream_error","message":"the server answered with an error","upstream":null,"request_id":null}}"#
        );
    }
}
