//! Bodies on their way in and out: bounded in bytes, in time, and in the memory of their API key, tenant and replica.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, sleep, timeout};

use crate::gateway::{Caller, FREE_BYTES_MAX, Gateway, MemoryHold, MemoryPurpose, MemoryShort};

/// How long a body may take.
struct Patience {
    /// Longest time for a client to send it, in all.
    read_max: Duration,
    /// A client may take this long, and one second more for each [`PACE_BYTES_PER_S`] that have arrived.
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
/// Memory that a body counts for, as a multiple of its bytes: as it was read, and once more as it is passed on.
const COPIES: usize = 2;
/// What is still read, and thrown away, of a body that was refused: a client that is cut off while it sends may never see
/// why. So many bytes, for so long, once the answer is on its way.
const DISCARD_BYTES_MAX: usize = 8 * 1024 * 1024;
const DISCARD_WAIT_MAX: Duration = Duration::from_secs(2);
const DISCARD_AFTER: Duration = Duration::from_millis(10);

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Larger than the bound, or announced to be.
    TooLarge,
    /// The client went away or broke the framing.
    Broken,
    /// The client sent less than the least pace.
    Slow,
    /// Requests of the key, its tenant or the replica hold as much memory as they may.
    NoMemory,
}

/// Reads a body whole, up to `bytes_max` and 30 s. One that is announced to be larger is refused unread.
///
/// Beyond 8 KiB it holds memory of the caller's shares, as it arrives and for as long as a slice of it is in use. Where there
/// is none within 5 s, no more of it is read.
///
/// # Errors
/// [`BodyError`]
pub async fn read_body(
    mut body: Body,
    bytes_max: usize,
    gateway: &Gateway,
    caller: &Caller,
) -> Result<Bytes, BodyError> {
    let memory = || gateway.memory(caller, MemoryPurpose::Request);
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
        piece = pace.next(body, needed).await?;
    }
    let whole = whole.freeze();
    Ok(match hold {
        Some(hold) => hold.keep(whole),
        None => whole,
    })
}

/// How long the client has been waited for. The gateway's own waits for memory do not count.
struct Pace<'a> {
    patience: &'a Patience,
    waited: Duration,
}

impl Pace<'_> {
    /// The next piece of a body of which so many bytes have arrived; `None` after its end.
    async fn next(&mut self, body: &mut Body, arrived: usize) -> Result<Option<Bytes>, BodyError> {
        let paid = Duration::from_secs_f64(arrived as f64 / PACE_BYTES_PER_S);
        let allowed = (self.patience.grace + paid).min(self.patience.read_max);
        let began = Instant::now();
        let frame = timeout(allowed.saturating_sub(self.waited), data(body)).await;
        self.waited += began.elapsed();
        frame.map_err(|_| BodyError::Slow)?
    }
}

/// The next bytes; trailers are nobody's.
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

/// Takes an answer of the gateway's own apart, up to `bytes_max`.
///
/// # Errors
/// [`BodyError::TooLarge`], or [`BodyError::Broken`] where it is a stream that fails.
pub async fn whole_answer(body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(BodyError::TooLarge),
        Err(_) => Err(BodyError::Broken),
    }
}

/// A finished answer with memory of the caller's shares, which it holds until its last byte has been written; up to 8 KiB
/// without. `hold` is what was taken for it before it was made.
///
/// # Errors
/// [`MemoryShort`] if more is needed and not there at once: the answer itself would be memory that waits.
pub async fn hold_answer(
    gateway: &Gateway,
    caller: &Caller,
    hold: Option<MemoryHold>,
    answer: Bytes,
) -> Result<Bytes, MemoryShort> {
    if answer.len() <= FREE_BYTES_MAX {
        return Ok(answer);
    }
    let hold = hold.unwrap_or_else(|| gateway.memory(caller, MemoryPurpose::Answer));
    let mut hold = hold.waiting(Duration::ZERO);
    hold.shrink(answer.len());
    hold.grow(answer.len()).await?;
    Ok(hold.keep(answer))
}

#[cfg(test)]
mod tests;
