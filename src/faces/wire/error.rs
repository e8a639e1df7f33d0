//! The error body of REST and of the gate: `{error: {code, message, field?, request_id}}`.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

/// Renders an error response.
pub fn render(
    status: StatusCode,
    code: &str,
    message: &str,
    field: Option<&str>,
    request_id: Option<&str>,
) -> Response {
    let mut error = json!({"code": code, "message": message});
    if let (Some(field), Some(object)) = (field, error.as_object_mut()) {
        object.insert("field".to_owned(), field.into());
    }
    if let Some(object) = error.as_object_mut() {
        object.insert("request_id".to_owned(), request_id.into());
    }
    json_response(status, json!({"error": error}).to_string())
}

/// Returns the response to a path that does not exist.
pub fn not_found(request_id: Option<&str>) -> Response {
    render(StatusCode::NOT_FOUND, "not_found", "there is nothing at this address", None, request_id)
}

/// Returns a response with a ready-made JSON text.
pub fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
