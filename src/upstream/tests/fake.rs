//! Upstream on loopback that answers exactly what a test says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use uuid::Uuid;

use super::super::*;
use crate::domain::relay::Relay;

/// Request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// `POST`, `GET` or `DELETE`.
    pub(super) verb: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) raw: String,
    pub(super) body: Value,
    /// Number of the TCP connection on which the request came, from 0.
    pub(super) connection: usize,
}

impl Seen {
    pub(super) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Reaction of the fake to a request.
pub(super) enum Say {
    /// Sends a whole answer: status, headers, body.
    Http(u16, Vec<(&'static str, String)>, String),
    /// Sends these bytes; the connection stays open.
    Raw(Vec<u8>),
    /// Sends these bytes, then closes the connection.
    Last(Vec<u8>),
    /// Waits for a signal first.
    After(Arc<Notify>, Box<Say>),
    /// Reacts in the first way, waits for a signal, then reacts in the second.
    Then(Box<Say>, Arc<Notify>, Box<Say>),
}

/// Returns an answer of status 200 with a JSON body.
pub(super) fn json(body: impl Into<String>) -> Say {
    status(200, body)
}

pub(super) fn status(code: u16, body: impl Into<String>) -> Say {
    Say::Http(code, vec![("content-type", "application/json; charset=utf-8".to_owned())], body.into())
}

/// Returns the answer to a request with this raw result.
pub(super) fn result(seen: &Seen, result: &str) -> Say {
    json(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.body["id"]))
}

pub(super) fn error(code: u16, id: &Value, rpc_code: i64) -> Say {
    let error = format!(r#"{{"code":{rpc_code},"message":"m"}}"#);
    status(code, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

/// Returns an event of a stream.
pub(super) fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}

/// Returns the head of an event stream and its first events, chunked.
pub(super) fn stream(events: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{}", chunk(events)).into_bytes()
}

pub(super) fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// Capabilities of a server that announces changes of its tools.
pub(super) const TOOLS_ANNOUNCED: &str = r#"{"tools":{"listChanged":true}}"#;
/// Capabilities of a server that has and announces everything.
pub(super) const EVERYTHING: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},
    "resources":{"listChanged":true,"subscribe":true},"completions":{}}"#;

/// Returns the result of `initialize` of a handshake server with these capabilities.
pub(super) fn hello(capabilities: &str) -> String {
    let server = r#"{"name":"fake","version":"1"}"#;
    format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":{server}}}"#)
}

/// Running fake.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    accepted: Arc<AtomicUsize>,
    pub(super) closed: Arc<AtomicUsize>,
    changed: Arc<Notify>,
}

impl Fake {
    pub(super) async fn start(answer: impl Fn(&Seen) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            accepted: Arc::default(),
            closed: Arc::default(),
            changed: Arc::default(),
        };
        let (seen, accepted) = (Arc::clone(&fake.seen), Arc::clone(&fake.accepted));
        let (closed, changed) = (Arc::clone(&fake.closed), Arc::clone(&fake.changed));
        let answer: Arc<dyn Fn(&Seen) -> Say + Send + Sync> = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let (closed, changed) = (Arc::clone(&closed), Arc::clone(&changed));
                tokio::spawn(async move {
                    serve(tcp, number, &seen, &changed, &*answer).await;
                    closed.fetch_add(1, Ordering::SeqCst);
                    changed.notify_waiters();
                });
            }
        });
        fake
    }

    /// Starts a modern server; `answer` gets every request but `server/discover`.
    pub(super) async fn modern(answer: impl Fn(&Seen) -> Say + Send + Sync + 'static) -> Self {
        Self::declaring(Era::Modern, TOOLS_ANNOUNCED, answer).await
    }

    /// Starts a server of the handshake era with numbered sessions `s0`, `s1`, …
    pub(super) async fn handshake(answer: impl Fn(&Seen) -> Say + Send + Sync + 'static) -> Self {
        Self::declaring(Era::Handshake, TOOLS_ANNOUNCED, answer).await
    }

    /// Starts a server of this era with these capabilities.
    pub(super) async fn declaring(
        era: Era,
        capabilities: &'static str,
        answer: impl Fn(&Seen) -> Say + Send + Sync + 'static,
    ) -> Self {
        let sessions = AtomicUsize::new(0);
        Self::start(move |seen| match (seen.method(), era) {
            ("server/discover", Era::Modern) => {
                let more = r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#;
                let versions = r#""supportedVersions":["2026-07-28"]"#;
                result(seen, &format!(r#"{{{versions},"capabilities":{capabilities},{more}}}"#))
            }
            ("server/discover", Era::Handshake) => error(400, &Value::Null, -32000),
            ("initialize", Era::Handshake) => {
                let Say::Http(code, mut headers, body) = result(seen, &hello(capabilities)) else {
                    unreachable!()
                };
                headers.push(("mcp-session-id", format!("s{}", sessions.fetch_add(1, Ordering::SeqCst))));
                Say::Http(code, headers, body)
            }
            ("notifications/initialized", Era::Handshake) => Say::Http(202, vec![], String::new()),
            _ => answer(seen),
        })
        .await
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn methods(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.method().to_owned()).collect()
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits, within a bound, until the fake has seen enough.
    pub(super) async fn until(&self, is_enough: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(5), async {
            loop {
                let changed = self.changed.notified();
                if is_enough(self) {
                    return;
                }
                changed.await;
            }
        });
        waited.await.unwrap();
    }

    pub(super) fn target(&self) -> Target {
        Target {
            tenant: Uuid::from_u128(1),
            server: Uuid::from_u128(2),
            version: 1,
            upstream: Upstream::Http(HttpServer {
                url: format!("http://{}/mcp?k=v", self.address),
                credential: Credential::Is(Uuid::from_u128(3)),
                headers: vec![(
                    ::http::header::AUTHORIZATION,
                    ::http::HeaderValue::from_static("Bearer upstream-secret"),
                )],
                login: None,
                caller_token: None,
            }),
            era: None,
            limits: limits(),
            relay: Relay::NOTHING,
        }
    }

    pub(super) fn connection(&self) -> Arc<Connection> {
        pool().connection(&self.target())
    }
}

impl Target {
    pub(super) fn http(&self) -> &HttpServer {
        let Upstream::Http(server) = &self.upstream else { panic!("not over HTTP") };
        server
    }

    fn of(self, server: HttpServer) -> Target {
        Target { upstream: Upstream::Http(server), ..self }
    }

    /// Returns the target at another URL.
    pub(super) fn at(self, url: String) -> Target {
        let server = HttpServer { url, ..self.http().clone() };
        self.of(server)
    }

    /// Returns the target with another credential.
    pub(super) fn with(self, credential: Credential) -> Target {
        let server = HttpServer { credential, ..self.http().clone() };
        self.of(server)
    }

    /// Returns the target with other headers.
    pub(super) fn with_headers(self, headers: Vec<(::http::HeaderName, ::http::HeaderValue)>) -> Target {
        let server = HttpServer { headers, ..self.http().clone() };
        self.of(server)
    }
}

/// Returns the `params` of progress that a caller has heard of.
pub(super) fn progress_in(event: Option<CallEvent>) -> bytes::Bytes {
    match event {
        Some(CallEvent::Progress(params)) => params,
        other => panic!("no progress: {other:?}"),
    }
}

/// Creates a pool that may connect to loopback.
pub(super) fn pool() -> Pool {
    Pool::new(Arc::new(Egress::new(vec!["127.0.0.0/8".parse().unwrap()], vec![])), None)
}

pub(super) fn limits() -> Limits {
    Limits {
        concurrency: 8,
        queue: 8,
        queue_wait: Duration::from_secs(10),
        breaker: BreakerRules {
            failures_max: 5,
            rest_min: Duration::from_secs(1),
            rest_max: Duration::from_secs(30),
        },
        connections: 16,
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(10),
        listing_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        response_bytes_max: 100_000,
    }
}

pub(super) fn call(name: &str) -> Request {
    calling(name, bytes::Bytes::from_static(b"{}"))
}

/// Returns a call with these arguments, an object.
pub(super) fn calling(name: &str, arguments: bytes::Bytes) -> Request {
    Request { members: vec![("arguments", arguments)], ..request(Subject::Tool(name.to_owned())) }
}

pub(super) fn request(subject: Subject) -> Request {
    Request {
        subject,
        members: vec![],
        meta: vec![],
        param_headers: vec![],
        hears: None,
        page: None,
        round: Round::default(),
        caller: CallerMark::default(),
        exchange_for: ExchangeFor::Newest,
        timeout: Duration::from_secs(10),
        sent: Arc::default(),
    }
}

async fn serve(
    mut tcp: TcpStream,
    connection: usize,
    log: &Mutex<Vec<Seen>>,
    changed: &Notify,
    answer: &(dyn Fn(&Seen) -> Say + Send + Sync),
) {
    tcp.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    while let Some(seen) = read(&mut tcp, &mut buffer, connection).await {
        log.lock().unwrap().push(seen.clone());
        changed.notify_waiters();
        if !say(&mut tcp, answer(&seen)).await {
            return;
        }
    }
}

/// Returns the method of a request to the usual path, or to the root.
fn request_line(line: &str) -> String {
    let verb = [" /mcp?k=v HTTP/1.1", " /mcp HTTP/1.1", " / HTTP/1.1"]
        .into_iter()
        .find_map(|end| line.strip_suffix(end));
    verb.unwrap_or_else(|| panic!("{line}")).to_owned()
}

async fn read(tcp: &mut TcpStream, buffer: &mut Vec<u8>, connection: usize) -> Option<Seen> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let mut lines = head.lines();
            let verb = request_line(lines.next().unwrap());
            let headers: HashMap<_, _> = lines
                .map(|line| line.split_once(": ").unwrap_or((line.trim_end_matches(':'), "")))
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let raw = String::from_utf8(buffer[end + 4..end + 4 + length].to_vec()).unwrap();
                buffer.drain(..end + 4 + length);
                let body = if length == 0 { Value::Null } else { serde_json::from_str(&raw).unwrap() };
                return Some(Seen { verb, headers, raw, body, connection });
            }
        }
        match tcp.read_buf(buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Performs a reaction. Returns false if the connection ends here, on purpose or because the other side has gone.
async fn say(tcp: &mut TcpStream, what: Say) -> bool {
    match what {
        Say::Http(code, headers, body) => {
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let head = format!("HTTP/1.1 {code} X\r\n{headers}content-length: {}\r\n\r\n", body.len());
            tcp.write_all(&[head.into_bytes(), body.into_bytes()].concat()).await.is_ok()
        }
        Say::Raw(bytes) => tcp.write_all(&bytes).await.is_ok(),
        Say::Last(bytes) => {
            assert!(tcp.write_all(&bytes).await.is_ok());
            false
        }
        Say::After(signal, next) => wait(tcp, &signal).await && Box::pin(say(tcp, *next)).await,
        Say::Then(first, signal, next) => {
            Box::pin(say(tcp, *first)).await && wait(tcp, &signal).await && Box::pin(say(tcp, *next)).await
        }
    }
}

/// Waits for the signal, or for the client to hang up.
async fn wait(tcp: &TcpStream, signal: &Notify) -> bool {
    tokio::select! {
        () = signal.notified() => true,
        gone = async {
            loop {
                tcp.readable().await.unwrap();
                match tcp.try_read(&mut [0; 16]) {
                    Ok(0) | Err(_) => return false,
                    Ok(_) => {}
                }
            }
        } => gone,
    }
}
