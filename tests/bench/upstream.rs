//! The tool server that everything is measured against: as cheap as one can be, in a process of its own so that
//! its CPU time is not the load generator's, and counting what reaches it.
//!
//! `/mcp` has three tools that say back what they are told, `/catalogue` a thousand that only describe themselves.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::load::MODERN;
use crate::process::{Priority, Process};

/// The argument that makes the benchmark's binary this server.
pub const ROLE: &str = "upstream";
/// Bytes of text in the answer of the tool `big`, besides what it was told.
pub const BIG_BYTES: usize = SENTENCE.len() * 200;
/// What that text says over and over.
const SENTENCE: &str = " The order left on Monday; its invoice is unpaid.\\n";
/// First words of the tools in the catalogue.
pub const VERBS: [&str; 20] = [
    "create",
    "archive",
    "approve",
    "assign",
    "cancel",
    "compare",
    "convert",
    "describe",
    "export",
    "forward",
    "import",
    "inspect",
    "merge",
    "notify",
    "publish",
    "rename",
    "restore",
    "schedule",
    "summarize",
    "validate",
];
/// Their second words: each with each is a tool.
pub const OBJECTS: [&str; 50] = [
    "account",
    "address",
    "alert",
    "article",
    "asset",
    "backup",
    "branch",
    "budget",
    "calendar",
    "campaign",
    "channel",
    "cluster",
    "comment",
    "commit",
    "contact",
    "contract",
    "coupon",
    "customer",
    "dashboard",
    "dataset",
    "deployment",
    "device",
    "document",
    "domain",
    "employee",
    "event",
    "feature",
    "folder",
    "image",
    "incident",
    "invoice",
    "issue",
    "label",
    "license",
    "meeting",
    "message",
    "milestone",
    "order",
    "payment",
    "pipeline",
    "policy",
    "product",
    "project",
    "report",
    "repository",
    "schema",
    "shipment",
    "survey",
    "ticket",
    "workflow",
];

/// The server as a child process.
pub struct Upstream {
    process: Process,
    /// Where it listens.
    pub at: SocketAddr,
}

/// What reached the server since its start.
#[derive(Clone, Copy, Debug, Default, Deserialize, serde::Serialize)]
pub struct Counts {
    /// TCP connections, without those that only read the counts.
    pub connections: u64,
    /// Requests of any method, likewise.
    pub requests: u64,
}

impl Upstream {
    /// Starts this very program as the server.
    ///
    /// # Errors
    /// If it does not say where it listens.
    pub fn start() -> Result<Upstream> {
        let (process, mut lines) = Process::start_role(ROLE, Priority::Usual)?;
        let line = lines.next().context("the upstream did not start")??;
        Ok(Upstream { process, at: line.trim().parse().context("the upstream did not start")? })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        !self.process.has_ended()
    }

    /// What reached it so far.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn counts(&self, http: &reqwest::Client) -> Result<Counts> {
        Ok(http.get(format!("http://{}/counts", self.at)).send().await?.json().await?)
    }
}

#[derive(Default)]
struct State {
    connections: AtomicU64,
    requests: AtomicU64,
    /// Definitions of the tools of `/mcp`, and of those of `/catalogue`.
    tools: String,
    catalogue: String,
}

#[derive(Deserialize)]
struct Message<'a> {
    id: Option<u64>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    text: Option<&'a str>,
}

/// Serves until standard input ends; says first on standard output where.
///
/// # Errors
/// If it cannot listen.
pub async fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    let parent = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let state = State { tools: own_tools(), catalogue: catalogue(), ..State::default() };
    tokio::select! {
        served = accept(listener, Arc::new(state)) => served,
        _ = parent => Ok(()),
    }
}

/// Serves a server with these tools on `/mcp`, as long as it is polled.
///
/// # Errors
/// If it cannot accept.
pub async fn serve_tools(listener: TcpListener, tools: String) -> Result<()> {
    accept(listener, Arc::new(State { tools, ..State::default() })).await
}

async fn accept(listener: TcpListener, state: Arc<State>) -> Result<()> {
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        state.connections.fetch_add(1, Ordering::Relaxed);
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&state, request));
            drop(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await,
            );
        });
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET && request.uri().path() == "/counts" {
        // the connection that asks is not part of what it asks for
        let connections = state.connections.fetch_sub(1, Ordering::Relaxed) - 1;
        let counts = Counts { connections, requests: state.requests.load(Ordering::Relaxed) };
        return Ok(closing(json(StatusCode::OK, serde_json::to_string(&counts).unwrap_or_default())));
    }
    state.requests.fetch_add(1, Ordering::Relaxed);
    if request.method() != Method::POST {
        return Ok(json(StatusCode::METHOD_NOT_ALLOWED, String::new()));
    }
    let (head, body) = request.into_parts();
    let modern = head.headers.get("mcp-protocol-version").is_some_and(|version| version == MODERN);
    let Ok(body) = body.collect().await else { return Ok(json(StatusCode::BAD_REQUEST, String::new())) };
    let body = body.to_bytes();
    let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
        return Ok(json(StatusCode::BAD_REQUEST, String::new()));
    };
    let Some(id) = message.id else { return Ok(json(StatusCode::ACCEPTED, String::new())) };
    let Some(result) = result(state, head.uri.path(), &message) else {
        let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#);
        return Ok(json(StatusCode::NOT_FOUND, error));
    };
    let kind = if modern { r#""resultType":"complete","# } else { "" };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{kind}{result}}}}}"#);
    let mut response = json(StatusCode::OK, body);
    if message.method == "initialize" {
        response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("bench"));
    }
    Ok(response)
}

/// The members of a result.
fn result(state: &State, path: &str, message: &Message<'_>) -> Option<String> {
    const CACHE: &str = r#""ttlMs":0,"cacheScope":"private""#;
    match message.method {
        "server/discover" => {
            Some(format!(r#""supportedVersions":["{MODERN}"],"capabilities":{{"tools":{{}}}},{CACHE}"#))
        }
        "initialize" => Some(
            r#""protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}"#
                .to_owned(),
        ),
        "ping" => Some(String::new()),
        "tools/list" if path == "/catalogue" => Some(format!(r#""tools":[{}],{CACHE}"#, state.catalogue)),
        "tools/list" => Some(format!(r#""tools":[{}],{CACHE}"#, state.tools)),
        "tools/call" => {
            let params = message.params.as_ref()?;
            let text = params.arguments.as_ref()?.text?;
            let filler = if params.name? == "big" { SENTENCE.repeat(BIG_BYTES / SENTENCE.len()) } else { String::new() };
            Some(format!(r#""content":[{{"type":"text","text":"{text}{filler}"}}]"#))
        }
        _ => None,
    }
}

fn own_tools() -> String {
    let tool = |name: &str, annotations: &str| {
        format!(
            r#"{{"name":"{name}","description":"Says back its text.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}}}},"required":["text"]}},"annotations":{annotations}}}"#
        )
    };
    let reads = r#"{"readOnlyHint":true}"#;
    let writes = r#"{"readOnlyHint":false,"destructiveHint":false}"#;
    [tool("echo", reads), tool("big", reads), tool("put", writes)].join(",")
}

/// Definitions as servers publish them, about 1.1 kB each.
fn catalogue() -> String {
    let property =
        |name: &str, about: &str| format!(r#""{name}":{{"type":"string","description":"{about}"}}"#);
    let tool = |verb: &str, object: &str| {
        let properties = [
            property(
                "workspaceId",
                "Identifier of the workspace, as shown in its address bar and returned by listings.",
            ),
            property(
                &format!("{object}_id"),
                &format!("Identifier of the {object}; leave it out to be asked for one."),
            ),
            property(
                "filter",
                "Expression in the query language: field, operator, value, joined by AND or OR.",
            ),
            property("notifyEmail", "Address that is told when the work is done; nobody is told without it."),
        ];
        format!(
            r#"{{"name":"{verb}_{object}","title":"{verb} {object}","description":"Use this to {verb} a {object} in a workspace that you are a member of. The {object} must exist and must not be locked by somebody else. Returns the {object} as it is afterwards, with its identifier, its owner, the time of its last change and a link that opens it in a browser. Large results come in pages.","inputSchema":{{"type":"object","properties":{{{}}},"required":["workspaceId"],"additionalProperties":false}},"annotations":{{"title":"{verb} {object}","readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}}}"#,
            properties.join(",")
        )
    };
    let tools = VERBS.iter().flat_map(|verb| OBJECTS.iter().map(move |object| tool(verb, object)));
    tools.collect::<Vec<_>>().join(",")
}

fn json(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
