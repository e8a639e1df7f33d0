use std::convert::Infallible;
use std::sync::Arc;

use futures_util::{StreamExt, poll, stream};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::*;
use crate::gateway::MemoryLimits;
use crate::upstream::{Egress, Pool};

const KIB: usize = 1024;
const BYTES_MAX: usize = 4 * 1024 * KIB;
/// A tenth of the time that clients get.
const TENTH: Patience = Patience {
    read_max: Duration::from_millis(3000),
    grace: Duration::from_millis(500),
    memory_wait_max: Duration::from_millis(500),
};

/// Returns a pool in which a request may hold 1 MiB, so that a body may have half of that.
fn pool() -> Pool {
    let limits = MemoryLimits { replica_bytes_max: 64 * 1024 * KIB, tenant_bytes_max: 2 * 1024 * KIB };
    Pool::new(Arc::new(Egress::new(vec![], vec![])), None).with_memory(limits)
}

fn hold(pool: &Pool) -> MemoryHold {
    pool.memory(Uuid::nil(), None, MemoryPurpose::Request)
}

fn held(pool: &Pool) -> usize {
    pool.vitals().memory.request_bytes
}

/// Returns a body of unknown length, and the sender of its pieces.
fn coming() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(64);
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece: Bytes| (Ok::<_, Infallible>(piece), receiver))
    });
    (sender, Body::from_stream(pieces.boxed()))
}

fn piece(bytes: usize) -> Bytes {
    vec![b'x'; bytes].into()
}

#[tokio::test]
async fn other_tasks_run_while_a_large_body_is_read() {
    let pool = pool();
    let (sender, mut body) = coming();
    for bytes in [TURN_BYTES, 1] {
        sender.try_send(piece(bytes)).unwrap();
    }
    drop(sender);
    let mut reading = Box::pin(read(&mut body, BYTES_MAX, || hold(&pool), &TENTH));
    assert!(poll!(&mut reading).is_pending(), "all of it is there, and yet the reader makes way");
    assert_eq!(reading.await.unwrap().len(), TURN_BYTES + 1);
}

#[tokio::test]
async fn small_bodies_are_as_they_came_and_count_nowhere() {
    let pool = pool();
    let none = || -> MemoryHold { panic!("nothing counts") };
    let came = piece(FREE_BYTES_MAX);
    let body = read(&mut Body::from(came.clone()), BYTES_MAX, none, &TENTH).await.unwrap();
    assert_eq!(body.as_ptr(), came.as_ptr());
    assert_eq!(read(&mut Body::empty(), BYTES_MAX, none, &TENTH).await.unwrap(), "");
    let (sender, mut body) = coming();
    sender.try_send(piece(FREE_BYTES_MAX / 2)).unwrap();
    sender.try_send(piece(FREE_BYTES_MAX / 2)).unwrap();
    drop(sender);
    assert_eq!(read(&mut body, BYTES_MAX, none, &TENTH).await.unwrap().len(), FREE_BYTES_MAX);
    assert_eq!(held(&pool), 0);
}

#[tokio::test]
async fn a_body_counts_as_it_arrives_and_until_nobody_uses_it() {
    let pool = pool();
    let (sender, mut body) = coming();
    let mut reading = Box::pin(read(&mut body, BYTES_MAX, || hold(&pool), &TENTH));
    let mut sent = 0;
    for bytes in [FREE_BYTES_MAX, 1, 32 * KIB, 256 * KIB] {
        sender.try_send(piece(bytes)).unwrap();
        sent += bytes;
        assert!(poll!(&mut reading).is_pending());
        let least = if sent <= FREE_BYTES_MAX { 0 } else { COPIES * sent };
        assert!((least..=least + least / 7 + 8 * KIB).contains(&held(&pool)), "{} of {sent}", held(&pool));
    }
    drop(sender);
    let body = reading.await.unwrap();
    let slice = body.slice(1..2);
    drop(body);
    assert!(held(&pool) > 0);
    drop(slice);
    assert_eq!(held(&pool), 0);
}

#[tokio::test]
async fn without_memory_a_body_is_refused_in_time() {
    let pool = pool();
    let mut other = hold(&pool);
    other.grow(BYTES_MAX).await.unwrap();
    let began = Instant::now();
    let refused = read(&mut Body::from(piece(100 * KIB)), BYTES_MAX, || hold(&pool), &TENTH).await;
    assert_eq!(refused, Err(BodyError::NoMemory));
    assert!(began.elapsed() >= TENTH.memory_wait_max);
    drop(other);
    read(&mut Body::from(piece(100 * KIB)), BYTES_MAX, || hold(&pool), &TENTH).await.unwrap();
}

#[tokio::test]
async fn bodies_have_a_least_pace_and_a_longest_time() {
    let pool = pool();
    // bytes sent every 100 ms, and the shortest time until the body is refused, in milliseconds
    for (bytes, least_ms) in [(0, 500), (1, 500), (KIB, 900), (20 * KIB, 3000)] {
        let (sender, mut body) = coming();
        let sends = tokio::spawn(async move {
            while bytes > 0 && sender.send(piece(bytes)).await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
            sender.closed().await;
        });
        let began = Instant::now();
        let read = read(&mut body, BYTES_MAX, || hold(&pool), &TENTH).await;
        assert_eq!(read, Err(BodyError::Slow), "{bytes}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(least_ms), "{bytes} bytes each time: {took:?}");
        assert!(bytes > KIB || took < TENTH.read_max, "{bytes} bytes each time: {took:?}");
        drop(body);
        sends.await.unwrap();
    }
    assert_eq!(held(&pool), 0);
}

#[tokio::test]
async fn too_large_bodies_are_refused_before_they_are_read() {
    let pool = pool();
    let mut announced = Body::from(piece(101));
    assert_eq!(read(&mut announced, 100, || hold(&pool), &TENTH).await, Err(BodyError::TooLarge));
    assert_eq!(announced.collect().await.unwrap().to_bytes().len(), 101, "nothing was taken");
    let (sender, mut body) = coming();
    sender.try_send(piece(100)).unwrap();
    sender.try_send(piece(1)).unwrap();
    assert_eq!(read(&mut body, 100, || hold(&pool), &TENTH).await, Err(BodyError::TooLarge));
}
