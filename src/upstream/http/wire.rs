//! HTTP/1.1 connection, driven by the call that uses it.
//!
//! There is no task behind a connection: the call that holds it polls it. A call therefore costs no wake-up of
//! another task, and dropping the call closes the connection.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::upstream::admission::shares::Share;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::{Dialed, Io};
use crate::upstream::http::meter::Meter;

/// Largest response head, and largest single read, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body that are taken before other tasks may run. A flood would otherwise keep a thread from everybody
/// else for as long as it comes faster than it is read.
const TURN_BYTES: usize = 64 * 1024;
/// Most header fields in a response.
const HEADERS_MAX: usize = 100;

/// Request that failed on its connection.
pub(in crate::upstream) struct Failed {
    /// Request, if no byte of it was written.
    pub(in crate::upstream) unsent: Option<Request<Full<Bytes>>>,
    pub(in crate::upstream) error: UpstreamError,
}

/// Half of a connection that moves its bytes.
type Driver = Pin<Box<http1::Connection<Io, Full<Bytes>>>>;

/// Open HTTP/1.1 connection.
pub(in crate::upstream) struct Wire {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Driver of the connection; `None` once it has ended. Dropping it then gives waiting requests back.
    driver: Option<Driver>,
    meter: Meter,
    /// Bytes of bodies taken since other tasks could last run.
    taken: usize,
    /// Time when the connection was last given back.
    pub(in crate::upstream) idle_since: Instant,
    _slot: OwnedSemaphorePermit,
}

impl Wire {
    pub(in crate::upstream) async fn new(
        dialed: Dialed,
        slot: OwnedSemaphorePermit,
    ) -> Result<Self, UpstreamError> {
        let opened = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake::<_, Full<Bytes>>(dialed.io)
            .await;
        let (sender, driver) =
            opened.map_err(|_| UpstreamError::unsent(FailureKind::Unreachable, "HTTP failed"))?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
            meter: dialed.meter,
            taken: 0,
            idle_since: Instant::now(),
            _slot: slot,
        })
    }

    /// Sends a request and reads the head of its answer.
    pub(in crate::upstream) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failed> {
        self.meter.arm();
        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let answered = poll_fn(|cx| {
            drive(driver, cx);
            answer.as_mut().poll(cx)
        });
        let answered = answered.await;
        let is_endless = self.meter.is_used_up();
        self.meter.disarm();
        answered.map_err(|mut failed| {
            let unsent = failed.take_message();
            let dispatched = unsent.is_none();
            let error = match is_endless {
                true => UpstreamError::invalid("the head of the answer does not end"),
                false => lost(failed.error()),
            };
            Failed { unsent, error: UpstreamError { dispatched, ..error } }
        })
    }

    /// Reads the next piece of a body at its tenant's pace; returns `None` at the end.
    pub(in crate::upstream) async fn next(
        &mut self,
        share: &Share,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, UpstreamError>> {
        if self.taken >= TURN_BYTES {
            let early = share.read(std::mem::take(&mut self.taken));
            if early.is_zero() {
                yield_now().await;
            } else {
                sleep(early).await;
            }
        }
        loop {
            let driver = &mut self.driver;
            let frame = poll_fn(|cx| {
                if let ready @ Poll::Ready(_) = Pin::new(&mut *body).poll_frame(cx) {
                    return ready;
                }
                drive(driver, cx);
                Pin::new(&mut *body).poll_frame(cx)
            });
            match frame.await? {
                Err(error) => return Some(Err(lost(&error))),
                // Trailers hold nothing that we use.
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.taken = self.taken.saturating_add(data.len());
                        return Some(Ok(data));
                    }
                }
            }
        }
    }

    /// Returns the next piece of a body if it has already arrived.
    pub(in crate::upstream) fn next_now(&mut self, body: &mut Incoming) -> Poll<Option<Bytes>> {
        let cx = &mut Context::from_waker(Waker::noop());
        drive(&mut self.driver, cx);
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(frame.into_data().unwrap_or_default())),
            Poll::Ready(Some(Err(_)) | None) => Poll::Ready(None),
        }
    }

    /// Returns whether the connection is open and free for another request, as far as is known without waiting.
    pub(in crate::upstream) fn is_usable(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        drive(&mut self.driver, cx);
        self.driver.is_some() && self.sender.is_ready()
    }
}

fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    // The connection's own error also reaches the request or body that it interrupts.
    if driver.as_mut().is_some_and(|connection| connection.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}

fn lost(error: &hyper::Error) -> UpstreamError {
    if error.is_parse() {
        return UpstreamError::invalid("the answer is not HTTP");
    }
    UpstreamError::sent(FailureKind::Lost, "")
}
