//! A client's connection that ends when nothing can be written on it for too long: an answer that nobody reads holds
//! its tenant's share of memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The connection. A timer runs only while a write waits.
pub(super) struct Impatient<S> {
    stream: S,
    stall_max: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Impatient<S> {
    /// Any write that takes a byte begins `stall_max` anew.
    pub(super) fn new(stream: S, stall_max: Duration) -> Self {
        Self { stream, stall_max, waiting: None }
    }

    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = written(Pin::new(&mut self.stream), context) {
            self.waiting = None;
            return Poll::Ready(written);
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.stall_max)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.bounded(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bounded(context, |stream, context| stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const STALL_MAX: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn a_write_that_nobody_takes_fails_in_time() {
        let (near, mut far) = duplex(8);
        let mut near = Impatient::new(near, STALL_MAX);
        near.write_all(b"12345678").await.unwrap();
        let began = Instant::now();
        assert_eq!(near.write_all(b"9").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL_MAX);
        // room again: the next write has its time anew
        far.read_exact(&mut [0; 8]).await.unwrap();
        near.write_all(b"9").await.unwrap();
        assert!(near.waiting.is_none());
    }
}
