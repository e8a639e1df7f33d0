//! Write timeout of client connections: a connection ends when its client reads too slowly, or not at all.
//! Answers that nobody reads would hold their tenant's share of memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes that a client has to read for each second that it kept a write waiting.
const PACE_BYTES_PER_S: f64 = 16.0 * 1024.0;

/// Client connection with a bound on waiting writes. A timer runs only while a write waits.
pub(super) struct Impatient<S> {
    stream: S,
    stall_max: Duration,
    /// Time that writes have waited, minus the time paid for by bytes written since.
    debt: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S: AsyncWrite + Unpin> Impatient<S> {
    /// Wraps a stream whose writes may wait `stall_max` in all. Written bytes make up for waits, at
    /// [`PACE_BYTES_PER_S`].
    pub(super) fn new(stream: S, stall_max: Duration) -> Self {
        Self { stream, stall_max, debt: Duration::ZERO, waiting: None }
    }

    fn bounded(
        &mut self,
        context: &mut Context<'_>,
        written: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written(Pin::new(&mut self.stream), context) {
            if let Some((since, _)) = self.waiting.take() {
                self.debt += since.elapsed();
            }
            if let (Ok(bytes), false) = (&written, self.debt.is_zero()) {
                let paid = Duration::from_secs_f64(*bytes as f64 / PACE_BYTES_PER_S);
                self.debt = self.debt.saturating_sub(paid);
            }
            return Poll::Ready(written);
        }
        let left = self.stall_max.saturating_sub(self.debt);
        let (_, timer) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
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
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const STALL_MAX: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn a_write_that_nobody_takes_fails_in_time() {
        let (near, _far) = duplex(8);
        let mut near = Impatient::new(near, STALL_MAX);
        near.write_all(b"12345678").await.unwrap();
        let began = Instant::now();
        assert_eq!(near.write_all(b"9").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL_MAX);
        assert!(began.elapsed() < 10 * STALL_MAX);
    }

    #[tokio::test]
    async fn a_client_that_reads_a_byte_now_and_then_is_not_waited_for_long() {
        let (near, mut far) = duplex(8);
        let mut near = Impatient::new(near, STALL_MAX);
        near.write_all(b"12345678").await.unwrap();
        let began = Instant::now();
        let reader = tokio::spawn(async move {
            while far.read_exact(&mut [0; 1]).await.is_ok() {
                sleep(STALL_MAX / 4).await;
            }
        });
        let failed = near.write_all(&[b'x'; 1000]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < 10 * STALL_MAX, "{:?}", began.elapsed());
        drop(near);
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_read_makes_up_for_waits() {
        let (near, mut far) = duplex(64 * 1024);
        let mut near = Impatient::new(near, STALL_MAX);
        let reader = tokio::spawn(async move {
            let mut taken = vec![0; 64 * 1024];
            for _ in 0..10 {
                sleep(STALL_MAX / 2).await;
                far.read_exact(&mut taken).await.unwrap();
            }
        });
        near.write_all(&vec![b'x'; 10 * 64 * 1024]).await.unwrap();
        reader.await.unwrap();
    }
}
