//! The HTTP server and its gate: host, origin and key are checked before anything is routed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::auth::{HeaderFault, Presented, single};
use super::connections::{Admitted, Connection, Connections};
use super::impatient::Impatient;
use super::{Faces, auth, mcp, rest, wire};
use crate::gateway::Readiness;

/// The id of a request: the client's own `X-Request-Id` when it is usable, else a fresh one.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// The connection that a request came by.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of its other end.
    pub address: SocketAddr,
    connection: Arc<Connection>,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id taken over from a client, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 100;
/// Bytes buffered of a request head: bounds the size of all headers together.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long a client may take none of what waits for it: then its connection is closed, and what waited is freed.
const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// Pause after the listener could not accept, for example with no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Everything that is served on the main listener.
pub fn router(faces: Arc<Faces>) -> Router {
    Router::new()
        .route("/mcp", any(mcp::handle))
        .route("/mcp/direct", any(mcp::handle_direct))
        .nest("/api/v1", rest::router())
        .fallback(|request: Request| async move { wire::error::not_found(request_id(&request)) })
        .layer(middleware::from_fn_with_state(Arc::clone(&faces), gate))
        .merge(health())
        .with_state(faces)
}

/// Whether the process lives, and whether it should get traffic.
pub(super) fn health() -> Router<Arc<Faces>> {
    Router::new().route("/livez", get(|| async { "ok\n" })).route("/readyz", get(readyz))
}

fn request_id(request: &Request) -> Option<&str> {
    request.extensions().get::<RequestId>().map(|id| id.0.as_str())
}

async fn readyz(State(faces): State<Arc<Faces>>) -> Response {
    let (status, text) = match faces.gateway.readiness() {
        Readiness::Ready => (StatusCode::OK, "ready\n"),
        Readiness::Degraded => (StatusCode::OK, "degraded\n"),
        Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        Readiness::Stale => (StatusCode::SERVICE_UNAVAILABLE, "stale\n"),
    };
    (status, text).into_response()
}

/// What is let in, and what every answer carries, a refusal too.
async fn gate(State(faces): State<Arc<Faces>>, request: Request, next: Next) -> Response {
    let mut response = let_in(&faces, request, next).await;
    if faces.gateway.is_leaving() {
        // the next request had better find another replica
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Host and origin, then the key; the caller travels on as an extension.
async fn let_in(faces: &Faces, mut request: Request, next: Next) -> Response {
    let id = usable_request_id(request.headers()).unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let headers = request.headers();
    let (host, presented) = match host(&request).and_then(|host| Ok((host, Presented::read(headers)?))) {
        Ok(read) => read,
        Err(fault) => return fault.refuse(&id),
    };
    if let Err(message) = check_host(faces, host).and_then(|()| check_origin(faces, headers)) {
        return wire::error::render(StatusCode::FORBIDDEN, "forbidden", message, None, Some(&id));
    }
    if request.uri().path().starts_with("/.well-known/") {
        return wire::error::not_found(Some(&id));
    }
    match auth::caller(faces, presented).await {
        Ok(caller) => {
            if let Some(peer) = request.extensions().get::<Peer>() {
                faces.connections.authenticated(&peer.connection);
            }
            request.extensions_mut().insert(caller);
        }
        Err(error) => return auth::refuse(error, &id),
    }
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

fn usable_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let good =
        !text.is_empty() && text.len() <= REQUEST_ID_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    good.then(|| text.to_owned())
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

/// A target without a port means port 80, as does a Host.
fn is_same_authority(one: &str, other: &str) -> bool {
    let one = one.strip_suffix(":80").unwrap_or(one);
    one.eq_ignore_ascii_case(other.strip_suffix(":80").unwrap_or(other))
}

/// A page in a browser must not reach a gateway on the same machine under a name of its own choosing.
fn check_host(faces: &Faces, host: Option<&str>) -> Result<(), &'static str> {
    let known =
        host.is_some_and(|host| faces.options.allowed_hosts.iter().any(|allowed| same_host(allowed, host)));
    if known { Ok(()) } else { Err("this Host is not one of server.allowed_hosts") }
}

/// An allowed host without a port stands for any port; `*` for any host.
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

/// What a listener takes.
#[derive(Clone)]
pub(super) struct Doors {
    /// Connections, and who gets one.
    pub(super) connections: Arc<Connections>,
    /// How long a client may take to send its request head.
    pub(super) header_read_timeout: Duration,
}

/// Serves clients until `stop`, then lets every one finish its request, at most `drain` long. Gives the
/// moment at which `drain` is over, for what has to end after the connections.
pub async fn serve(
    listener: TcpListener,
    faces: Arc<Faces>,
    stop: CancellationToken,
    drain: Duration,
) -> Instant {
    let connections = Arc::clone(&faces.connections);
    let doors = Doors { connections, header_read_timeout: faces.options.header_read_timeout };
    serve_connections(listener, router(faces), doors, (stop, drain)).await
}

/// The same for any router; `until` is when to stop, and how long to let requests finish.
pub(super) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    doors: Doors,
    (stop, drain): (CancellationToken, Duration),
) -> Instant {
    let service = TowerToHyperService::new(router);
    let graceful = GracefulShutdown::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(doors.header_read_timeout).max_buf_size(HEAD_BYTES_MAX);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &doors.connections) => accepted,
        };
        let Some(Accepted { stream, peer, admitted }) = accepted else { continue };
        let stream = Impatient::new(stream, WRITE_STALL_MAX);
        let connection = Arc::clone(&admitted.connection);
        let service = with_connection(service.clone(), peer, Arc::clone(&connection));
        let served = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        let task = tokio::spawn(async move {
            // a client that breaks its connection is its own affair
            drop(served.await);
            drop(admitted);
        });
        connection.served_by(task.abort_handle());
    }
    drop(listener);
    let deadline = Instant::now() + drain;
    if tokio::time::timeout_at(deadline.into(), graceful.shutdown()).await.is_err() {
        tracing::warn!("the drain is over, with client connections still busy");
    }
    deadline
}

/// The service of one connection: every request knows its connection, and the connection whether a request is under way.
fn with_connection<S>(
    service: S,
    address: SocketAddr,
    connection: Arc<Connection>,
) -> impl Service<hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
where
    S: Service<hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send>,
{
    service_fn(move |mut request: hyper::Request<Incoming>| {
        let connection = Arc::clone(&connection);
        request.extensions_mut().insert(Peer { address, connection: Arc::clone(&connection) });
        let answered = service.call(request);
        async move {
            if !connection.begin_request() {
                // closed for another one in this moment: the task of this connection is about to end
                return std::future::pending().await;
            }
            let answered = answered.await;
            connection.end_request();
            answered
        }
    })
}

struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    admitted: Admitted,
}

async fn accept(listener: &TcpListener, connections: &Arc<Connections>) -> Option<Accepted> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            let admitted = connections.admit(peer.ip()).await?;
            // an answer is one write; waiting for more would only delay it
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY could not be set");
            }
            Some(Accepted { stream, peer, admitted })
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // with no file descriptor left, it gives one back
            connections.close_one();
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// A body that is an endless stream of ready-made chunks.
pub fn stream_body<S>(stream: S) -> Body
where
    S: futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    Body::from_stream(stream)
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
