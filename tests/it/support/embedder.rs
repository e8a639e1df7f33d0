//! An embeddings service on loopback, in OpenAI's form, that can be told to behave badly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// With this status, whatever it is asked.
    Status(u16),
    /// Long after anybody waits.
    Slow,
    /// Well, after so many milliseconds.
    After(u64),
    /// A body without end.
    Endless,
    /// A vector that no text was sent for.
    OneMore,
    /// A vector less.
    OneLess,
    /// Another model's: vectors that are as long as no others.
    Stranger,
    /// A number that is none.
    NotANumber,
    /// A web page.
    Html,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Embedded {
    pub model: String,
    pub texts: Vec<String>,
    pub authorization: String,
}

struct Shared {
    /// Words whose texts point the same way. All others point in a way of their own word.
    same: Vec<(&'static str, &'static str)>,
    mood: Mutex<Mood>,
    requests: Mutex<Vec<Embedded>>,
}

/// The running service; stops when dropped.
pub struct Embedder {
    pub url: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

/// Numbers of its vectors.
const DIMS: usize = 64;

impl Embedder {
    /// Texts with one word of a pair are near those with the other. In any mood, it refuses texts with the word
    /// "indigestible", fails at "unbearable", and never answers to "endless". Its address is none that egress allows in
    /// [`Embedder::settings`].
    pub async fn start(same: &[(&'static str, &'static str)]) -> Embedder {
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let url = format!("http://{}/v1/embeddings", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            same: same.to_vec(),
            mood: Mutex::new(Mood::Good),
            requests: Mutex::default(),
        });
        let app = axum::Router::new()
            .route("/v1/embeddings", axum::routing::post(answer))
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Embedder { url, shared, task }
    }

    /// What makes a gateway use it, and wait for it longer than any machine is busy.
    pub fn settings(&self) -> [(&str, &str); 6] {
        [
            ("MCPPROXY__SEARCH__EMBEDDINGS_URL", &self.url),
            ("MCPPROXY__SEARCH__EMBEDDINGS_MODEL", "test-model"),
            ("MCPPROXY__SEARCH__EMBEDDINGS_API_KEY", "key-of-the-embeddings-service"),
            ("MCPPROXY__EGRESS__ALLOW", "127.0.0.1/32"),
            ("MCPPROXY__TELEMETRY__LOG_FILTER", "debug"),
            ("MCPPROXY__SEARCH__EMBEDDINGS_WAIT_MS", "3000"),
        ]
    }

    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<Embedded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// How often texts with this word were sent.
    pub fn sent(&self, word: &str) -> usize {
        self.texts().iter().filter(|(text, _)| text.contains(word)).map(|(_, count)| count).sum()
    }

    /// How often each text was sent.
    pub fn texts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for text in self.requests().into_iter().flat_map(|request| request.texts) {
            *counts.entry(text).or_default() += 1;
        }
        counts
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let texts: Vec<String> = serde_json::from_value(asked["input"].clone()).unwrap();
    assert_eq!(asked["encoding_format"], "float");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let authorization =
        headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    shared.requests.lock().unwrap().push(Embedded {
        model: text(&asked["model"]),
        texts: texts.clone(),
        authorization: authorization.to_owned(),
    });
    let has = |word: &str| texts.iter().any(|text| text.contains(word));
    if has("indigestible") {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if has("unbearable") {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    if has("endless") {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let mood = *shared.mood.lock().unwrap();
    let mut vectors: Vec<Vec<f32>> = texts.iter().map(|text| vector(&shared.same, text)).collect();
    match mood {
        Mood::Good => {}
        Mood::Status(status) => return StatusCode::from_u16(status).unwrap().into_response(),
        Mood::Slow => tokio::time::sleep(Duration::from_secs(3600)).await,
        Mood::After(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Mood::Endless => {
            let digits = Bytes::from("1,".repeat(8192));
            let numbers = futures_util::stream::repeat(digits);
            let start = futures_util::stream::iter([Bytes::from(r#"{"data":[{"index":0,"embedding":["#)]);
            return Body::from_stream(start.chain(numbers).map(Ok::<_, std::io::Error>)).into_response();
        }
        Mood::OneMore => vectors.push(vec![1.0; DIMS]),
        Mood::OneLess => drop(vectors.pop()),
        Mood::Stranger => vectors.iter_mut().for_each(|vector| vector.push(0.0)),
        Mood::NotANumber => {
            return r#"{"data":[{"index":0,"embedding":[NaN,1]}]}"#.into_response();
        }
        Mood::Html => return "<!doctype html>".into_response(),
    }
    // not in the order of the texts: the index counts
    let data: Vec<Value> = vectors
        .into_iter()
        .enumerate()
        .rev()
        .map(|(index, embedding)| json!({"object": "embedding", "index": index, "embedding": embedding}))
        .collect();
    Json(json!({"object": "list", "data": data, "model": "test-model", "usage": {}})).into_response()
}

fn vector(same: &[(&str, &str)], text: &str) -> Vec<f32> {
    let pair = same.iter().position(|(one, other)| text.contains(one) || text.contains(other));
    let own = same.len() + text.bytes().map(usize::from).sum::<usize>() % (DIMS - same.len());
    let mut vector = vec![0.0; DIMS];
    vector[pair.unwrap_or(own)] = 3.0;
    vector
}
