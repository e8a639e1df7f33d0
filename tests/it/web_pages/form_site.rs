//! A site on loopback whose forms can be sent: it notes every request with its body, and can hold an answer back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Request that reached the site.
#[derive(Clone, Debug)]
pub(super) struct SeenRequest {
    /// Method and target, such as `POST /send`.
    pub(super) line: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl SeenRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Answer of the site at a method and path.
#[derive(Clone, Default)]
pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Open once it is true; `None` answers at once.
    gate: Option<watch::Receiver<bool>>,
}

impl Reply {
    /// Returns a page.
    pub(super) fn page(html: &str) -> Reply {
        Reply::typed("text/html; charset=utf-8", html)
    }

    /// Returns a document of this content type.
    pub(super) fn typed(content_type: &str, text: &str) -> Reply {
        Reply { status: 200, body: text.to_owned(), ..Reply::default() }.with("content-type", content_type)
    }

    /// Returns a redirect.
    pub(super) fn to(status: u16, place: &str) -> Reply {
        Reply { status, headers: vec![("location", place.to_owned())], ..Reply::default() }
    }

    /// Returns an answer of this status without a body.
    pub(super) fn bare(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    pub(super) fn with(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn behind(mut self, gate: watch::Receiver<bool>) -> Reply {
        self.gate = Some(gate);
        self
    }
}

#[derive(Default)]
struct Shared {
    replies: Mutex<HashMap<String, Reply>>,
    seen: Mutex<Vec<SeenRequest>>,
}

/// The running site; stops when dropped.
pub(super) struct FormSite {
    base: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for FormSite {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FormSite {
    /// Starts a site with these answers, by method and path, such as `GET /`; `*` is for all others, which are 404 without.
    pub(super) async fn start(replies: &[(&str, Reply)]) -> FormSite {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let site = FormSite { base, shared, task };
        for (at, reply) in replies {
            site.put(at, reply.clone());
        }
        site
    }

    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sets an answer.
    pub(super) fn put(&self, at: &str, reply: Reply) {
        self.shared.replies.lock().unwrap().insert(at.to_owned(), reply);
    }

    /// Returns the requests since the last time, without those for `robots.txt`.
    pub(super) fn take(&self) -> Vec<SeenRequest> {
        let mut seen = std::mem::take(&mut *self.shared.seen.lock().unwrap());
        seen.retain(|request| request.line != "GET /robots.txt");
        seen
    }

    /// Returns the lines of [`FormSite::take`].
    pub(super) fn lines(&self) -> Vec<String> {
        self.take().into_iter().map(|request| request.line).collect()
    }

    /// Returns the number of requests of a method so far, since the last [`FormSite::take`], without those for `robots.txt`.
    pub(super) fn count(&self, method: &str) -> usize {
        let seen = self.shared.seen.lock().unwrap();
        let is_of = |line: &str| line.starts_with(&format!("{method} ")) && line != "GET /robots.txt";
        seen.iter().filter(|request| is_of(&request.line)).count()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let line = format!("{} {}", head.method, head.uri);
    let at = format!("{} {}", head.method, head.uri.path());
    shared.seen.lock().unwrap().push(SeenRequest { line, headers: head.headers, body });
    let found = {
        let replies = shared.replies.lock().unwrap();
        replies.get(&at).or_else(|| replies.get("*")).cloned()
    };
    let Some(reply) = found else { return StatusCode::NOT_FOUND.into_response() };
    if let Some(mut gate) = reply.gate {
        gate.wait_for(|is_open| *is_open).await.ok();
    }
    let mut response = reply.body.into_response();
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap();
    response.headers_mut().remove("content-type");
    for (name, value) in reply.headers {
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}
