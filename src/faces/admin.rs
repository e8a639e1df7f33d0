//! The operator's own listener: `/metrics`, `/livez` and `/readyz`. No key is asked for, so nothing else is served here. The
//! listener answers while the database is away, and until the very end of a drain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::Faces;
use super::connections::{ConnectionRules, Connections};
use super::http::health;
use super::listener::{Doors, HEAD_BYTES_MAX, Routes, serve_connections};

/// Most open connections. One more closes the oldest idle connection, or waits until one ends.
pub const CONNECTIONS_MAX: usize = 64;
/// Time limit for receiving a request head, also on a connection that is kept open.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Drain time of this listener, which stops after everything else.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// Text format of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Prometheus text format.
    Plain,
    /// OpenMetrics, for scrapers that ask for it.
    OpenMetrics,
}

impl ExpositionFormat {
    const OPENMETRICS: &str = "application/openmetrics-text";

    /// Returns the format for a scraper that sends this `Accept` header.
    fn accepted(accept: Option<&str>) -> ExpositionFormat {
        let is_open = accept.is_some_and(|accept| accept.contains(ExpositionFormat::OPENMETRICS));
        if is_open { ExpositionFormat::OpenMetrics } else { ExpositionFormat::Plain }
    }

    fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::Plain => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Function that renders a page of metrics.
pub type Scrape = dyn Fn(ExpositionFormat) -> String + Send + Sync;

/// Last page of each format. No key is needed to request one, so the cost must be bounded, however many requests come.
struct Pages {
    scrape: Arc<Scrape>,
    age_max: Duration,
    /// Locked while a page is rendered, even if its requester has left.
    made: Arc<Mutex<[Option<Page>; 2]>>,
}

struct Page {
    at: Instant,
    text: Bytes,
}

impl Pages {
    fn new(scrape: Arc<Scrape>, age_max: Duration) -> Pages {
        Pages { scrape, age_max, made: Arc::default() }
    }

    /// Returns a page younger than `age_max`, rendered now if there is none.
    async fn page(&self, format: ExpositionFormat) -> Result<Bytes, JoinError> {
        let mut made = Arc::clone(&self.made).lock_owned().await;
        let [plain, open] = &*made;
        let last = if format == ExpositionFormat::Plain { plain } else { open };
        if let Some(page) = last.as_ref().filter(|page| page.at.elapsed() < self.age_max) {
            return Ok(page.text.clone());
        }
        let scrape = Arc::clone(&self.scrape);
        // counting many servers takes long: off the threads that serve calls
        let making = tokio::task::spawn_blocking(move || {
            let text = Bytes::from(scrape(format));
            let [plain, open] = &mut *made;
            let place = if format == ExpositionFormat::Plain { plain } else { open };
            *place = Some(Page { at: Instant::now(), text: text.clone() });
            text
        });
        making.await
    }
}

/// Serves scrapers until `stop`. A page younger than `age_max` is served again.
pub async fn serve(
    listener: TcpListener,
    faces: Arc<Faces>,
    (scrape, age_max): (Arc<Scrape>, Duration),
    stop: CancellationToken,
) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Pages::new(scrape, age_max)))
        .merge(health().with_state(faces))
        .fallback(|| async { (StatusCode::NOT_FOUND, "here are /metrics, /livez and /readyz\n") });
    let rules = ConnectionRules {
        max: CONNECTIONS_MAX,
        per_address_max: CONNECTIONS_MAX,
        trusted_proxies: Vec::new(),
    };
    let doors = Doors {
        connections: Connections::new(rules),
        header_read_timeout: HEADER_READ_TIMEOUT,
        head_bytes_max: HEAD_BYTES_MAX,
    };
    serve_connections(listener, Routes::new(router), doors, (stop, DRAIN_MAX)).await;
}

async fn metrics(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response {
    let format =
        ExpositionFormat::accepted(headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()));
    match pages.page(format).await {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Returns pages, a sender that releases one rendering per message, and the number of renderings so far.
    fn pages(age_max: Duration) -> (Arc<Pages>, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (let_go, waits) = mpsc::channel::<()>();
        let (waits, made) = (std::sync::Mutex::new(waits), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&made);
        let scrape = move |format| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            waits.lock().unwrap().recv_timeout(Duration::from_secs(5)).unwrap();
            format!("{format:?} {number}")
        };
        (Arc::new(Pages::new(Arc::new(scrape), age_max)), let_go, made)
    }

    #[tokio::test]
    async fn a_page_is_handed_out_again_for_a_while() {
        let (pages, let_go, made) = pages(Duration::from_secs(60));
        (0..2).for_each(|_| let_go.send(()).unwrap());
        for _ in 0..3 {
            assert_eq!(pages.page(ExpositionFormat::Plain).await.unwrap(), "Plain 0");
            assert_eq!(pages.page(ExpositionFormat::OpenMetrics).await.unwrap(), "OpenMetrics 1");
        }
        assert_eq!(made.load(Ordering::SeqCst), 2);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        pages.made.lock().await.iter_mut().flatten().for_each(|page| page.at = long_ago);
        let_go.send(()).unwrap();
        assert_eq!(pages.page(ExpositionFormat::Plain).await.unwrap(), "Plain 2");
    }

    /// Only one page is rendered at a time, even if the first requester has left.
    #[tokio::test]
    async fn one_page_is_made_at_a_time() {
        let (pages, let_go, made) = pages(Duration::ZERO);
        let asks = |pages: &Arc<Pages>| {
            let pages = Arc::clone(pages);
            tokio::spawn(async move { pages.page(ExpositionFormat::Plain).await.unwrap() })
        };
        let first = asks(&pages);
        while made.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert!(first.await.is_err());
        let others: Vec<_> = (0..3).map(|_| asks(&pages)).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(made.load(Ordering::SeqCst), 1);
        (0..4).for_each(|_| let_go.send(()).unwrap());
        for other in others {
            other.await.unwrap();
        }
        assert_eq!(made.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn openmetrics_is_for_who_asks_for_it() {
        let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(ExpositionFormat::accepted(Some(accept)), ExpositionFormat::OpenMetrics);
        assert_eq!(
            [None, Some("text/plain"), Some("*/*")].map(ExpositionFormat::accepted),
            [ExpositionFormat::Plain; 3]
        );
    }
}
