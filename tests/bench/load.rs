//! The load: clients that ask, wait for the answer, check it, and ask again (a closed loop).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::upstream::{BIG_BYTES, OBJECTS, VERBS};

/// The modern revision.
pub const MODERN: &str = "2026-07-28";
/// Largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long a slice may take beyond its time before the run fails.
const HANG_MAX: Duration = Duration::from_secs(20);
/// Characters of a wrong answer that are shown.
const SHOWN_CHARS: usize = 600;

/// How the clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, then a session.
    Handshake,
    /// Revision 2026-07-28: every request stands alone.
    Modern,
}

impl Era {
    /// The revision of the protocol that its clients speak.
    pub const fn revision(self) -> &'static str {
        match self {
            Era::Handshake => "2025-11-25",
            Era::Modern => MODERN,
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A tool that only reads says back a short text.
    Read,
    /// [`Work::Read`] on `/mcp/direct`.
    ReadDirect,
    /// [`Work::Read`] with [`BIG_BYTES`] more.
    ReadBig,
    /// A tool that writes says back a short text.
    Write,
    /// `tools/list`
    List,
    /// The same on `/mcp/direct`, of the catalogue.
    ListDirect,
    /// `retrieve_tools` over the catalogue.
    Search,
}

/// Where the clients connect.
#[derive(Clone, Debug)]
pub struct Door {
    /// The address.
    pub at: SocketAddr,
    /// The key, where it is the gateway; otherwise the upstream's tools are called by their own names.
    pub key: Option<String>,
}

/// How long a slice lasts.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Time.
    Elapsed(Duration),
    /// Answers, over all clients.
    Answers(u64),
    /// Requests a second, and the time of the load, over all clients. Latencies count from when a request was sent, or from when it was due
    /// if its client was busy then.
    Paced(u32, Duration),
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Time it took.
    pub elapsed: Duration,
    /// Of every answer, nanoseconds, in no order.
    pub latencies: Vec<u32>,
}

impl Slice {
    /// Adds another slice of the same load.
    pub fn add(&mut self, other: Slice) {
        self.elapsed += other.elapsed;
        self.latencies.extend(other.latencies);
    }

    /// A quantile, milliseconds; the latencies must have been sorted.
    pub fn ms(&self, quantile: f64) -> f64 {
        let place = (self.latencies.len() as f64 * quantile) as usize;
        let place = place.min(self.latencies.len().saturating_sub(1));
        f64::from(self.latencies.get(place).copied().unwrap_or_default()) / 1_000_000.0
    }

    /// Notes one answer.
    pub fn note(&mut self, sent: Instant) {
        self.latencies.push(u32::try_from(sent.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
}

/// Runs one slice of load. All clients are connected, and have shaken hands, before the clock starts.
///
/// # Errors
/// A wrong answer, or none.
pub async fn run(door: &Door, work: Work, era: Era, clients: usize, until: Until) -> Result<Slice> {
    let mut ready = Vec::with_capacity(clients);
    for number in 0..clients {
        ready.push(Client::connect(door, work, era, number).await?);
    }
    let begun = Instant::now();
    let (deadline, answers) = match until {
        Until::Elapsed(time) | Until::Paced(_, time) => (begun + time, u64::MAX),
        Until::Answers(answers) => (begun + HANG_MAX, answers),
    };
    let asked = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let every = match until {
        Until::Paced(per_s, _) => Some(Duration::from_secs(1) * u32::try_from(clients)? / per_s.max(1)),
        Until::Elapsed(_) | Until::Answers(_) => None,
    };
    for (number, mut client) in ready.into_iter().enumerate() {
        let asked = Arc::clone(&asked);
        // the clients' requests are spread evenly
        let mut due =
            every.map(|every| begun + every * u32::try_from(number).unwrap_or_default() / clients as u32);
        tasks.spawn(async move {
            let mut slice = Slice::default();
            while Instant::now() < deadline && asked.fetch_add(1, Ordering::Relaxed) < answers {
                let sent = match (&mut due, every) {
                    (Some(due), Some(every)) => {
                        let at = *due;
                        *due += every;
                        // a timer that rings late is no delay of what is measured
                        if at <= Instant::now() {
                            at
                        } else {
                            tokio::time::sleep_until(at.into()).await;
                            Instant::now()
                        }
                    }
                    _ => Instant::now(),
                };
                client.ask().await?;
                slice.note(sent);
            }
            Ok::<_, anyhow::Error>(slice)
        });
    }
    let mut total = Slice::default();
    let all = async {
        while let Some(done) = tasks.join_next().await {
            total.add(done??);
        }
        Ok::<_, anyhow::Error>(())
    };
    let bound = deadline.saturating_duration_since(begun) + HANG_MAX;
    tokio::time::timeout(bound, all).await.context("an answer did not come")??;
    total.elapsed = begun.elapsed();
    if let Until::Answers(answers) = until {
        ensure!(total.latencies.len() as u64 == answers, "{answers} answers took too long");
    }
    Ok(total)
}

/// One request of `tools/list`, for whoever waits for a gateway to start.
///
/// # Errors
/// A wrong answer, or none.
pub async fn list_once(door: &Door) -> Result<()> {
    Client::connect(door, Work::List, Era::Modern, 0).await?.ask().await
}

/// Calls a tool through the gateway again and again, whatever comes back, and counts what comes back; never ends by
/// itself. Whoever drops it takes back the call under way, as the modern era has it.
///
/// # Errors
/// If the gateway does not answer.
pub async fn call_often(
    door: &Door,
    tool: &str,
    pause: Duration,
    answered: &AtomicU64,
) -> Result<Infallible> {
    let mut client = Client::connect(door, Work::Read, Era::Modern, 0).await?;
    let name = "call_tool_read";
    loop {
        let params = format!(r#""name":"{name}","arguments":{{"name":"{tool}","args":{{"text":"again"}}}}"#);
        client.send("tools/call", Some(name), &params).await?;
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(pause).await;
    }
}

/// Client whose answers are not checked.
pub struct Unchecked(Client);

impl Unchecked {
    /// Connects, without a handshake.
    ///
    /// # Errors
    /// If the gateway does not listen.
    pub async fn connect(door: &Door) -> Result<Unchecked> {
        Client::connect(door, Work::List, Era::Modern, 0).await.map(Unchecked)
    }

    /// Lists tools with a token; returns the status.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn list(&mut self, token: &str) -> Result<http::StatusCode> {
        let client = &mut self.0;
        let mut request = Request::post("/mcp").body(Full::from(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}"#,
        ))?;
        client.set("mcp-method", "tools/list")?;
        client.headers.remove("x-api-key");
        client.headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
        request.headers_mut().clone_from(&client.headers);
        client.wire.ready().await?;
        let (head, body) = client.wire.send_request(request).await?.into_parts();
        drop(Limited::new(body, ANSWER_BYTES_MAX).collect().await);
        Ok(head.status)
    }
}

/// A session with its stream; closed when dropped.
pub struct OpenSession {
    _stream: hyper::body::Incoming,
    _client: Client,
}

/// Shakes hands and opens the stream that a handshake client listens on.
///
/// # Errors
/// A wrong answer, or none.
pub async fn open_session(door: &Door, number: usize) -> Result<OpenSession> {
    let mut client = Client::connect(door, Work::List, Era::Handshake, number).await?;
    client.ask().await?;
    let mut request = Request::get("/mcp").body(Full::default())?;
    request.headers_mut().clone_from(&client.headers);
    client.wire.ready().await?;
    let (head, mut stream) = client.wire.send_request(request).await?.into_parts();
    ensure!(head.status.is_success(), "a stream was not opened: {}", head.status);
    let first = stream.frame().await.context("the stream ended at once")?;
    ensure!(first.is_ok(), "the stream broke at once");
    Ok(OpenSession { _stream: stream, _client: client })
}

/// A request in words.
struct Question {
    method: &'static str,
    /// `params.name`
    name: Option<&'static str>,
    /// Members of `params`.
    params: String,
    /// What the answer must contain.
    expected: Vec<String>,
}

struct Client {
    work: Work,
    era: Era,
    through_gateway: bool,
    wire: SendRequest<Full<Bytes>>,
    headers: HeaderMap,
    number: usize,
    asked: u64,
}

impl Client {
    async fn connect(door: &Door, work: Work, era: Era, number: usize) -> Result<Client> {
        let tcp =
            TcpStream::connect(door.at).await.with_context(|| format!("no connection to {}", door.at))?;
        tcp.set_nodelay(true)?;
        let (wire, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await?;
        tokio::spawn(connection);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(&door.at.to_string())?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        match &door.key {
            // a token of an identity provider has three parts
            Some(token) if token.contains('.') => {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
            }
            Some(key) => drop(headers.insert("x-api-key", HeaderValue::from_str(key)?)),
            None => {}
        }
        let through_gateway = door.key.is_some();
        let mut client = Client { work, era, through_gateway, wire, headers, number, asked: 0 };
        match era {
            Era::Modern => client.set("mcp-protocol-version", MODERN)?,
            Era::Handshake => client.shake_hands().await?,
        }
        Ok(client)
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<()> {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
        Ok(())
    }

    async fn shake_hands(&mut self) -> Result<()> {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        let (head, body) = self.post(hello.to_owned()).await?;
        let session = head.get("mcp-session-id").cloned();
        let session = session.with_context(|| format!("no session: {}", shown(&body)))?;
        self.headers.insert("mcp-session-id", session);
        self.set("mcp-protocol-version", "2025-11-25")?;
        self.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned()).await?;
        Ok(())
    }

    /// Asks once and checks the answer.
    async fn ask(&mut self) -> Result<()> {
        self.asked += 1;
        let Question { method, name, params, expected } = self.question();
        let answer = self.send(method, name, &params).await?;
        let text = std::str::from_utf8(&answer).context("an answer is not UTF-8")?;
        let complete = self.work != Work::ReadBig || text.len() > BIG_BYTES;
        let is_right = text.contains(&format!("\"id\":{},", self.asked))
            && expected.iter().all(|part| text.contains(part.as_str()))
            && complete;
        ensure!(is_right, "wrong answer to {:?}, expected {expected:?}: {}", self.work, shown(&answer));
        Ok(())
    }

    /// Posts a request with these members of `params`.
    async fn send(
        &mut self,
        method: &'static str,
        name: Option<&'static str>,
        params: &str,
    ) -> Result<Bytes> {
        let id = self.asked;
        let meta = match self.era {
            Era::Handshake => "",
            Era::Modern => {
                self.set("mcp-method", method)?;
                if let Some(name) = name {
                    self.set("mcp-name", name)?;
                }
                r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}"#
            }
        };
        let comma = if meta.is_empty() || params.is_empty() { "" } else { "," };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{meta}{comma}{params}}}}}"#
        );
        Ok(self.post(body).await?.1)
    }

    fn question(&self) -> Question {
        let text = format!("client-{}-asks-{}", self.number, self.asked);
        let call = |own: &'static str, variant: &'static str| {
            let (name, arguments) = match self.through_gateway {
                false => (own, format!(r#"{{"text":"{text}"}}"#)),
                true => {
                    let kind = variant.trim_start_matches("call_tool_");
                    let intent = format!(r#""intent":{{"operation_type":"{kind}"}}"#);
                    let args = format!(r#""args_json":"{{\"text\":\"{text}\"}}""#);
                    (variant, format!(r#"{{"name":"up:{own}",{args},{intent}}}"#))
                }
            };
            let params = format!(r#""name":"{name}","arguments":{arguments}"#);
            Question { method: "tools/call", name: Some(name), params, expected: vec![text.clone()] }
        };
        match self.work {
            Work::Read => call("echo", "call_tool_read"),
            Work::ReadDirect => {
                let name = if self.through_gateway { "up:echo" } else { "echo" };
                let params = format!(r#""name":"{name}","arguments":{{"text":"{text}"}}"#);
                Question { method: "tools/call", name: Some(name), params, expected: vec![text] }
            }
            Work::ReadBig => call("big", "call_tool_read"),
            Work::Write => call("put", "call_tool_write"),
            Work::List => {
                let known = if self.through_gateway { "call_tool_read" } else { "echo" };
                let expected = vec![format!("\"name\":\"{known}\"")];
                Question { method: "tools/list", name: None, params: String::new(), expected }
            }
            Work::ListDirect => {
                let last = format!("{}_{}\"", VERBS.last().unwrap_or(&""), OBJECTS.last().unwrap_or(&""));
                Question { method: "tools/list", name: None, params: String::new(), expected: vec![last] }
            }
            Work::Search => {
                let turn = self.number * 7919 + self.asked as usize;
                let verb = VERBS.get(turn % VERBS.len()).copied().unwrap_or_default();
                let object = OBJECTS.get(turn / VERBS.len() % OBJECTS.len()).copied().unwrap_or_default();
                let name = "retrieve_tools";
                let query = format!("{verb} {object} {text}");
                let params = format!(r#""name":"{name}","arguments":{{"query":"{query}"}}"#);
                let expected = vec![format!("\"cat:{verb}_{object}\""), query];
                Question { method: "tools/call", name: Some(name), params, expected }
            }
        }
    }

    /// Where it posts to.
    fn path(&self) -> &'static str {
        match (self.work, self.through_gateway) {
            (Work::ListDirect | Work::ReadDirect, true) => "/mcp/direct",
            (Work::ListDirect, false) => "/catalogue",
            _ => "/mcp",
        }
    }

    async fn post(&mut self, body: String) -> Result<(HeaderMap, Bytes)> {
        let mut request = Request::post(self.path()).body(Full::from(body))?;
        request.headers_mut().clone_from(&self.headers);
        self.wire.ready().await?;
        let (head, body) = self.wire.send_request(request).await?.into_parts();
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => bail!("an answer ended early: {error}"),
        };
        ensure!(head.status.is_success(), "{}: {}", head.status, shown(&body));
        Ok((head.headers, body))
    }
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(SHOWN_CHARS).collect()
}
