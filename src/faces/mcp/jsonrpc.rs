//! JSON-RPC error codes and messages. No other file knows the numbers.

use axum::response::Response;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::ClientEra;
use crate::domain::end::{End, EndFault};
use crate::domain::json;
use crate::domain::refusal::Refusal;
use crate::faces::body::BodyError;
use crate::faces::wire::error::json_response;
use crate::gateway::{MemoryPurpose, QuestionReply, overloaded};

/// The gateway's own code for too many attempts, outside the reserved range -32768 to -32000.
const RATE_LIMITED: i32 = -31429;
/// JSON-RPC error code of a request that needs a person to open a page first (MCP 2025-11-25).
const NEEDS_PAGE: i32 = -32042;
/// Code of a failure that is not the caller's fault, and that no result can carry.
const INTERNAL_ERROR: i32 = -32603;
/// Code of invalid parameters; since 2026-07-28 also of a resource that does not exist.
const INVALID_PARAMS: i32 = -32602;
/// Code of a resource that does not exist, before 2026-07-28. Modern clients must not get it.
const NO_RESOURCE_BEFORE: i32 = -32002;

/// Longest URI that an error repeats, in bytes. No server's URI is longer.
const URI_BYTES_MAX: usize = 2000;
/// Code of a request that needs a capability which its client did not declare.
const MISSING_CAPABILITY: i64 = -32021;

/// JSON-RPC error with the HTTP status that goes with it (MCP 2026-07-28, transports).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcError {
    pub(super) status: StatusCode,
    code: i32,
    message: String,
    data: Option<Value>,
    /// Time after which a retry may help, in seconds; `None` if unknown.
    retry_after_s: Option<u64>,
    /// Code of the refusal that the error reports; `None` if it reports none.
    reason: Option<&'static str>,
    /// Whether the activity log has the attempt already.
    pub(super) recorded: bool,
}

impl RpcError {
    fn new(status: StatusCode, code: i32, message: impl Into<String>) -> RpcError {
        RpcError {
            status,
            code,
            message: message.into(),
            data: None,
            retry_after_s: None,
            reason: None,
            recorded: false,
        }
    }

    pub(super) fn parse(message: impl Into<String>) -> RpcError {
        RpcError::new(StatusCode::BAD_REQUEST, -32700, message)
    }

    pub(super) fn invalid_request(message: impl Into<String>) -> RpcError {
        RpcError::new(StatusCode::BAD_REQUEST, -32600, message)
    }

    /// Returns an invalid-request error whose HTTP status is more specific than 400.
    pub(super) fn refused(status: StatusCode, message: impl Into<String>) -> RpcError {
        RpcError::new(status, -32600, message)
    }

    /// Returns the error for a body that was not read.
    pub(super) fn no_body(error: BodyError, bytes_max: usize) -> RpcError {
        match error {
            BodyError::TooLarge => {
                let message =
                    format!("Invalid request: larger than {bytes_max} bytes (limits.request_bytes_max)");
                RpcError::refused(StatusCode::PAYLOAD_TOO_LARGE, message)
            }
            BodyError::Broken => RpcError::parse("Parse error: the body ended early"),
            BodyError::Slow => {
                RpcError::refused(StatusCode::REQUEST_TIMEOUT, "Invalid request: the body came too slowly")
            }
            BodyError::NoMemory => RpcError::overloaded(&overloaded(MemoryPurpose::Request)),
        }
    }

    /// Returns the error for a request for which there is no memory. The id was not read, so only the HTTP status is
    /// reliable.
    pub(super) fn overloaded(refusal: &Refusal) -> RpcError {
        RpcError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after_s: refusal.retry_after_s,
            ..RpcError::refusal(refusal)
        }
    }

    /// Returns the error for an unknown method. Modern clients get HTTP 404, others 200.
    pub(super) fn unknown_method(era: ClientEra, method: &str) -> RpcError {
        let status = if era == ClientEra::Modern { StatusCode::NOT_FOUND } else { StatusCode::OK };
        let shown: String = method.chars().take(100).collect();
        RpcError::new(status, -32601, format!("Method not found: {shown}"))
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> RpcError {
        RpcError::new(StatusCode::OK, -32602, message)
    }

    /// Returns the error for a state that was not given for this request, or too long ago. It does not say which.
    pub(super) fn invalid_state() -> RpcError {
        RpcError::invalid_params("Invalid requestState")
    }

    /// Returns the error for a required `_meta` member that is missing or not usable.
    pub(super) fn missing_meta(message: impl Into<String>) -> RpcError {
        RpcError::new(StatusCode::BAD_REQUEST, -32602, message)
    }

    pub(super) fn header_mismatch(message: impl Into<String>) -> RpcError {
        RpcError::new(StatusCode::BAD_REQUEST, -32020, message)
    }

    pub(super) fn unsupported_version(requested: &str) -> RpcError {
        let shown: String = requested.chars().take(40).collect();
        RpcError {
            data: Some(json!({"supported": [super::MODERN], "requested": shown})),
            ..RpcError::new(StatusCode::BAD_REQUEST, -32022, "Unsupported protocol version")
        }
    }

    /// Returns the error for a resource that does not exist, with its URI in `data` (SEP-2164). The code differs between the
    /// eras.
    pub(super) fn no_resource(era: ClientEra, uri: Option<&str>) -> RpcError {
        let code = if era == ClientEra::Modern { INVALID_PARAMS } else { NO_RESOURCE_BEFORE };
        let uri = uri.filter(|uri| uri.len() <= URI_BYTES_MAX);
        let data = uri.map(|uri| json!({ "uri": uri }));
        RpcError { data, ..RpcError::new(StatusCode::OK, code, "Resource not found") }
    }

    /// Returns the error for a refusal, with its code and the time until a retry in `data`.
    pub(super) fn refusal(refusal: &Refusal) -> RpcError {
        let mut data = json!({"code": refusal.code});
        if let (Some(data), Some(seconds)) = (data.as_object_mut(), refusal.retry_after_s) {
            data.insert("retry_after_s".to_owned(), seconds.into());
        }
        RpcError {
            data: Some(data),
            reason: Some(refusal.code.as_str()),
            ..RpcError::new(StatusCode::OK, INTERNAL_ERROR, refusal.message.as_str())
        }
    }

    /// Returns the error for a request whose caller has to open the page `url` first. The page is the identity of the question.
    pub(super) fn needs_page(refusal: &Refusal, url: &str) -> RpcError {
        let id = url.rsplit('/').next().unwrap_or(url);
        let page = json!({"mode": "url", "elicitationId": id, "url": url, "message": refusal.message});
        RpcError {
            data: Some(json!({"elicitations": [page], "code": refusal.code})),
            reason: Some(refusal.code.as_str()),
            ..RpcError::new(StatusCode::OK, NEEDS_PAGE, refusal.message.as_str())
        }
    }

    /// Returns the error for too many attempts. JSON-RPC and MCP have no code for it, so the gateway has its own. Handshake
    /// clients get HTTP 200, since some of them end the session at any HTTP error.
    pub(super) fn rate_limited(era: ClientEra, refusal: &Refusal) -> RpcError {
        let status = if era == ClientEra::Modern { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        let data = json!({"code": refusal.code, "retry_after_s": refusal.retry_after_s});
        RpcError {
            data: Some(data),
            retry_after_s: refusal.retry_after_s,
            reason: Some(refusal.code.as_str()),
            ..RpcError::new(status, RATE_LIMITED, refusal.message.as_str())
        }
    }

    /// Returns the error, marked as one of an attempt that is on record.
    pub(super) fn on_record(self) -> RpcError {
        RpcError { recorded: true, ..self }
    }

    /// Returns the name of the error in the activity log.
    pub(super) fn name(&self) -> &'static str {
        match self.code {
            -32602 => "invalid_params",
            -32020 => "header_mismatch",
            -32022 => "unsupported_version",
            _ => "invalid_request",
        }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the end of the request, for telemetry.
    pub(super) fn end(&self) -> End {
        let end = served(self.code.into());
        match (end, self.reason) {
            (End::Error { code, .. }, Some(reason)) => End::Error { code, fault: EndFault::Named(reason) },
            _ => end,
        }
    }

    /// Returns the error message under the raw id of its request; `null` if no id could be read.
    pub(super) fn text(&self, id: Option<&str>) -> String {
        let mut out = String::from(r#"{"jsonrpc":"2.0","id":"#);
        out.push_str(id.unwrap_or("null"));
        out.push_str(&format!(r#","error":{{"code":{},"message":"#, self.code));
        json::escape_into(&mut out, &self.message);
        if let Some(data) = &self.data {
            out.push_str(r#","data":"#);
            out.push_str(&data.to_string());
        }
        out.push_str("}}");
        out
    }

    pub(super) fn response(&self, id: Option<&str>) -> Response {
        let mut response = json_response(self.status, self.text(id));
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// End of a request that got no answer through a fault of the gateway.
pub(super) const BROKEN: End = End::Error { code: INTERNAL_ERROR as i64, fault: EndFault::Code };

/// Returns the end of a request that was answered with an error of this code. Some codes blame the client (OpenTelemetry
/// conventions for MCP, server spans).
pub(super) fn served(code: i64) -> End {
    let is_askers = matches!(code, -32700 | -32600 | -32601 | -32602 | -32002);
    End::Error { code, fault: if is_askers { EndFault::Asker } else { EndFault::Code } }
}

/// Returns the code of an upstream's error about anything but a tool, as this era has it.
pub(super) fn code_in(era: ClientEra, code: i64) -> i64 {
    match era {
        ClientEra::Modern if code == i64::from(NO_RESOURCE_BEFORE) => INVALID_PARAMS.into(),
        _ => code,
    }
}

/// Returns whether the code of an upstream's error means that the client lacks a capability.
pub(super) fn is_missing_capability(code: i64) -> bool {
    code == MISSING_CAPABILITY
}

/// Longest message of a client's error that is kept, in characters.
const ERROR_CHARS_MAX: usize = 500;

/// Returns the reply of a client that answered with this raw error object.
pub(super) fn refused(error: &str) -> QuestionReply {
    let [code, message] = json::find_members(error, ["code", "message"]).unwrap_or_default();
    let code = code.and_then(|raw| raw.parse().ok()).unwrap_or(INTERNAL_ERROR.into());
    let message: String = message.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    QuestionReply::Refused { code, message: message.chars().take(ERROR_CHARS_MAX).collect() }
}

/// Returns the reply that stands for one that is too large to be passed on.
pub(super) fn too_large(bytes: usize) -> QuestionReply {
    let message = format!("The client's reply has {bytes} bytes, which is too large");
    QuestionReply::Refused { code: INTERNAL_ERROR.into(), message }
}

/// Returns a response message around a raw result or error object.
pub(super) fn message(id: &str, member: &str, raw: &str) -> String {
    let mut out = message_start(id, member, raw.len());
    out.push_str(raw);
    out.push_str(MESSAGE_END);
    out
}

/// End of a message that [`message_start`] began.
pub(super) const MESSAGE_END: &str = "}";

/// Returns a response message up to the value of `member`, with capacity for `bytes` more of it.
pub(super) fn message_start(id: &str, member: &str, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + id.len() + 40);
    out.push_str(r#"{"jsonrpc":"2.0","id":"#);
    out.push_str(id);
    out.push_str(",\"");
    out.push_str(member);
    out.push_str("\":");
    out
}

/// Returns a notification with raw params.
pub(super) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}
