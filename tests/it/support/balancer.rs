//! A load balancer without stickiness: each request goes to the next replica, whatever session it belongs to. Replicas
//! that take no connection are passed over. It notes what passed, so that a test sees what a client really sent and got.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use tokio::net::TcpListener;

use super::gateway::{Gateway, local_http};

/// Largest body that is passed on, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Headers of one connection, not of the message.
const HOP_BY_HOP: [header::HeaderName; 3] =
    [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// One request and what it was answered with.
#[derive(Clone)]
pub struct Exchange {
    /// Which replica, by position.
    pub replica: usize,
    /// The HTTP method.
    pub method: String,
    pub path: String,
    /// The JSON-RPC method, or "".
    pub rpc: String,
    /// `Mcp-Session-Id`, or "".
    pub session: String,
    /// `X-API-Key`.
    pub key: String,
    /// `X-Test-Client`, by which a client without a key says which one it is.
    pub client: String,
    pub status: u16,
    pub content_type: String,
    body: Arc<Mutex<Vec<u8>>>,
}

impl Exchange {
    /// The JSON-RPC messages of the answer, as far as they came.
    pub fn messages(&self) -> Vec<Value> {
        let body = String::from_utf8_lossy(&self.body.lock().unwrap()).into_owned();
        if !self.content_type.starts_with("text/event-stream") {
            return serde_json::from_str(&body).into_iter().collect();
        }
        let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exchange { replica, method, path, rpc, session, status, .. } = self;
        let session: String = session.chars().rev().take(8).collect();
        write!(f, "{method} {path} {rpc} session …{session} replica {replica}: {status}")
    }
}

struct Shared {
    http: reqwest::Client,
    replicas: Mutex<Vec<String>>,
    next: AtomicUsize,
    passed: Mutex<Vec<Exchange>>,
}

/// The running balancer; stops when dropped.
pub struct Balancer {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Balancer {
    /// In front of these replicas.
    pub async fn before(replicas: &[&Gateway]) -> Balancer {
        let balancer = Balancer::start().await;
        balancer.put_before(replicas);
        balancer
    }

    /// In front of nothing, for replicas that have to know its address.
    pub async fn start() -> Balancer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let redirect = reqwest::redirect::Policy::none();
        let shared = Arc::new(Shared {
            http: local_http().redirect(redirect).build().unwrap(),
            replicas: Mutex::default(),
            next: AtomicUsize::new(0),
            passed: Mutex::default(),
        });
        let app = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Balancer { url, shared, task }
    }

    /// Puts it in front of these replicas.
    pub fn put_before(&self, replicas: &[&Gateway]) {
        *self.shared.replicas.lock().unwrap() = replicas.iter().map(|gateway| gateway.url.clone()).collect();
    }

    /// Exchanges of the client that calls itself so.
    pub fn passed_of(&self, client: &str) -> Vec<Exchange> {
        let passed = self.shared.passed.lock().unwrap();
        passed.iter().filter(|exchange| exchange.client == client).cloned().collect()
    }

    /// Exchanges with this path.
    pub fn passed_at(&self, path: &str) -> Vec<Exchange> {
        let passed = self.shared.passed.lock().unwrap();
        passed.iter().filter(|exchange| exchange.path == path).cloned().collect()
    }

    /// What passed with this key.
    pub fn passed(&self, key: &str) -> Vec<Exchange> {
        let passed = self.shared.passed.lock().unwrap();
        passed.iter().filter(|exchange| exchange.key == key).cloned().collect()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else { return failed() };
    let Some((replica, answer)) = send(&shared, &head, &body).await else { return failed() };
    let text = |headers: &HeaderMap, name: &str| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default()
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    shared.passed.lock().unwrap().push(Exchange {
        replica,
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        rpc: rpc_method(&body),
        session: text(&head.headers, "mcp-session-id"),
        key: text(&head.headers, "x-api-key"),
        client: text(&head.headers, "x-test-client"),
        status: answer.status().as_u16(),
        content_type: text(answer.headers(), "content-type"),
        body: Arc::clone(&seen),
    });
    let (status, headers) = (answer.status(), end_to_end(answer.headers()));
    let note = move |part: &reqwest::Result<Bytes>| {
        if let Ok(part) = part {
            seen.lock().unwrap().extend_from_slice(part);
        }
    };
    let mut response = Response::new(Body::from_stream(answer.bytes_stream().inspect(note)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Sends a request to the next replica that takes connections. Returns its position and answer.
async fn send(shared: &Shared, head: &Parts, body: &Bytes) -> Option<(usize, reqwest::Response)> {
    let replicas = shared.replicas.lock().unwrap().clone();
    for _ in 0..replicas.len() {
        let replica = shared.next.fetch_add(1, Ordering::Relaxed) % replicas.len();
        let url = format!("{}{}", replicas[replica], head.uri);
        let request = shared.http.request(head.method.clone(), url).headers(end_to_end(&head.headers));
        match request.body(body.clone()).send().await {
            Ok(answer) => return Some((replica, answer)),
            Err(error) if error.is_connect() => {}
            Err(_) => return None,
        }
    }
    None
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

fn rpc_method(body: &[u8]) -> String {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    message["method"].as_str().unwrap_or_default().to_owned()
}

fn failed() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
