//! `/acp`: the Agent Client Protocol (version 1) over WebSocket. An IDE, or whoever approves, is the client; it is asked for
//! permission (`session/request_permission`) about the calls that it may decide.
//!
//! `wire` has the messages, `dialogue` what both sides may say, `connection` the socket.

mod connection;
mod dialogue;
mod wire;

use std::sync::Arc;

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};

use self::connection::{AcpConnection, MESSAGE_BYTES_MAX, READ_BYTES, WRITE_BYTES_MAX};
use super::client::ClientAddress;
use super::listener::Peer;
use super::request::RequestId;
use super::sse::{OpenStream, StreamKind, TooManyStreams};
use super::wire::error::render;
use super::wire::headers;
use super::{Faces, wire as common};
use crate::domain::activity::Source;
use crate::gateway::{Attempt, Caller, GatewayError};

/// Handles requests to `/acp`: takes the caller over to a WebSocket.
pub async fn handle(
    State(faces): State<Arc<Faces>>,
    Extension(caller): Extension<Arc<Caller>>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Response {
    let refuse = |status, code, message: &str| render(status, code, message, None, Some(&request_id.0));
    let news = match faces.gateway.consent.attach(&caller) {
        Ok(news) => news,
        Err(error @ GatewayError::Forbidden(_)) => {
            return refuse(StatusCode::FORBIDDEN, "forbidden", &error.to_string());
        }
        Err(GatewayError::MayNotDecide(reason)) => {
            return refuse(StatusCode::FORBIDDEN, reason.as_str(), &reason.text());
        }
        Err(error) => return refuse(StatusCode::BAD_REQUEST, "invalid_request", &error.to_string()),
    };
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(_) if parts.method != Method::GET => {
            let message = "/acp is a WebSocket: open it with GET";
            let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", message);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        Err(rejection) => {
            let message = format!("/acp is a WebSocket: {}", rejection.body_text());
            return refuse(rejection.into_response().status(), "invalid_request", &message);
        }
    };
    if faces.gateway.life.is_leaving() {
        let message = "this replica is about to stop; connect again";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
    }
    let open = match OpenStream::begin(&faces, &caller, StreamKind::Acp) {
        Ok(open) => open,
        Err(TooManyStreams::Key(_) | TooManyStreams::Tenant(_)) => {
            let message = "this key, or its tenant, has too many streams open; close one, or try again in a few seconds";
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
        }
    };
    // records know the interface of people as `rest`; `decided_via` of the request tells the two apart
    let mut attempt = Attempt::now(caller, Source::Rest);
    attempt.request_id = Some(request_id.0.clone());
    attempt.client_address = ClientAddress::in_extensions(&parts.extensions);
    attempt.trace_id = common::trace::trace_id(&parts.headers, &[]);
    attempt.language = headers::language(&parts.headers);
    // the socket counts as its connection, with a request under way, until it ends
    let held = parts.extensions.remove::<Peer>();
    upgrade
        .read_buffer_size(READ_BYTES)
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .max_write_buffer_size(WRITE_BYTES_MAX)
        .on_upgrade(move |socket| async move {
            AcpConnection::new(socket, open, news, attempt).run().await;
            drop(held);
        })
}
