//! Bounds the bytes that an upstream may send before the head of its answer is complete. Each head has a bound of its
//! own, but interim answers (`103 Early Hints`) could otherwise follow each other for ever, and cost time to read. It also
//! ends connections to addresses that are not allowed any more.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::upstream::admission::egress::Egress;

/// Most bytes read until a head is complete. Some of the body may be among them.
const BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a request that are written before other tasks may run.
const TURN_BYTES: usize = 64 * 1024;

/// Number of bytes that may still be read from a connection; unbounded unless armed.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Meter(Arc<AtomicUsize>);

impl Default for Meter {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }
}

impl Meter {
    /// Starts to bound the bytes that are read.
    pub(in crate::upstream) fn arm(&self) {
        self.0.store(BYTES_MAX, Ordering::Relaxed);
    }

    /// Lifts the bound.
    pub(in crate::upstream) fn disarm(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }

    /// Returns whether no more bytes may be read.
    pub(in crate::upstream) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn count(&self, bytes: usize) -> io::Result<()> {
        let left = self.0.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Ok(());
        }
        self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
        if bytes >= left { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

/// Permission of a connection to go on to its address, which a change of the egress rules may end.
#[derive(Debug)]
pub(in crate::upstream) struct Passage {
    egress: Arc<Egress>,
    address: SocketAddr,
    /// Number of changes of the rules at the last check.
    checked: u64,
}

impl Passage {
    /// Creates the permission of an address that has passed the check as of `checked` changes of the rules.
    pub(in crate::upstream) fn new(egress: &Arc<Egress>, address: SocketAddr, checked: u64) -> Passage {
        Passage { egress: Arc::clone(egress), address, checked }
    }

    fn check(&mut self) -> io::Result<()> {
        let changes = self.egress.changes();
        if changes == self.checked {
            return Ok(());
        }
        if !self.egress.allows(self.address) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "egress.allow does not name its address any more",
            ));
        }
        self.checked = changes;
        Ok(())
    }
}

/// Connection whose reads are counted by a meter.
pub(in crate::upstream) struct Metered {
    tcp: TcpStream,
    meter: Meter,
    passage: Passage,
    /// Bytes written since other tasks could last run.
    written: usize,
}

impl Metered {
    pub(in crate::upstream) fn new(tcp: TcpStream, meter: Meter, passage: Passage) -> Self {
        Self { tcp, meter, passage, written: 0 }
    }

    /// Notes a write; returns true, and wakes the task, if other tasks may run before the next one.
    fn is_turn_over(&mut self, cx: &Context<'_>) -> bool {
        let is_over = self.written >= TURN_BYTES;
        if is_over {
            self.written = 0;
            cx.waker().wake_by_ref();
        }
        is_over
    }

    #[cfg(test)]
    pub(in crate::upstream) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl Connection for Metered {
    fn connected(&self) -> Connected {
        self.tcp.connected()
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, buf);
        match read {
            Poll::Ready(Ok(())) => {
                self.passage.check()?;
                Poll::Ready(self.meter.count(buf.filled().len() - before))
            }
            other => other,
        }
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.passage.check()?;
        if self.is_turn_over(cx) {
            return Poll::Pending;
        }
        let wrote = ready!(Pin::new(&mut self.tcp).poll_write(cx, buf.get(..TURN_BYTES).unwrap_or(buf)))?;
        self.written += wrote;
        Poll::Ready(Ok(wrote))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() > TURN_BYTES {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[], |buf| buf));
        }
        self.passage.check()?;
        if self.is_turn_over(cx) {
            return Poll::Pending;
        }
        let wrote = ready!(Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs))?;
        self.written += wrote;
        Poll::Ready(Ok(wrote))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_while_a_large_request_is_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // both writes fit, so that nothing but the writer itself makes it wait
        socket.set_send_buffer_size(3 * TURN_BYTES as u32).unwrap();
        let tcp = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&ran);
        tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
        let address = tcp.peer_addr().unwrap();
        let passage = Passage::new(&Arc::new(Egress::new(vec![], vec![])), address, 0);
        let mut metered = Metered::new(tcp, Meter::default(), passage);
        let bytes = vec![7; TURN_BYTES];
        metered.write_all(&bytes).await.unwrap();
        assert!(!ran.load(Ordering::Relaxed), "a turn is written at once");
        metered.write_all(b"8").await.unwrap();
        assert!(ran.load(Ordering::Relaxed), "the next turn waited for the other task");
        drop(metered);
        let mut read = Vec::new();
        peer.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, [bytes, b"8".to_vec()].concat());
    }

    #[tokio::test]
    async fn a_connection_ends_when_its_address_is_not_allowed_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let allow = |net: &str| vec![net.parse().unwrap()];
        let egress = Arc::new(Egress::new(allow("127.0.0.0/8"), vec![]));
        let passage = Passage::new(&egress, tcp.peer_addr().unwrap(), 0);
        let mut metered = Metered::new(tcp, Meter::default(), passage);
        egress.allow_only(allow("127.0.0.0/16"));
        metered.write_all(b"1").await.unwrap();
        egress.allow_only(allow("10.0.0.0/8"));
        assert_eq!(metered.write_all(b"2").await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        peer.write_all(b"3").await.unwrap();
        assert_eq!(metered.read_u8().await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        drop(metered);
        let mut read = Vec::new();
        drop(peer.read_to_end(&mut read).await);
        assert_eq!(read, b"1");
    }

    #[test]
    fn only_an_armed_meter_counts() {
        let meter = Meter::default();
        meter.count(usize::MAX - 1).unwrap();
        meter.arm();
        meter.count(BYTES_MAX - 1).unwrap();
        assert!(!meter.is_used_up());
        meter.count(1).unwrap_err();
        assert!(meter.is_used_up());
        meter.disarm();
        meter.count(BYTES_MAX).unwrap();
    }
}
