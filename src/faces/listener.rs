//! Connections of a listener: admission, serving and draining.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::Either;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::connections::{Admitted, ClientConnection, Connections};
use super::impatient::Impatient;

/// Largest line and headers of a request together, but for a token of an identity provider, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Longest time that writes to a client may wait. Then its connection is closed, and the memory of the waiting answers
/// freed.
const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// Pause after the listener could not accept, for example with no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connection that a request came by, in the request's extensions.
#[derive(Clone)]
pub struct Peer {
    /// Address of the client's end.
    pub address: SocketAddr,
    pub(super) connection: Arc<ClientConnection>,
    /// Request under way. A socket that the request leads to keeps it, and with it the place of the connection.
    _under_way: Arc<UnderWay>,
}

/// Admission rules and time limits of a listener.
#[derive(Clone)]
pub(super) struct Doors {
    /// Connections of the listener, with the rules of their admission.
    pub(super) connections: Arc<Connections>,
    /// Time limit for a client to send its request head.
    pub(super) header_read_timeout: Duration,
    /// Bytes buffered of a connection: bounds the size of a request's line and headers together.
    pub(super) head_bytes_max: usize,
}

/// Answer to a request, under way.
type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;
/// Handler that sees every request before the router; it answers some, and gives the others back.
pub(super) type FirstHandler = Arc<dyn Fn(Request) -> Either<Answering, Request> + Send + Sync>;

/// Service of a listener: a router, and what comes before it.
#[derive(Clone)]
pub(super) struct Routes {
    first: Option<FirstHandler>,
    router: TowerToHyperService<Router>,
}

impl Routes {
    pub(super) fn new(router: Router) -> Routes {
        Routes { first: None, router: TowerToHyperService::new(router) }
    }

    /// Lets `first` see every request before the router.
    pub(super) fn after(self, first: FirstHandler) -> Routes {
        Routes { first: Some(first), ..self }
    }
}

impl Service<hyper::Request<Incoming>> for Routes {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Answering, <TowerToHyperService<Router> as Service<Request>>::Future>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let request = request.map(Body::new);
        let seen = match &self.first {
            Some(first) => first(request),
            None => Either::Right(request),
        };
        match seen {
            Either::Left(answering) => Either::Left(answering),
            Either::Right(request) => Either::Right(self.router.call(request)),
        }
    }
}

/// Serves clients until `stop`, then waits for their last requests, at most for `drain`. Returns the end of `drain`.
pub(super) async fn serve_connections(
    listener: TcpListener,
    routes: Routes,
    doors: Doors,
    (stop, drain): (CancellationToken, Duration),
) -> Instant {
    let serving = TaskTracker::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(doors.header_read_timeout)
        .max_buf_size(doors.head_bytes_max);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &doors.connections) => accepted,
        };
        let Some(Accepted { stream, peer, admitted }) = accepted else { continue };
        let stream = Impatient::new(stream, WRITE_STALL_MAX);
        let connection = Arc::clone(&admitted.connection);
        let service = with_connection(
            routes.clone(),
            peer,
            (Arc::new(admitted), Arc::clone(&doors.connections), serving.clone()),
        );
        let served = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let stop = stop.clone();
        let task = serving.spawn(async move {
            let mut served = pin!(served);
            // errors of a client's connection are not ours to report
            tokio::select! {
                ended = served.as_mut() => return drop(ended),
                () = stop.cancelled() => served.as_mut().graceful_shutdown(),
            }
            drop(served.await);
        });
        connection.served_by(task.abort_handle());
    }
    drop(listener);
    serving.close();
    let deadline = Instant::now() + drain;
    if tokio::time::timeout_at(deadline.into(), serving.wait()).await.is_err() {
        tracing::warn!("the drain is over, with client connections still busy");
    }
    deadline
}

/// Wraps the service of one connection. Requests get [`Peer`] as an extension, and the connection records whether a request
/// is under way.
fn with_connection<S>(
    service: S,
    address: SocketAddr,
    (admitted, connections, serving): (Arc<Admitted>, Arc<Connections>, TaskTracker),
) -> impl Service<hyper::Request<Incoming>, Response = http::Response<WatchedBody>, Error = Infallible, Future: Send>
where
    S: Service<hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send>,
{
    service_fn(move |mut request: hyper::Request<Incoming>| {
        let connection = Arc::clone(&admitted.connection);
        let under_way = Arc::new(UnderWay {
            admitted: Arc::clone(&admitted),
            connections: Arc::clone(&connections),
            _serving: serving.token(),
        });
        let peer = Peer { address, connection: Arc::clone(&connection), _under_way: Arc::clone(&under_way) };
        request.extensions_mut().insert(peer);
        let answered = service.call(request);
        async move {
            if !connection.begin_request() {
                // closed for another connection in this moment: the task of this one is about to end
                return std::future::pending().await;
            }
            Ok(answered.await?.map(|body| WatchedBody { body, _under_way: under_way }))
        }
    })
}

/// Request under way on a connection, from its head to the end of its answer, or of the socket that it leads to.
struct UnderWay {
    admitted: Arc<Admitted>,
    /// Place among what a drain waits for.
    _serving: TaskTrackerToken,
    connections: Arc<Connections>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.connections.end_request(&self.admitted.connection);
    }
}

/// Body of an answer; with its end the request is no longer under way.
struct WatchedBody {
    body: Body,
    _under_way: Arc<UnderWay>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
            // frees a file descriptor, in case none is left
            connections.close_one();
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
