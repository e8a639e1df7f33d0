//! Bounds the bytes that an upstream may send before the head of its answer is complete. Each head has a bound of its
//! own, but interim answers (`103 Early Hints`) could otherwise follow each other for ever, and cost time to read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes read until a head is complete. Some of the body may be among them.
const BYTES_MAX: usize = 1024 * 1024;

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

/// Connection whose reads are counted by a meter.
pub(in crate::upstream) struct Metered {
    tcp: TcpStream,
    meter: Meter,
}

impl Metered {
    pub(in crate::upstream) fn new(tcp: TcpStream, meter: Meter) -> Self {
        Self { tcp, meter }
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
            Poll::Ready(Ok(())) => Poll::Ready(self.meter.count(buf.filled().len() - before)),
            other => other,
        }
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
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
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
