//! The operator's own listener: `/metrics`, and with it the two questions of orchestrators. No key is asked for, so
//! nothing else is here; it answers while the database is away, and until the very end of a drain.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Faces;
use super::http::{Doors, health, serve_connections};

/// Scrapers at the same time; whoever comes later waits for one of them to leave.
pub const CONNECTIONS_MAX: usize = 64;
/// How long a request head may take, and a connection be kept without one.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a scrape may go on once everything else has ended.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct Scraped {
    /// What it is written in.
    pub content_type: &'static str,
    /// The page.
    pub text: String,
}

/// Makes a page of metrics for whoever sends this `Accept` header.
pub type Scrape = dyn Fn(Option<&str>) -> Scraped + Send + Sync;

/// Serves scrapers until `stop`.
pub async fn serve(listener: TcpListener, faces: Arc<Faces>, scrape: Arc<Scrape>, stop: CancellationToken) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .with_state(scrape)
        .merge(health().with_state(faces))
        .fallback(|| async { (StatusCode::NOT_FOUND, "here are /metrics, /livez and /readyz\n") });
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let doors = Doors { room, header_read_timeout: HEADER_READ_TIMEOUT };
    serve_connections(listener, router, doors, (stop, DRAIN_MAX)).await;
}

async fn metrics(State(scrape): State<Arc<Scrape>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    // many servers are many to count: off the threads that serve calls
    let scraped = tokio::task::spawn_blocking(move || scrape(accept.as_deref())).await;
    match scraped {
        Ok(Scraped { content_type, text }) => ([(header::CONTENT_TYPE, content_type)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
