//! Requests of identity providers themselves: for the gateway's metadata as a client, and notices of logouts.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use uuid::Uuid;

use super::gate::Visit;
use crate::faces::Faces;
use crate::faces::wire::error::json_response;
use crate::gateway::LoginFault;

/// Answers a request for the metadata (OAuth Client ID Metadata Document).
pub(super) async fn client(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
) -> Response {
    metadata(&visit, faces.gateway.tenants.client_metadata())
}

fn metadata(visit: &Visit, metadata: Option<Value>) -> Response {
    let Some(metadata) = metadata else {
        return crate::faces::wire::error::not_found(visit.request_id());
    };
    let mut response = json_response(StatusCode::OK, metadata.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

/// Answers a request for the metadata of the login at a server.
pub(super) async fn client_of(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    Path(file): Path<String>,
) -> Response {
    let server = file.strip_suffix(".json").and_then(|id| Uuid::try_parse(id).ok());
    metadata(&visit, server.and_then(|server| faces.gateway.tenants.client_metadata_of(server)))
}

/// Takes a provider's notice of a logout. A refusal does not say why (OpenID Connect Back-Channel Logout 1.0).
pub(super) async fn notice(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
) -> Response {
    let ended = faces.gateway.tenants.end_sessions_by_notice(visit.form.field("logout_token")).await;
    let refused = |status, error: &str| json_response(status, json!({ "error": error }).to_string());
    match ended {
        Ok(()) => json_response(StatusCode::OK, "{}"),
        Err(LoginFault::NotOffered) => crate::faces::wire::error::not_found(visit.request_id()),
        Err(LoginFault::Unavailable) => refused(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
        Err(_) => refused(StatusCode::BAD_REQUEST, "invalid_request"),
    }
}
