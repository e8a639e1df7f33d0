//! The listeners: which requests are taken apart before a key is looked at, and who gets a connection.

mod crowds;
mod files;
mod headers;
mod landing;
mod proxies;
mod shares;

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Bound on an answer of a gateway under attack: what the chart's probes wait.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

/// Address and port of a URL of a gateway.
pub fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// A connection from `source`, an address of the loopback network.
async fn connect(source: &str, target: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{source}:0").parse().unwrap())?;
    socket.connect(target).await
}

/// `count` connections from `source` that send nothing.
pub async fn idle(source: &str, target: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        // refused or left waiting is the gateway's affair; the attacker goes on
        if let Ok(Ok(stream)) = timeout(Duration::from_millis(500), connect(source, target)).await {
            idle.push(stream);
        }
    }
    idle
}

/// The answer to a request written by hand, up to the end of its body; `None` if the connection ended or none came in time.
async fn ask(stream: &mut TcpStream, request: &str) -> Option<String> {
    timeout(ANSWER_WAIT_MAX, async {
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        loop {
            let read = stream.read(&mut part).await.ok().filter(|read| *read > 0)?;
            answer.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    return Some(text.into_owned());
                }
            }
        }
    })
    .await
    .ok()
    .flatten()
}

/// Returns the status of an answer; 0 without one.
fn status(answer: Option<&str>) -> u16 {
    answer.and_then(|text| text.split(' ').nth(1)).map_or(0, |status| status.parse().unwrap())
}

/// Counts the connections that still answer, with status `expected`.
async fn alive(streams: &mut [TcpStream], request: &str, expected: u16) -> usize {
    let mut alive = 0;
    for stream in streams {
        alive += usize::from(status(ask(stream, request).await.as_deref()) == expected);
    }
    alive
}

/// Waits for the end of a connection. Returns whether it came.
async fn ends(stream: &mut TcpStream) -> bool {
    matches!(timeout(ANSWER_WAIT_MAX, stream.read(&mut [0])).await, Ok(Ok(0) | Err(_)))
}

/// Lets this process, and the gateways that it starts, open as many files as the system allows.
pub fn open_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}
