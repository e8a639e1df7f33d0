//! The main listener: its routes, and the gate that checks host, origin and key before routing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::future::Either;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::auth::{Challenge, NeededScope, Presented};
use super::client::ClientAddress;
use super::hosts::{HasOwnPages, check_host, check_origin, host};
use super::listener::{Doors, FirstHandler, HEAD_BYTES_MAX, Peer, Routes, serve_connections};
use super::mcp::{self, Endpoint};
use super::request::{self, AdmittedRequest, RequestId};
use super::{Faces, acp, auth, console, landing, rest, session_cookie, wire};
use crate::gateway::{AuthError, Readiness};

/// Returns the handler of requests over MCP, which go to it in one future. The layers and boxes of a router would copy that
/// several times for each request.
fn over_mcp(faces: &Arc<Faces>) -> FirstHandler {
    let faces = Arc::clone(faces);
    Arc::new(move |request| {
        let Some(endpoint) = Endpoint::at(request.uri().path()) else { return Either::Right(request) };
        let faces = Arc::clone(&faces);
        Either::Left(Box::pin(async move {
            // boxed as it is made: the futures around it are then small, and cost little to move
            let run = |request, admitted| Box::pin(mcp::handle(&faces, endpoint, request, admitted));
            Ok(gated(&faces, request, run).await)
        }))
    })
}

/// Creates the router of what is not MCP.
fn router(faces: Arc<Faces>) -> Router {
    Router::new()
        .route("/acp", any(acp::handle))
        .nest("/api/v1", rest::router())
        .fallback(|request: Request| async move { wire::error::not_found(request::id(&request)) })
        .layer(middleware::from_fn_with_state(Arc::clone(&faces), gate))
        .merge(console::router(&faces))
        .merge(health())
        .with_state(faces)
}

/// Creates the routes of the health checks: `/livez` (the process lives) and `/readyz` (it should get traffic).
pub(super) fn health() -> Router<Arc<Faces>> {
    Router::new().route("/livez", get(|| async { "ok\n" })).route("/readyz", get(readyz))
}

async fn readyz(State(faces): State<Arc<Faces>>) -> Response {
    let (status, text) = match faces.gateway.upkeep.readiness() {
        Readiness::Ready => (StatusCode::OK, "ready\n"),
        Readiness::Degraded => (StatusCode::OK, "degraded\n"),
        Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        Readiness::Stale => (StatusCode::SERVICE_UNAVAILABLE, "stale\n"),
    };
    (status, text).into_response()
}

/// Admits or refuses a request of the router, whose handlers find what the gate found out among its extensions.
async fn gate(State(faces): State<Arc<Faces>>, request: Request, next: Next) -> Response {
    let run = |mut request: Request, AdmittedRequest { caller, id, address }: AdmittedRequest| {
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(id);
        if let Some(address) = address {
            request.extensions_mut().insert(address);
        }
        next.run(request)
    };
    gated(&faces, request, run).await
}

/// Admits or refuses a request. While the replica shuts down, every response asks the client to close its connection.
async fn gated<F: Future<Output = Response>>(
    faces: &Faces,
    request: Request,
    run: impl FnOnce(Request, AdmittedRequest) -> F,
) -> Response {
    let response = let_in(faces, request, run).await;
    // the client's next request should reach another replica
    if faces.gateway.life.is_leaving() { closing(response) } else { response }
}

/// Asks the client to close the connection after this answer.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Checks host, origin and key, then runs the request.
async fn let_in<F: Future<Output = Response>>(
    faces: &Faces,
    request: Request,
    run: impl FnOnce(Request, AdmittedRequest) -> F,
) -> Response {
    let id = request::usable_id(request.headers()).unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let headers = request.headers();
    let (host, presented) = match host(&request).and_then(|host| Ok((host, Presented::read(headers)?))) {
        Ok(read) => read,
        Err(fault) => return fault.refuse(&id),
    };
    let path = request.uri().path();
    let is_rest = faces.options.console_enabled && path.starts_with("/api/v1/");
    let has_own = if is_rest { HasOwnPages::Yes } else { HasOwnPages::No };
    if let Err(message) = check_host(faces, host).and_then(|()| check_origin(faces, headers, host, has_own)) {
        return wire::error::render(StatusCode::FORBIDDEN, "forbidden", message, None, Some(&id));
    }
    let presented = match is_rest.then(|| session_cookie::for_rest(request.method(), headers)) {
        None => presented,
        Some(Ok(cookie)) => presented.or_session(cookie),
        Some(Err(fault)) => return fault.refuse(&id),
    };
    if path.starts_with("/.well-known/") {
        return well_known(faces, request.method(), (host.unwrap_or_default(), path), &id);
    }
    if let Some(page) = landing::page(request.method(), request.uri()) {
        return page;
    }
    let peer = request.extensions().get::<Peer>();
    let address = peer.map(|peer| ClientAddress::of(peer.address, headers, &faces.connections));
    let called = auth::caller(faces, presented, address.map(|address| address.0)).await;
    // a token for the MCP endpoints opens nothing else
    let is_mcp = Endpoint::at(path).is_some();
    let called = called.and_then(|caller| match &caller.login {
        Some(login) if login.is_mcp_only() && !is_mcp => Err(AuthError::TokenAudience),
        _ => Ok(caller),
    });
    let has_room = peer.is_none_or(|peer| match &called {
        Ok(caller) => faces.connections.authenticated(&peer.connection, caller),
        // the credential is valid, or nobody can tell now
        Err(
            AuthError::NoSuchTenant
            | AuthError::Unavailable
            | AuthError::SeveralTenants
            | AuthError::KeysUnavailable,
        ) => true,
        Err(_) => faces.connections.not_authenticated(&peer.connection),
    });
    let refuse = |error: &AuthError| {
        let host = host.unwrap_or_default();
        let tenants = &faces.gateway.tenants;
        let challenge = Challenge {
            metadata: if is_mcp { tenants.metadata_url(host, path) } else { None },
            scopes: if is_mcp { tenants.scopes_at(host) } else { None },
            has_logins: tenants.has_logins_at(host),
            is_presented: presented.has_credential(),
        };
        auth::refuse(error, &challenge, &id)
    };
    let caller = match called {
        Ok(caller) if has_room => caller,
        Ok(_) => return closing(auth::crowded(&id)),
        Err(error) if has_room => return refuse(&error),
        Err(error) => return closing(refuse(&error)),
    };
    let header = HeaderValue::from_str(&id).ok();
    let asked = caller
        .login
        .as_ref()
        .is_some_and(|login| login.may_step_up())
        .then(|| (host.unwrap_or_default().to_owned(), path.to_owned()));
    let mut response = run(request, AdmittedRequest { caller, id: RequestId(id), address }).await;
    if let (Some(needed), Some((host, path))) = (response.extensions_mut().remove::<NeededScope>(), asked) {
        let tenants = &faces.gateway.tenants;
        let metadata = if is_mcp { tenants.metadata_url(&host, &path) } else { None };
        needed.challenge(&mut response, tenants.scopes_at(&host).as_deref(), metadata.as_deref());
    }
    if let Some(value) = header {
        response.headers_mut().insert(request::ID, value);
    }
    response
}

/// Returns the response to a request for metadata: only that of the MCP endpoints exists.
fn well_known(faces: &Faces, method: &Method, (host, path): (&str, &str), id: &str) -> Response {
    let is_read = method == Method::GET || method == Method::HEAD;
    let metadata = faces.gateway.tenants.resource_metadata(host, path).filter(|_| is_read);
    let Some(metadata) = metadata else { return wire::error::not_found(Some(id)) };
    let mut response = wire::error::json_response(StatusCode::OK, metadata.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Serves clients until `stop`, then waits for their last requests, at most for `drain`. Returns the end of `drain`: the
/// deadline of what must end after the connections.
pub async fn serve(
    listener: TcpListener,
    faces: Arc<Faces>,
    stop: CancellationToken,
    drain: Duration,
) -> Instant {
    let connections = Arc::clone(&faces.connections);
    let doors = Doors {
        connections,
        header_read_timeout: faces.options.header_read_timeout,
        head_bytes_max: HEAD_BYTES_MAX + faces.options.token_bytes_max,
    };
    let routes = Routes::new(router(Arc::clone(&faces))).after(over_mcp(&faces));
    serve_connections(listener, routes, doors, (stop, drain)).await
}
