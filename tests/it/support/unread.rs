//! A client on plain TCP that sends a request and takes its time with the answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What its end of the connection takes in by itself, in bytes.
const RECEIVE_BYTES: u32 = 4096;

/// A connection with an answer on it that nobody has read.
pub struct Unread(TcpStream);

impl Unread {
    pub(super) async fn send(request: &reqwest::Request) -> Unread {
        let url = request.url();
        let host = format!("127.0.0.1:{}", url.port().unwrap());
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut head = format!("{} {}{query} HTTP/1.1\r\nhost: {host}\r\n", request.method(), url.path());
        for (name, value) in request.headers() {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
        let mut stream = socket.connect(host.parse().unwrap()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        Unread(stream)
    }

    /// Waits until the first bytes of the answer are there, and leaves them.
    pub async fn answered(&self) {
        self.0.readable().await.unwrap();
    }

    /// Reads the answer after all, until this is in it.
    pub async fn read_until(mut self, end: &str) -> String {
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            assert_ne!(self.0.read_buf(&mut answer).await.unwrap(), 0, "the end came early");
        }
        String::from_utf8(answer).unwrap()
    }
}
