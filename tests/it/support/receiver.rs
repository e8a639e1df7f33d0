//! A receiver of webhooks on loopback, which verifies nothing and can be told to behave badly.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;
use tokio::net::TcpListener;

use super::wait::eventually;

/// Answer of a [`Receiver`].
#[derive(Clone, Debug)]
pub enum Nod {
    /// This status.
    Status(u16),
    /// A redirect to this address.
    Redirect(String),
    /// Nothing, ever.
    Hang,
}

/// Delivery as it arrived.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl Delivered {
    /// A header, or "".
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The type of the event.
    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }
}

struct Shared {
    /// Answers to come; after them, [`Shared::then`].
    nods: Mutex<VecDeque<Nod>>,
    then: Mutex<Nod>,
    delivered: Mutex<Vec<Delivered>>,
}

/// The running receiver; stops when dropped.
pub struct Receiver {
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Receiver {
    /// Confirms everything.
    pub async fn start() -> Receiver {
        Receiver::at("127.0.0.1").await
    }

    /// Confirms all, at this address.
    pub async fn at(address: &str) -> Receiver {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            nods: Mutex::default(),
            then: Mutex::new(Nod::Status(204)),
            delivered: Mutex::default(),
        });
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Receiver { url, shared, task }
    }

    /// Answers the next deliveries so.
    pub fn next(&self, nods: impl IntoIterator<Item = Nod>) {
        self.shared.nods.lock().unwrap().extend(nods);
    }

    /// Answers all others so.
    pub fn then(&self, nod: Nod) {
        *self.shared.then.lock().unwrap() = nod;
    }

    /// Deliveries that have arrived so far.
    pub fn delivered(&self) -> Vec<Delivered> {
        self.shared.delivered.lock().unwrap().clone()
    }

    /// Waits until at least this many deliveries have arrived.
    pub async fn expect(&self, count: usize, within: Duration) -> Vec<Delivered> {
        eventually(&format!("{count} deliveries"), within, || {
            let delivered = self.delivered();
            async move { (delivered.len() >= count).then_some(delivered) }
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let nod = shared.nods.lock().unwrap().pop_front();
    let nod = nod.unwrap_or_else(|| shared.then.lock().unwrap().clone());
    let at = Instant::now();
    shared.delivered.lock().unwrap().push(Delivered { path: uri.path().to_owned(), headers, body, at });
    match nod {
        Nod::Status(status) => (StatusCode::from_u16(status).unwrap(), "nobody reads this").into_response(),
        Nod::Redirect(to) => (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response(),
        Nod::Hang => std::future::pending().await,
    }
}
