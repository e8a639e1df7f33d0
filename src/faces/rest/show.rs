//! Answers of handlers, which have a form on the wire only in the end: management tools take the same ones.

use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::RestError;

/// Answer of a handler.
pub(super) enum RouteAnswer {
    /// JSON text, with its status.
    Json(StatusCode, Bytes),
    /// Empty answer: 204.
    Nothing,
    /// Response that holds its memory already: a stream, or the answer of a server.
    Ready(Response),
}

/// Result of a handler.
pub(super) type RestAnswer = Result<RouteAnswer, RestError>;

/// Returns 200 with a body.
pub(super) fn ok(body: &impl Serialize) -> RestAnswer {
    write(StatusCode::OK, body)
}

/// Returns 201 with a body.
pub(super) fn created(body: &impl Serialize) -> RestAnswer {
    write(StatusCode::CREATED, body)
}

fn write(status: StatusCode, body: &impl Serialize) -> RestAnswer {
    let text = serde_json::to_string(body).map_err(RestError::unshowable)?;
    Ok(RouteAnswer::Json(status, text.into()))
}

/// Formats a time for the wire: RFC 3339, UTC, milliseconds.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns a stored JSON text, to be written byte for byte.
pub(super) fn raw(text: &str) -> Result<&RawValue, RestError> {
    serde_json::from_str(text).map_err(RestError::unshowable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        let at = DateTime::from_timestamp_millis(1_769_860_800_000).unwrap();
        assert_eq!(time(at), "2026-01-31T12:00:00.000Z");
    }

    #[test]
    fn stored_texts_stay_as_they_are() {
        let text = r#"{ "b" : 1e400, "a":"\u0041" }"#;
        assert_eq!(serde_json::to_string(raw(text).unwrap()).unwrap(), text);
        assert!(raw("{").is_err());
    }
}
