//! What stands between the suite and the gateway: it adds the key, which the suite has no option for, and turns the
//! fixed names that the suite calls into those of one server, `conf:NAME`. All else passes as it is, `Host` and
//! `Origin` too; the gateway sees what the suite does wrong on purpose.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;
use tokio::net::TcpListener;

use super::SERVER;

/// Largest body that is passed on, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Headers of one connection, not of the message.
const HOP_BY_HOP: [HeaderName; 3] = [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
const MCP_NAME: &str = "mcp-name";

struct Shared {
    http: reqwest::Client,
    url: String,
    key: HeaderValue,
    /// Names that are listed without a server's, the gateway's own; they are called as they are.
    bare: Mutex<HashSet<String>>,
}

/// An address that is known before what will answer there.
pub struct Place {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    listener: TcpListener,
}

impl Place {
    pub async fn find() -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Place { url: format!("http://{}", listener.local_addr().unwrap()), listener }
    }
}

/// The running shim; stops when dropped.
pub struct Shim {
    task: tokio::task::JoinHandle<()>,
}

impl Shim {
    /// In front of this address, with this key.
    pub fn start(place: Place, url: &str, key: &str) -> Shim {
        let redirect = reqwest::redirect::Policy::none();
        let http =
            reqwest::Client::builder().no_proxy().tls_certs_only([]).redirect(redirect).build().unwrap();
        let (url, key) = (url.to_owned(), key.parse().unwrap());
        let app = Router::new().fallback(pass).with_state(Arc::new(Shared {
            http,
            url,
            key,
            bare: Mutex::default(),
        }));
        Shim { task: tokio::spawn(async move { axum::serve(place.listener, app).await.unwrap() }) }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await.unwrap();
    let mut headers = end_to_end(&head.headers);
    headers.insert("x-api-key", shared.key.clone());
    let mut message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let is_bare = |name: &Value| name.as_str().is_some_and(|name| shared.bare.lock().unwrap().contains(name));
    let sent = match named(&mut message, &method) {
        Some(name) if !is_bare(name) => {
            *name = Value::from(ours(name.as_str().unwrap_or_default()));
            rename_header(&mut headers);
            Bytes::from(message.to_string())
        }
        _ => body,
    };
    let request = shared.http.request(head.method, format!("{}{}", shared.url, head.uri));
    let Ok(answer) = request.headers(headers).body(sent).send().await else {
        let mut failed = Response::default();
        *failed.status_mut() = StatusCode::BAD_GATEWAY;
        return failed;
    };
    let (status, headers) = (answer.status(), end_to_end(answer.headers()));
    let body = if matches!(method.as_str(), "tools/list" | "prompts/list") {
        // nothing else in a list has a name that begins so
        let text = answer.text().await.unwrap_or_default();
        note_bare(&shared, &text);
        Body::from(text.replace(&format!("\"name\":\"{SERVER}:"), "\"name\":\""))
    } else {
        Body::from_stream(answer.bytes_stream())
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Remembers what a list has without a server's name.
fn note_bare(shared: &Shared, list: &str) {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    let entries = ["/result/tools", "/result/prompts"].into_iter().filter_map(|path| list.pointer(path));
    let names =
        entries.flat_map(|all| all.as_array().into_iter().flatten()).filter_map(|e| e["name"].as_str());
    shared.bare.lock().unwrap().extend(names.filter(|name| !name.contains(':')).map(str::to_owned));
}

/// The name in a request that names a tool or a prompt.
fn named<'a>(message: &'a mut Value, method: &str) -> Option<&'a mut Value> {
    let path = match method {
        "tools/call" | "prompts/get" => "/params/name",
        "completion/complete" => "/params/ref/name",
        _ => return None,
    };
    message.pointer_mut(path).filter(|name| name.is_string())
}

fn ours(name: &str) -> String {
    format!("{SERVER}:{name}")
}

/// `Mcp-Name` says the same as the body, or in Base64 where a header cannot.
fn rename_header(headers: &mut HeaderMap) {
    let Some(value) = headers.get(MCP_NAME).and_then(|value| value.to_str().ok()) else { return };
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let renamed = match encoded.map(|text| STANDARD.decode(text)) {
        None => ours(value),
        Some(Ok(name)) => {
            let name = ours(&String::from_utf8_lossy(&name));
            format!("=?base64?{}?=", STANDARD.encode(name))
        }
        // wrong on purpose
        Some(Err(_)) => return,
    };
    if let Ok(renamed) = HeaderValue::from_str(&renamed) {
        headers.insert(MCP_NAME, renamed);
    }
}
