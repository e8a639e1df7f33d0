//! A site on loopback, whose pages can be changed while it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answer of a site: status, headers, body.
type Page = (u16, Vec<(&'static str, String)>, Vec<u8>);

#[derive(Default)]
struct Shared {
    pages: Mutex<HashMap<String, Page>>,
    requests: Mutex<Vec<String>>,
}

/// The running site; stops when dropped.
pub(super) struct Site {
    base: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Site {
    /// Starts a site with this page at `/`.
    pub(super) async fn start(page: &str) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let site = Site { base, shared, task };
        site.put("/", page);
        site
    }

    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Puts a page of HTML at a path.
    pub(super) fn put(&self, path: &str, html: &str) {
        let headers = vec![("content-type", "text/html; charset=utf-8".to_owned())];
        self.answer(path, 200, headers, html.as_bytes());
    }

    /// Sets the answer at a path.
    pub(super) fn answer(&self, path: &str, status: u16, headers: Vec<(&'static str, String)>, body: &[u8]) {
        self.shared.pages.lock().unwrap().insert(path.to_owned(), (status, headers, body.to_vec()));
    }

    /// Returns method and path of all requests, in order.
    pub(super) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, method: Method, uri: Uri) -> Response {
    shared.requests.lock().unwrap().push(format!("{method} {uri}"));
    let found = shared.pages.lock().unwrap().get(uri.path()).cloned();
    let Some((status, headers, body)) = found else { return StatusCode::NOT_FOUND.into_response() };
    let mut response = body.into_response();
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
