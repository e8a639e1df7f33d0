//! The main listener: its routes, and the gate that checks host, origin and key before routing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::future::Either;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::auth::{Challenge, HeaderFault, Presented, single};
use super::client::ClientAddress;
use super::listener::{Doors, FirstHandler, Peer, Routes, serve_connections};
use super::mcp::{self, Endpoint};
use super::request::{self, AdmittedRequest, RequestId};
use super::{Faces, acp, auth, landing, rest, wire};
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
    if let Err(message) = check_host(faces, host).and_then(|()| check_origin(faces, headers)) {
        return wire::error::render(StatusCode::FORBIDDEN, "forbidden", message, None, Some(&id));
    }
    let path = request.uri().path();
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
    let refuse = |error| {
        let host = host.unwrap_or_default();
        let tenants = &faces.gateway.tenants;
        let challenge = Challenge {
            metadata: if is_mcp { tenants.metadata_url(host, path) } else { None },
            has_logins: tenants.has_logins_at(host),
            is_presented: presented.has_credential(),
        };
        auth::refuse(error, &challenge, &id)
    };
    let caller = match called {
        Ok(caller) if has_room => caller,
        Ok(_) => return closing(auth::crowded(&id)),
        Err(error) if has_room => return refuse(error),
        Err(error) => return closing(refuse(error)),
    };
    let header = HeaderValue::from_str(&id).ok();
    let mut response = run(request, AdmittedRequest { caller, id: RequestId(id), address }).await;
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

/// Returns the host that a request names, in its `Host` header or, where it has none, in its target.
fn host(request: &Request) -> Result<Option<&str>, HeaderFault> {
    let header = single(request.headers(), "Host")?.map(|value| value.to_str().unwrap_or_default());
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    match (header, target) {
        (Some(header), Some(target)) if !is_same_authority(header, target) => {
            Err(HeaderFault { name: "Host", message: "Host and the request target name different hosts" })
        }
        (header, target) => Ok(header.or(target)),
    }
}

/// Compares two authorities. A missing port means 80.
fn is_same_authority(one: &str, other: &str) -> bool {
    let one = one.strip_suffix(":80").unwrap_or(one);
    one.eq_ignore_ascii_case(other.strip_suffix(":80").unwrap_or(other))
}

/// Checks the host, so that a page in a browser cannot reach a local gateway under a name of its own choosing.
fn check_host(faces: &Faces, host: Option<&str>) -> Result<(), &'static str> {
    let known =
        host.is_some_and(|host| faces.options.allowed_hosts.iter().any(|allowed| same_host(allowed, host)));
    if known { Ok(()) } else { Err("this Host is not one of server.allowed_hosts") }
}

/// Returns whether `host` matches an allowed one. Without a port, that one matches any port; `*` matches any host.
fn same_host(allowed: &str, host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    allowed == "*" || allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name)
}

fn check_origin(faces: &Faces, headers: &HeaderMap) -> Result<(), &'static str> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let known = faces
        .options
        .allowed_origins
        .iter()
        .any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin));
    if known { Ok(()) } else { Err("this Origin is not one of server.allowed_origins") }
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
    let doors = Doors { connections, header_read_timeout: faces.options.header_read_timeout };
    let routes = Routes::new(router(Arc::clone(&faces))).after(over_mcp(&faces));
    serve_connections(listener, routes, doors, (stop, drain)).await
}

#[cfg(test)]
mod tests {
    use super::same_host;

    #[test]
    fn hosts() {
        for (allowed, host, expected) in [
            ("localhost", "localhost:8080", true),
            ("localhost", "LOCALHOST", true),
            ("gw.example:443", "gw.example:443", true),
            ("gw.example:443", "gw.example:444", false),
            ("[::1]", "[::1]:8080", true),
            ("localhost", "localhost.evil.example", false),
            ("*", "anything", true),
        ] {
            assert_eq!(same_host(allowed, host), expected, "{allowed} {host}");
        }
    }
}
