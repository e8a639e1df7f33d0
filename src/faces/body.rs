//! Bodies on their way in and out: bounded in bytes, in time, and in the memory of their API key, tenant and replica.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::gateway::{Caller, FREE_BYTES_MAX, Gateway, MemoryHold, MemoryPurpose, MemoryShort};

/// Time limits for reading one body.
struct Patience {
    /// Longest time for a client to send the body, in all.
    read_max: Duration,
    /// Time that a client may take; one second more is added for each [`PACE_BYTES_PER_S`] received.
    grace: Duration,
    /// Longest wait for memory, in all.
    memory_wait_max: Duration,
}

const PATIENCE: Patience = Patience {
    read_max: Duration::from_secs(30),
    grace: Duration::from_secs(5),
    memory_wait_max: Duration::from_secs(5),
};
/// Least pace of a body after the grace, in bytes per second on average.
const PACE_BYTES_PER_S: f64 = 16.0 * 1024.0;
/// Memory of a body as a multiple of its bytes: it is read once, and copied once to be passed on.
const COPIES: usize = 2;
/// Bytes of a body that are taken before other tasks may run. A large body that comes fast would otherwise keep a thread from
/// everybody else for milliseconds.
const TURN_BYTES: usize = 64 * 1024;
/// Bytes of a refused body that are still read and discarded. A client that is cut off while it sends may
/// never see the answer.
const DISCARD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest time spent on discarding a refused body.
const DISCARD_WAIT_MAX: Duration = Duration::from_secs(2);
/// Delay after which a refused body is discarded, so that its answer is sent first.
const DISCARD_AFTER: Duration = Duration::from_millis(10);

/// Reason why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The body is larger than the bound, or announced to be.
    TooLarge,
    /// The client went away or broke the framing.
    Broken,
    /// The client sent below the least pace, or for longer than 30 s in all.
    Slow,
    /// Requests of the key, its tenant or the replica hold as much memory as they may.
    NoMemory,
}

/// Reads a whole body of up to `bytes_max` bytes within 30 s. A body that is announced to be larger is
/// refused unread.
///
/// Beyond 8 KiB the body holds memory of the caller's shares, from its arrival until no slice of it is in
/// use. If no memory is free within 5 s, the rest is not read.
///
/// # Errors
/// [`BodyError`]: the body is too large, broken off or too slow, or there is no memory for it.
pub async fn read_body(
    mut body: Body,
    bytes_max: usize,
    gateway: &Gateway,
    caller: &Caller,
) -> Result<Bytes, BodyError> {
    let memory = || gateway.tenants.memory(caller, MemoryPurpose::Request);
    let read = read(&mut body, bytes_max, memory, &PATIENCE).await;
    if read.is_err() {
        tokio::spawn(discard(body));
    }
    read
}

async fn read(
    body: &mut Body,
    bytes_max: usize,
    memory: impl Fn() -> MemoryHold,
    patience: &Patience,
) -> Result<Bytes, BodyError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(BodyError::TooLarge);
    }
    let mut pace = Pace { patience, waited: Duration::ZERO };
    let mut taken = 0;
    let Some(first) = pace.next(body, 0).await? else { return Ok(Bytes::new()) };
    if body.is_end_stream() && first.len() <= FREE_BYTES_MAX.min(bytes_max) {
        return Ok(first);
    }
    let (mut whole, mut hold, mut piece) = (BytesMut::new(), None, Some(first));
    while let Some(bytes) = piece {
        let needed = whole.len() + bytes.len();
        if needed > bytes_max {
            return Err(BodyError::TooLarge);
        }
        if needed > FREE_BYTES_MAX {
            let hold = hold.get_or_insert_with(|| memory().waiting(patience.memory_wait_max));
            hold.grow(COPIES * needed).await.map_err(|MemoryShort| BodyError::NoMemory)?;
        }
        if needed > whole.capacity() {
            // address space: only what is written to becomes memory, and it is not copied while it grows
            whole.reserve(announced.max(needed) - whole.len());
        }
        whole.extend_from_slice(&bytes);
        taken += bytes.len();
        if taken >= TURN_BYTES {
            taken = 0;
            yield_now().await;
        }
        piece = pace.next(body, needed).await?;
    }
    let whole = whole.freeze();
    Ok(match hold {
        Some(hold) => hold.keep(whole),
        None => whole,
    })
}

/// Reader that bounds the total time spent waiting for the client. The gateway's own waits for memory do not
/// count.
struct Pace<'a> {
    patience: &'a Patience,
    waited: Duration,
}

impl Pace<'_> {
    /// Returns the next piece of a body of which `arrived` bytes have been read; `None` after its end.
    async fn next(&mut self, body: &mut Body, arrived: usize) -> Result<Option<Bytes>, BodyError> {
        let paid = Duration::from_secs_f64(arrived as f64 / PACE_BYTES_PER_S);
        let allowed = (self.patience.grace + paid).min(self.patience.read_max);
        let began = Instant::now();
        let frame = timeout(allowed.saturating_sub(self.waited), data(body)).await;
        self.waited += began.elapsed();
        frame.map_err(|_| BodyError::Slow)?
    }
}

/// Returns the next bytes of a body; `None` after its end. Trailers are skipped.
async fn data(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Ok(Some(bytes)),
                Err(_) => {}
            },
        }
    }
}

async fn discard(mut body: Body) {
    // a client that waits for `100 Continue` gets the answer instead
    sleep(DISCARD_AFTER).await;
    let mut left = DISCARD_BYTES_MAX;
    let read = async {
        while let Ok(Some(bytes)) = data(&mut body).await {
            let Some(rest) = left.checked_sub(bytes.len()) else { return };
            left = rest;
        }
    };
    // as much as there is time for
    drop(timeout(DISCARD_WAIT_MAX, read).await);
}

/// Attaches memory of the caller's shares to a finished answer, until its last byte has been written. Answers
/// of up to 8 KiB need none. `hold` is memory that was taken before the answer was made.
///
/// # Errors
/// [`MemoryShort`] if more memory is needed and not free at once: a waiting answer would itself occupy
/// memory.
pub async fn hold_answer(
    gateway: &Gateway,
    caller: &Caller,
    hold: Option<MemoryHold>,
    answer: Bytes,
) -> Result<Bytes, MemoryShort> {
    if answer.len() <= FREE_BYTES_MAX {
        return Ok(answer);
    }
    let hold = hold.unwrap_or_else(|| gateway.tenants.memory(caller, MemoryPurpose::Answer));
    let mut hold = hold.waiting(Duration::ZERO);
    hold.shrink(answer.len());
    hold.grow(answer.len()).await?;
    Ok(hold.keep(answer))
}

#[cfg(test)]
mod tests;
