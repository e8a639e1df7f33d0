//! Many clients that listen for changes of their lists: what each costs, and how soon the last of them is told.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cpu;
use crate::gateway::{Api, Gateway};
use crate::load::{Door, Era, MODERN};
use crate::say;

/// Clients at the same time.
const CLIENTS: usize = 1000;
/// Changes that are told, of which the first is not counted.
const CHANGES: usize = 21;
/// Between two changes: longer than notices are merged for.
const PAUSE: Duration = Duration::from_millis(350);
/// How long a notice may take before the run fails.
const HANG_MAX: Duration = Duration::from_secs(20);
/// How long streams are left alone before memory is read.
const IDLE: Duration = Duration::from_secs(3);
/// What a client is told.
const NOTICE: &[u8] = b"notifications/tools/list_changed";
/// Longest part of a stream that is looked at at once, bytes.
const PART_BYTES_MAX: usize = 1024;

/// Clients that listen, and how soon they are told.
#[derive(Clone, Debug)]
pub struct Listeners {
    /// Tools of the tenant.
    pub tools: usize,
    /// How they listen.
    pub era: Era,
    /// On the replica that the change is made on, or on another.
    pub is_same_replica: bool,
    /// Memory per client, kB.
    pub kb_each: f64,
    /// From the request that makes a change to its answer, of every change.
    pub answered: Vec<Duration>,
    /// From that request to the last client's notice, of every change.
    pub last_told: Vec<Duration>,
}

/// A tenant whose changes are listened to.
pub struct Tenant {
    /// Its name.
    pub name: &'static str,
    /// Its server.
    pub server: &'static str,
    /// A key of it.
    pub key: String,
    /// Its tools.
    pub tools: usize,
}

/// Measures listeners of both eras on the replica on which changes are made, and on another.
///
/// # Errors
/// A stream that does not open, or a notice that does not come.
pub async fn run(
    api: &Api<'_>,
    tenants: &[Tenant],
    here: &Gateway,
    there: &Gateway,
) -> Result<Vec<Listeners>> {
    let mut all = Vec::new();
    for tenant in tenants {
        for (gateway, is_same_replica) in [(here, true), (there, false)] {
            for era in [Era::Handshake, Era::Modern] {
                say(&format!(
                    "{CLIENTS} listeners, {} tools, {era:?}, same replica: {is_same_replica}",
                    tenant.tools
                ));
                let door = gateway.door(&tenant.key);
                let measured = measure(api, tenant, gateway.pid(), &door, era).await?;
                all.push(Listeners { is_same_replica, ..measured });
            }
        }
    }
    Ok(all)
}

async fn measure(api: &Api<'_>, tenant: &Tenant, pid: u32, door: &Door, era: Era) -> Result<Listeners> {
    let memory = || cpu::memory_mib(pid).context("the gateway is gone");
    // whatever the first streams of a kind make for all is not theirs
    drop(open(door, era).await?);
    tokio::time::sleep(IDLE).await;
    let before = memory()?;
    let (told, mut heard) = mpsc::channel(CLIENTS);
    let mut streams = JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut stream, told) = (open(door, era).await?, told.clone());
        streams.spawn(async move {
            while let Ok(true) = next(&mut stream).await {
                if told.send(Instant::now()).await.is_err() {
                    return;
                }
            }
        });
    }
    tokio::time::sleep(IDLE).await;
    let kb_each = (memory()? - before) * 1024.0 * 1.024 / CLIENTS as f64;
    let (mut answered, mut last_told) = (Vec::new(), Vec::new());
    for change in 0..CHANGES {
        let act = if change % 2 == 0 { "disable" } else { "enable" };
        let path = format!("/servers/{}/{act}", tenant.server);
        let begun = Instant::now();
        let (done, last) = tokio::join!(
            async {
                api.act(tenant.name, &path).await?;
                Ok::<_, anyhow::Error>(begun.elapsed())
            },
            async {
                let mut last = begun;
                for told in 0..CLIENTS {
                    let next = tokio::time::timeout(HANG_MAX, heard.recv()).await;
                    last = next.with_context(|| format!("only {told} were told"))?.context("no streams")?;
                }
                Ok::<_, anyhow::Error>(last - begun)
            }
        );
        let (done, last) = (done?, last?);
        if change > 0 {
            answered.push(done);
            last_told.push(last);
        }
        tokio::time::sleep(PAUSE).await;
        ensure!(heard.try_recv().is_err(), "somebody was told twice");
    }
    // as it was
    api.act(tenant.name, &format!("/servers/{}/enable", tenant.server)).await?;
    streams.shutdown().await;
    Ok(Listeners { tools: tenant.tools, era, is_same_replica: true, kb_each, answered, last_told })
}

/// An open stream that has got what it begins with.
async fn open(door: &Door, era: Era) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(door.at).await?;
    stream.set_nodelay(true)?;
    let key = door.key.as_deref().unwrap_or_default();
    let head =
        format!("Host: {}\r\nX-API-Key: {key}\r\nAccept: application/json, text/event-stream\r\n", door.at);
    let request = match era {
        Era::Handshake => {
            format!("GET /mcp/direct HTTP/1.1\r\n{head}MCP-Protocol-Version: 2025-11-25\r\n\r\n")
        }
        Era::Modern => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":"1","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
            );
            format!(
                "POST /mcp/direct HTTP/1.1\r\n{head}Content-Type: application/json\r\nMCP-Protocol-Version: {MODERN}\r\n\
                 Mcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        }
    };
    stream.write_all(request.as_bytes()).await?;
    let first: &[u8] = match era {
        Era::Handshake => b"\r\nid: ",
        Era::Modern => b"notifications/subscriptions/acknowledged",
    };
    let mut seen = Vec::new();
    while !contains(&seen, first) {
        let read =
            tokio::time::timeout(HANG_MAX, stream.read_buf(&mut seen)).await.context("no stream")??;
        if read == 0 || !seen.starts_with(b"HTTP/1.1 200") {
            bail!("a stream was not opened: {}", String::from_utf8_lossy(&seen));
        }
    }
    Ok(stream)
}

/// Waits for the next notice; `false` at the end.
async fn next(stream: &mut TcpStream) -> Result<bool> {
    let mut part = [0; PART_BYTES_MAX];
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Ok(false);
        }
        // an event is written at once
        if part.get(..read).is_some_and(|part| contains(part, NOTICE)) {
            return Ok(true);
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl Listeners {
    /// A row of the table.
    pub fn cells(&mut self) -> Vec<String> {
        let ms = |times: &mut Vec<Duration>, quantile: f64| {
            times.sort_unstable();
            let at = (times.len() as f64 * quantile) as usize;
            let time = times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default();
            format!("{:.1}", time.as_secs_f64() * 1000.0)
        };
        vec![
            CLIENTS.to_string(),
            match self.era {
                Era::Handshake => "2025-11-25".to_owned(),
                Era::Modern => MODERN.to_owned(),
            },
            self.tools.to_string(),
            if self.is_same_replica { "the same" } else { "another" }.to_owned(),
            format!("{:.1}", self.kb_each),
            ms(&mut self.answered, 0.5),
            ms(&mut self.last_told, 0.5),
            ms(&mut self.last_told, 1.0),
        ]
    }
}

/// Columns of the table.
pub const COLUMNS: [&str; 8] = [
    "listeners",
    "era",
    "tools",
    "change made on replica",
    "memory each, kB",
    "change answered, p50 ms",
    "last told, p50 ms",
    "last told, longest ms",
];
