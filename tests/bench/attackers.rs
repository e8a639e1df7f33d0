//! The attackers: a process at the lowest priority that attacks a replica in every known way at once, and serves the tools
//! that its callers call.
//!
//! It attacks either the gateway or a [`crate::sink`], which is sent as many requests a second as the gateway took.

use std::convert::Infallible;
use std::io::{BufReader, Lines, Write};
use std::net::SocketAddr;
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::channel;
use tokio::task::JoinSet;
use tokio::time::Interval;

use crate::process::{Priority, Process, open_many_files};
use crate::upstream;

/// The argument that makes the benchmark's binary the attackers.
pub const ROLE: &str = "attackers";
/// Bytes of a large request, below `limits.request_bytes_max`.
const BODY_BYTES: usize = 4 * 1024 * 1024 - 2048;
/// Tools whose patterns cannot be compiled within their bounds; each costs the attempt once.
const LETTERS: usize = 200;
/// Bodies at the same time: half of them come at [`TRICKLE`], half at once but for their last byte.
const SLOW_BODIES: usize = 300;
/// Bytes of a piece of a slow body, pause after it, and bytes after which nothing more comes.
type SlowBody = (usize, Duration, usize);
/// One at 20 KiB/s, above the least pace of 16 KiB/s.
const TRICKLE: SlowBody = (4096, Duration::from_millis(200), BODY_BYTES - 1);
const IDLE_CONNECTIONS: usize = 5000;
/// Tasks that open them at the same time.
const OPENERS: usize = 10;
/// Address of the idle connections.
const IDLE_FROM: &str = "127.0.0.2:0";
/// Pause of an attacker whose connection broke.
const AGAIN: Duration = Duration::from_millis(50);

/// Order to attack the gateway.
pub const GATEWAY: &str = "gateway";
/// Order to send a sink what the gateway took.
pub const SINK: &str = "sink";

/// One attack.
pub struct Attack {
    /// Name in the report.
    pub name: &'static str,
    /// Callers that ask, wait for the answer, and ask again.
    callers: usize,
    /// Requests a second of all callers, at most.
    most_per_s: f64,
}

impl Attack {
    /// Returns whether the attack runs: all do, or those with the words of the variable `ATTACK` in their names.
    fn is_chosen(&self) -> bool {
        let words = std::env::var_os("ATTACK").unwrap_or_default();
        self.name.contains(&*words.to_string_lossy())
    }
}

/// Every attack, in the order of their tallies.
pub const ATTACKS: [Attack; 5] = [
    Attack { name: "calls of tools with schema bombs", callers: 2, most_per_s: f64::MAX },
    Attack { name: "calls with 4 MiB of small values", callers: 2, most_per_s: f64::MAX },
    Attack { name: "requests with unknown keys", callers: 16, most_per_s: 3000.0 },
    Attack { name: "bodies of 4 MiB that come slowly or stall", callers: 0, most_per_s: 0.0 },
    Attack { name: "idle connections of one address", callers: 0, most_per_s: 0.0 },
];

/// Addresses that are attacked, and the keys of three tenants for it.
#[derive(Serialize, Deserialize)]
pub struct Targets {
    /// Address of the gateway.
    pub gateway: SocketAddr,
    /// Address where a sink takes requests.
    pub sink: SocketAddr,
    /// Key of the calls of tools with schema bombs.
    pub schemas: String,
    /// Key of the calls with many values.
    pub nodes: String,
    /// Key of the slow bodies.
    pub slow: String,
}

/// Counts of one attack.
#[derive(Default, Serialize, Deserialize)]
pub struct Tally {
    /// Requests begun, or connections.
    pub begun: AtomicU64,
    /// Requests answered.
    pub answered: AtomicU64,
    /// Answers with status 200.
    pub good: AtomicU64,
    /// Bytes of request bodies.
    pub bytes: AtomicU64,
}

fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

/// Returns a count.
pub fn read(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

/// Counts of all attacks on the gateway so far.
#[derive(Default, Serialize, Deserialize)]
pub struct Tallies {
    /// Number of times that they began.
    attacks: usize,
    /// Seconds that they took together.
    pub seconds: f64,
    /// Of each attack.
    pub each: [Arc<Tally>; ATTACKS.len()],
}

fn tool(name: &str, schema: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{schema},"annotations":{{"readOnlyHint":true}}}}"#)
}

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// Returns definitions of the tools that are called.
fn tools() -> String {
    let property = |n: usize| format!(r#""p{n}":{{"pattern":"\\p{{L}}{{160}}"}}"#);
    let properties = (0..500).map(property).collect::<Vec<_>>().join(",");
    let letters = format!(r#"{{"type":"object","properties":{{{properties}}}}}"#);
    let values = format!(r#"{{"additionalProperties":{{"items":{{"enum":{}}}}}}}"#, list("0", 100_001));
    let strings = r#"{"type":"object","properties":{"a":{"items":{"type":"string"}}}}"#;
    let mut tools: Vec<_> = (0..LETTERS).map(|n| tool(&format!("letters{n}"), &letters)).collect();
    tools.extend([tool("enum", &values), tool("strings", strings), tool("object", r#"{"type":"object"}"#)]);
    tools.join(",")
}

fn call(name: &str, arguments: &str) -> Bytes {
    let arguments = format!(r#"{{"name":"bad:{name}","args":{{"text":"x",{arguments}}}}}"#);
    let params = format!(r#"{{"name":"call_tool_read","arguments":{arguments}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#).into()
}

/// Returns what the callers of each attack that has some send in turn.
fn bodies() -> [Arc<[Bytes]>; 3] {
    let (zeros, ones) = (list("0", 150_000), list("1", 150_000));
    let values = call("enum", &format!(r#""a":{zeros},"b":{ones}"#));
    let letters = |n| call(&format!("letters{n}"), r#""p0":"x""#);
    let schemas = (0..LETTERS).flat_map(|n| [letters(n), values.clone()]).collect();
    let objects = call("object", &format!(r#""a":{}"#, list(r#"{"":0}"#, BODY_BYTES / 7)));
    let strings = call("strings", &format!(r#""a":{}"#, list("1", BODY_BYTES / 2)));
    let lists = Bytes::from(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    [schemas, [objects, strings].into(), [lists].into()]
}

/// Returns a key as the gateway makes them, which nobody has.
fn unknown_key() -> String {
    let [one, other] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    format!("mcpk_{}{:011x}", one.simple(), other.as_u128() >> 84)
}

/// Serves the tools, and attacks when told to on standard input, until that ends. One line of it says what is attacked
/// (`gateway` or `sink`), the next one ends that and is answered with the tallies.
///
/// # Errors
/// If nobody says the targets.
pub async fn serve() -> Result<()> {
    open_many_files()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    tokio::spawn(upstream::serve_tools(listener, tools()));
    let (told, mut orders) = channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| told.blocking_send(line))
    });
    let Some(targets) = orders.recv().await else { return Ok(()) };
    let targets: Targets = serde_json::from_str(&targets)?;
    let mut attackers = Crowd { targets, bodies: bodies(), taken: Tallies::default() };
    while let Some(order) = orders.recv().await {
        let (began, is_sink) = (Instant::now(), order == SINK);
        let attacks = attackers.attack(is_sink);
        orders.recv().await;
        drop(attacks);
        if !is_sink {
            attackers.taken.attacks += 1;
            attackers.taken.seconds += began.elapsed().as_secs_f64();
        }
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&attackers.taken)?)?;
    }
    Ok(())
}

/// The attackers within their process.
struct Crowd {
    targets: Targets,
    bodies: [Arc<[Bytes]>; 3],
    /// Counts of their attacks on the gateway.
    taken: Tallies,
}

impl Crowd {
    /// Starts every attack. What the sink is sent is what the gateway took so far, and is not counted.
    fn attack(&self, is_sink: bool) -> JoinSet<Infallible> {
        let Crowd { targets, bodies, taken } = self;
        let at = if is_sink { targets.sink } else { targets.gateway };
        let uncounted = Tallies::default();
        let tallies = if is_sink { &uncounted } else { taken };
        let keys = [Some(&targets.schemas), Some(&targets.nodes), None];
        let mut attacks = JoinSet::new();
        let asking = ATTACKS.iter().zip(keys).zip(bodies).zip(taken.each.iter().zip(&tallies.each));
        for (((attack, key), bodies), (taken_each, tally)) in asking {
            if !attack.is_chosen() {
                continue;
            }
            let most_per_s =
                if is_sink { read(&taken_each.begun) / taken.seconds } else { attack.most_per_s };
            let every = Duration::try_from_secs_f64(attack.callers as f64 / most_per_s);
            for caller in 0..attack.callers {
                // not what was sent first in the attack before
                let next = read(&taken_each.begun) as usize + caller;
                let every = every.clone().unwrap_or(AGAIN);
                let asking = Asking { at, key: key.cloned(), bodies: Arc::clone(bodies), next, every };
                attacks.spawn(asking.often(Arc::clone(tally)));
            }
        }
        let [.., slow, idle] = &tallies.each;
        let [.., slow_bodies, idle_connections] = &ATTACKS;
        let bursts = SLOW_BODIES / 2 * taken.attacks.max(1);
        let [.., slow_taken, _] = &taken.each;
        let burst = (read(&slow_taken.bytes) as usize / bursts).min(BODY_BYTES - 1);
        let stalling = if is_sink { burst } else { BODY_BYTES - 1 };
        let pairs = if slow_bodies.is_chosen() { SLOW_BODIES / 2 } else { 0 };
        for body in [TRICKLE, (64 * 1024, Duration::ZERO, stalling)].repeat(pairs) {
            attacks.spawn(send_slowly(at, targets.slow.clone(), body, Arc::clone(slow)));
        }
        let openers = if idle_connections.is_chosen() { OPENERS } else { 0 };
        for _ in 0..openers {
            attacks.spawn(stay_idle(at, Arc::clone(idle)));
        }
        attacks
    }
}

/// A caller that asks, waits for the answer, and asks again.
struct Asking {
    at: SocketAddr,
    /// API key; an unknown one, each time another, where there is none.
    key: Option<String>,
    bodies: Arc<[Bytes]>,
    /// Place of the next body.
    next: usize,
    /// Time from one request to the next, where answers come that fast.
    every: Duration,
}

impl Asking {
    async fn often(mut self, tally: Arc<Tally>) -> Infallible {
        let mut pace = tokio::time::interval(self.every.max(Duration::from_micros(1)));
        loop {
            // refused, cut off: an attacker goes on
            drop(self.until_broken(&mut pace, &tally).await);
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn until_broken(&mut self, pace: &mut Interval, tally: &Tally) -> Result<Infallible> {
        let tcp = TcpStream::connect(self.at).await?;
        tcp.set_nodelay(true)?;
        let (mut wire, connection): (SendRequest<Full<Bytes>>, _) = handshake(TokioIo::new(tcp)).await?;
        tokio::spawn(connection);
        loop {
            pace.tick().await;
            wire.ready().await?;
            let body = self.bodies.get(self.next % self.bodies.len()).cloned().unwrap_or_default();
            let key = self.key.clone().unwrap_or_else(unknown_key);
            let request = Request::post("/mcp").header("host", self.at.to_string()).header("x-api-key", key);
            let request = request.header("content-type", "application/json");
            let request = request.header("accept", "application/json, text/event-stream");
            self.next += 1;
            add(&tally.begun, 1);
            add(&tally.bytes, body.len());
            let answer = wire.send_request(request.body(Full::from(body))?).await?;
            add(&tally.good, usize::from(answer.status().is_success()));
            answer.into_body().collect().await?;
            add(&tally.answered, 1);
        }
    }
}

/// Sends a body in pieces, and again once it was refused.
async fn send_slowly(at: SocketAddr, key: String, body: SlowBody, tally: Arc<Tally>) -> Infallible {
    let (piece, pause, bytes) = body;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {at}\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
    );
    let blanks = vec![b' '; piece];
    loop {
        let ended = async {
            let (mut reads, mut writes) = TcpStream::connect(at).await?.into_split();
            add(&tally.begun, 1);
            let writing = async {
                writes.write_all(head.as_bytes()).await?;
                let mut left = bytes;
                while left > 0 {
                    let some = left.min(piece);
                    writes.write_all(blanks.get(..some).unwrap_or_default()).await?;
                    add(&tally.bytes, some);
                    left -= some;
                    tokio::time::sleep(pause).await;
                }
                std::future::pending::<std::io::Result<()>>().await
            };
            let mut answer = [0; 16];
            tokio::select! {
                read = reads.read(&mut answer) => read.map(|_| add(&tally.answered, 1)),
                failed = writing => failed,
            }
        };
        drop::<std::io::Result<()>>(ended.await);
        tokio::time::sleep(AGAIN).await;
    }
}

/// Opens a part of the idle connections, once.
async fn stay_idle(at: SocketAddr, tally: Arc<Tally>) -> Infallible {
    let mut open = Vec::with_capacity(IDLE_CONNECTIONS / OPENERS);
    while open.len() < open.capacity() {
        let connect = async {
            let socket = TcpSocket::new_v4()?;
            // many are closed here: none may keep its port
            socket.set_zero_linger()?;
            socket.bind(IDLE_FROM.parse().map_err(std::io::Error::other)?)?;
            socket.connect(at).await
        };
        match connect.await {
            Ok(connection) => open.push(connection),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
        add(&tally.begun, 1);
    }
    std::future::pending().await
}

/// The attackers as a child process.
pub struct Attackers {
    process: Process,
    answers: Lines<BufReader<ChildStdout>>,
    /// URL of the server with their tools.
    pub url: String,
}

impl Attackers {
    /// Starts this very program as them. They need their targets before the first attack.
    ///
    /// # Errors
    /// If they do not say where their server listens.
    pub fn start() -> Result<Attackers> {
        let (process, answers) = Process::start_role(ROLE, Priority::Lowest)?;
        let mut attackers = Attackers { process, answers, url: String::new() };
        attackers.url = format!("http://{}/mcp", attackers.hear()?);
        Ok(attackers)
    }

    /// Names what they attack.
    ///
    /// # Errors
    /// If they ended.
    pub fn aim(&mut self, targets: &Targets) -> Result<()> {
        self.tell(&serde_json::to_string(targets)?)
    }

    /// Begins every attack on [`GATEWAY`] or [`SINK`].
    ///
    /// # Errors
    /// If they ended.
    pub fn begin(&mut self, target: &str) -> Result<()> {
        self.tell(target)
    }

    /// Ends every attack; returns what those on the gateway did so far.
    ///
    /// # Errors
    /// If the attackers ended.
    pub fn end(&mut self) -> Result<Tallies> {
        self.tell("end")?;
        Ok(serde_json::from_str(&self.hear()?)?)
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let orders = self.process.child().stdin.as_mut().context("the attackers have no input")?;
        Ok(writeln!(orders, "{line}")?)
    }

    fn hear(&mut self) -> Result<String> {
        Ok(self.answers.next().context("the attackers ended")??)
    }
}
