//! `POST /tools/call`: calls a tool, through the same pipeline as `/mcp`.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::error::{self, RestError};
use super::exchange::Exchange;
use super::fields::clip;
use super::fields::unknown;
use super::params::Params;
use super::show::{RestAnswer, RouteAnswer};
use crate::domain::json::Member;
use crate::domain::operation::Variant;
use crate::faces::wire::call::{ARGUMENTS, read};
use crate::faces::wire::error::json_response;
use crate::faces::wire::headers::WARNING;
use crate::gateway::{CallOutcome, CallRequest, Callee, CancelBy, Door, GatewayError, ToolRequest};

/// Longest warning in a header, in characters.
const WARNING_CHARS_MAX: usize = 1000;
/// Field that MCP does not have: there the variant is the name of the tool.
const TOOL_VARIANT: &str = "tool_variant";

pub(super) async fn run(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    exchange.needs_tenant()?;
    let (variant, request) = exchange.parse(|| request(&exchange)).await?;
    let request = CallRequest::new(Callee::Tool(Door::Variant(variant), request));
    let outcome = exchange.gateway().calls.run(exchange.attempt.clone(), request, CancelBy::Nothing);
    let outcome = outcome.await;
    exchange.span.called(&outcome);
    render(outcome, exchange.request_id()).map(RouteAnswer::Ready)
}

fn request(exchange: &Exchange) -> Result<(Variant, ToolRequest), RestError> {
    let (body, members) = exchange.object()?;
    Ok(take(body, &members)?)
}

fn take(body: &Bytes, members: &[Member<'_>]) -> Result<(Variant, ToolRequest), GatewayError> {
    let known = |name: &str| name == TOOL_VARIANT || ARGUMENTS.contains(&name);
    if let Some(member) = members.iter().find(|member| !known(&member.name)) {
        let name = clip(&member.name);
        let known: Vec<&str> = ARGUMENTS.into_iter().chain([TOOL_VARIANT]).collect();
        return Err(unknown("field", &name, &known));
    }
    let variant = members.iter().find(|member| member.name == TOOL_VARIANT);
    let variant = variant.and_then(|member| serde_json::from_str::<String>(member.value).ok());
    let variant = variant.and_then(|text| Variant::parse(&text)).ok_or_else(|| {
        let message = "tool_variant must be call_tool_read, call_tool_write or call_tool_destructive";
        GatewayError::invalid(TOOL_VARIANT, message)
    })?;
    Ok((variant, read(body, members)))
}

fn render(outcome: CallOutcome, request_id: Option<&str>) -> Result<Response, RestError> {
    match outcome {
        CallOutcome::Result { raw, warning, .. } => {
            let mut response = json_response(StatusCode::OK, raw);
            if let Some(value) = warning.and_then(|text| header_safe(&text)) {
                // over MCP it stands in `_meta`; here the body is the upstream's, untouched
                response.headers_mut().insert(WARNING, value);
            }
            Ok(response)
        }
        CallOutcome::UpstreamError { raw, .. } => error::upstream(&raw, request_id),
        CallOutcome::Refused(refused) => error::refused(&refused, request_id),
        // callers over REST declare no capabilities, so they cannot be asked
        CallOutcome::InputRequired { .. } | CallOutcome::InvalidState => {
            Err(RestError::unshowable("it takes another round"))
        }
    }
}

/// Returns a text as the value of a header. Upstreams choose the names of tools, so anything but plain ASCII becomes a
/// question mark.
fn header_safe(text: &str) -> Option<HeaderValue> {
    let safe = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    let text: String = text.chars().take(WARNING_CHARS_MAX).map(safe).collect();
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::domain::json;
    use crate::domain::tool::ResultHead;

    fn parse(text: &'static str) -> Result<(Variant, ToolRequest), GatewayError> {
        let body = Bytes::from_static(text.as_bytes());
        take(&body, &json::members(text).unwrap())
    }

    #[test]
    fn values_are_handed_on_raw() {
        let text =
            r#"{"tool_variant":"call_tool_write","name":"a:b","args": { "n" : 1e400 },"intent_reason":null}"#;
        let (variant, request) = parse(text).unwrap();
        assert_eq!(variant, Variant::Write);
        assert_eq!(request.name.as_deref(), Some(br#""a:b""#.as_slice()));
        assert_eq!(request.args.as_deref(), Some(br#"{ "n" : 1e400 }"#.as_slice()));
        assert_eq!(request.intent_reason.as_deref(), Some(b"null".as_slice()));
        assert_eq!(request.args_json, None);
    }

    #[test]
    fn the_variant_is_needed_and_nothing_unknown_passes() {
        for (text, expected) in [
            (r#"{"name":"a:b"}"#, "tool_variant"),
            (r#"{"tool_variant":"read","name":"a:b"}"#, "tool_variant"),
            (r#"{"tool_variant":null}"#, "tool_variant"),
            (r#"{"tool_variant":["call_tool_read"]}"#, "tool_variant"),
            (r#"{"tool_variant":"call_tool_read","arguments":{}}"#, "arguments"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                matches!(&error, GatewayError::Invalid { field: Some(f), .. } if f == expected),
                "{text} {error:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_result_is_the_body() {
        let text = r#"{ "content":[],"isError":true,"x":18446744073709551616 }"#;
        let head = ResultHead::read(text).unwrap();
        let raw = Bytes::from_static(text.as_bytes());
        let warning = Some("Tool 'é\r\nX: y' is odd".to_owned());
        let response = render(CallOutcome::Result { raw, head, warning, truncated: None }, None).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()[WARNING], "Tool '???X: y' is odd");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), text);
    }
}
