//! The sink: a process that calls bad servers and only reads what they send, as many bytes as the gateway would; and that
//! takes requests of attackers, of which it reads every byte as well.
//!
//! It stands for what a flood costs the machine when nobody looks at it.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::hostile::Vice;
use crate::process::{Priority, Process, open_many_files};

/// The argument that makes the benchmark's binary the sink.
pub const ROLE: &str = "sink";
/// Bytes read at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Longest call, as the gateway is told for the bad servers.
const CALL_WAIT_MAX: Duration = Duration::from_secs(5);

/// The sink as a child process.
pub struct Sink {
    _process: Process,
    /// Address at which the sink takes orders.
    pub at: SocketAddr,
    /// Address at which the sink takes requests of any kind.
    pub requests_at: SocketAddr,
}

impl Sink {
    /// Starts this very program as the sink.
    ///
    /// # Errors
    /// If it does not say where it listens.
    pub fn start() -> Result<Sink> {
        let (process, mut lines) = Process::start_role(ROLE, Priority::Usual)?;
        let mut address = || lines.next().context("the sink did not start");
        Ok(Sink { at: address()??.parse()?, requests_at: address()??.parse()?, _process: process })
    }
}

/// Amount that the gateway reads of one call, and its pace.
#[derive(Clone, Copy)]
struct Reading {
    /// Bytes after which reading stops.
    bytes_max: usize,
    /// Bytes that are read at once, and each second after that; `None` for no bound.
    pace: Option<usize>,
}

/// Returns what the gateway reads of one call to a server with this vice, by its own bounds.
fn reading(vice: Vice) -> Reading {
    let at_once = |bytes_max| Reading { bytes_max, pace: None };
    match vice {
        // limits.response_bytes_max
        Vice::Huge => at_once(16 * 1024 * 1024),
        // the HTTP client's bound on a head
        Vice::Headers => at_once(64 * 1024),
        // chatter beside an answer
        Vice::Flooding => Reading { bytes_max: usize::MAX, pace: Some(256 * 1024) },
        // 64 requests of a server
        Vice::Asking => at_once(16 * 1024),
        // to the end of the body
        _ => at_once(1_800_000),
    }
}

/// Serves orders until standard input ends; says first on standard output where.
///
/// # Errors
/// If nobody listens to that.
pub async fn serve() -> Result<()> {
    open_many_files()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let requests = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}\n{}", listener.local_addr()?, requests.local_addr()?)?;
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::pin!(ended);
    loop {
        tokio::select! {
            done = &mut ended => return Ok(done?.map(drop)?),
            accepted = listener.accept() => {
                let (tcp, _) = accepted?;
                tokio::spawn(async move { drop(obey(tcp).await) });
            }
            accepted = requests.accept() => {
                let connection = TokioIo::new(accepted?.0);
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(connection, service_fn(swallow)));
            }
        }
    }
}

/// Reads a request to its end and says nothing.
async fn swallow(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    let mut body = request.into_body();
    while let Some(piece) = body.frame().await {
        piece?;
    }
    Ok(Response::default())
}

/// An order is a line of address, bytes and pace; it is answered with a line once it is done.
async fn obey(tcp: TcpStream) -> Result<()> {
    tcp.set_nodelay(true)?;
    let (orders, mut answers) = tcp.into_split();
    let mut orders = tokio::io::BufReader::new(orders).lines();
    while let Some(order) = orders.next_line().await? {
        let mut words = order.split(' ');
        let mut word = || words.next().context("an order is too short");
        let at: SocketAddr = word()?.parse()?;
        let bytes_max = word()?.parse()?;
        let pace = Some(word()?.parse()?).filter(|bytes| *bytes > 0);
        drop(tokio::time::timeout(CALL_WAIT_MAX, read(at, Reading { bytes_max, pace })).await);
        answers.write_all(b"done\n").await?;
    }
    Ok(())
}

/// Calls a bad server and reads its answer.
async fn read(at: SocketAddr, reading: Reading) -> Result<()> {
    let mut tcp = TcpStream::connect(at).await?;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"act","arguments":{}}}"#;
    let length = call.len();
    let request = format!("POST /mcp HTTP/1.1\r\nhost: {at}\r\ncontent-length: {length}\r\n\r\n{call}");
    tcp.write_all(request.as_bytes()).await?;
    let (mut piece, mut read, began) = (vec![0; PIECE_BYTES], 0_usize, Instant::now());
    while read < reading.bytes_max {
        if let Some(pace) = reading.pace {
            let paid = Duration::from_secs_f64(read.saturating_sub(pace) as f64 / pace as f64);
            tokio::time::sleep(paid.saturating_sub(began.elapsed())).await;
        }
        match tcp.read(&mut piece).await? {
            0 => break,
            bytes => read += bytes,
        }
    }
    Ok(())
}

/// Has the sink call a bad server again and again, and counts the calls; never ends by itself.
///
/// # Errors
/// If the sink does not answer.
pub async fn call_often(
    sink: SocketAddr,
    server: SocketAddr,
    vice: Vice,
    pause: Duration,
    answered: &AtomicU64,
) -> Result<Infallible> {
    let tcp = TcpStream::connect(sink).await.context("no connection to the sink")?;
    tcp.set_nodelay(true)?;
    let (answers, mut orders) = tcp.into_split();
    let mut answers = tokio::io::BufReader::new(answers).lines();
    let Reading { bytes_max, pace } = reading(vice);
    let order = format!("{server} {bytes_max} {}\n", pace.unwrap_or_default());
    loop {
        orders.write_all(order.as_bytes()).await?;
        let answer = answers.next_line().await?;
        ensure!(answer.as_deref() == Some("done"), "the sink ended");
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(pause).await;
    }
}
