//! An MCP server on plain TCP that shakes hands and lists one tool like any other, and then misbehaves when
//! that tool is called.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How it misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vice {
    /// Answers after this many seconds.
    Slow(u64),
    /// Accepts, and never answers anything, not even a handshake.
    Deaf,
    /// Never answers a call.
    Silent,
    /// One byte of a good answer's head at a time.
    Dribbling,
    /// One byte of a good answer's body at a time.
    DribblingBody,
    /// A body without end.
    Huge,
    /// Says that a body of 100 MB follows.
    Announcing,
    /// A head without end.
    Headers,
    /// Interim answers without end.
    Interim,
    /// Events without end: progress that nobody asked for, and comments.
    Flooding,
    /// Requests of its own without end.
    Asking,
    /// The answer to another request.
    WrongId,
    /// A web page.
    Html,
    /// What is no HTTP.
    Garbage,
    /// Fewer bytes than it says, then the end.
    Short,
    /// More bytes than it says.
    Long,
    /// The end of the connection.
    Closing,
    /// Objects in objects in objects.
    Deep,
}

/// The running server; stops when dropped.
pub struct Hostile {
    pub url: String,
    calls: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Hostile {
    pub async fn start(vice: Vice) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            // connections end with this task
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                drop(tcp.set_nodelay(true));
                connections.spawn(serve(tcp, vice, Arc::clone(&counted)));
                while connections.try_join_next().is_some() {}
            }
        });
        Hostile { url: format!("http://{address}/mcp"), calls, task }
    }

    /// How often its tool was called.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends when the other side does, or when the vice is to end.
async fn serve(mut tcp: TcpStream, vice: Vice, calls: Arc<AtomicUsize>) {
    let mut buffer = Vec::new();
    while let Some(message) = read(&mut tcp, &mut buffer).await {
        let id = &message["id"];
        if vice == Vice::Deaf {
            return std::future::pending().await;
        }
        let said = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let result = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"h","version":"1"}}"#;
                say(&mut tcp, &json(&result_of(id, result))).await
            }
            "tools/list" => {
                let result = r#"{"tools":[{"name":"act","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}"#;
                say(&mut tcp, &json(&result_of(id, result))).await
            }
            "ping" => say(&mut tcp, &json(&result_of(id, "{}"))).await,
            "tools/call" => {
                calls.fetch_add(1, Ordering::SeqCst);
                misbehave(&mut tcp, vice, id).await
            }
            _ if id.is_null() => say(&mut tcp, "HTTP/1.1 202 X\r\ncontent-length: 0\r\n\r\n").await,
            _ => say(&mut tcp, "HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n").await,
        };
        if said.is_none() {
            return;
        }
    }
}

/// `None` when the connection is to end.
async fn misbehave(tcp: &mut TcpStream, vice: Vice, id: &Value) -> Option<()> {
    let good = result_of(id, r#"{"content":[]}"#);
    match vice {
        Vice::Deaf => None,
        Vice::Slow(seconds) => {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            say(tcp, &json(&good)).await
        }
        Vice::Silent => {
            // until the other side gives up
            while tcp.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
            None
        }
        Vice::Dribbling => dribble(tcp, &json(&good)).await,
        Vice::DribblingBody => {
            let whole = json(&good);
            let (head, body) = whole.split_at(whole.find("\r\n\r\n").unwrap() + 4);
            say(tcp, head).await?;
            dribble(tcp, body).await
        }
        Vice::Huge => {
            say(tcp, &head("application/json", "transfer-encoding: chunked")).await?;
            say(tcp, &chunk(r#"{"jsonrpc":"2.0","result":{"content":""#)).await?;
            for_ever(tcp, &chunk(&"x".repeat(64 * 1024))).await
        }
        Vice::Announcing => {
            say(tcp, &head("application/json", "content-length: 100000000")).await?;
            for_ever(tcp, &"x".repeat(64 * 1024)).await
        }
        Vice::Headers => {
            say(tcp, "HTTP/1.1 200 OK\r\n").await?;
            for_ever(tcp, &format!("x-{}: y\r\n", "z".repeat(100))).await
        }
        Vice::Interim => for_ever(tcp, &"HTTP/1.1 103 X\r\nlink: a\r\n\r\n".repeat(100)).await,
        Vice::Flooding => {
            say(tcp, &head("text/event-stream", "transfer-encoding: chunked")).await?;
            let note = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
            for_ever(tcp, &chunk(&format!(": x\n\ndata: {note}\n\n").repeat(100))).await
        }
        Vice::Asking => {
            say(tcp, &head("text/event-stream", "transfer-encoding: chunked")).await?;
            let ask = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#;
            for_ever(tcp, &chunk(&format!("data: {ask}\n\n").repeat(100))).await
        }
        Vice::WrongId => say(tcp, &json(&result_of(&Value::from(987_654), r#"{"content":[]}"#))).await,
        Vice::Html => say(tcp, &format!("{}<html>hi", head("text/html", "content-length: 8"))).await,
        Vice::Garbage => say(tcp, "\0\u{1}SSH-2.0-garbage\r\n\r\n\r\n").await,
        Vice::Short => {
            say(tcp, &format!("{}{good}", head("application/json", "content-length: 5000"))).await?;
            None
        }
        Vice::Long => {
            say(tcp, &format!("{}{good}{good}", head("application/json", "content-length: 5"))).await
        }
        Vice::Closing => None,
        Vice::Deep => say(tcp, &json(&result_of(id, &"[{\"a\":".repeat(300_000)))).await,
    }
}

async fn read(tcp: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
            let length: usize = length.trim().parse().ok()?;
            if buffer.len() >= end + 4 + length {
                let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).ok()?;
                buffer.drain(..end + 4 + length);
                return Some(body);
            }
        }
        if tcp.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

async fn say(tcp: &mut TcpStream, text: &str) -> Option<()> {
    tcp.write_all(text.as_bytes()).await.ok()
}

async fn for_ever(tcp: &mut TcpStream, text: &str) -> Option<()> {
    loop {
        say(tcp, text).await?;
    }
}

async fn dribble(tcp: &mut TcpStream, text: &str) -> Option<()> {
    for byte in text.as_bytes() {
        tcp.write_all(&[*byte]).await.ok()?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Some(())
}

fn head(content_type: &str, length: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{length}\r\n\r\n")
}

fn json(body: &str) -> String {
    format!("{}{body}", head("application/json", &format!("content-length: {}", body.len())))
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn result_of(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}
