use bytes::Bytes;
use futures_util::poll;

use super::*;

const MIB: usize = 1024 * 1024;
const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

/// Creates shares in which a tenant has this many MiB, and a key half of that.
fn shares(tenant_mib: usize) -> TenantShares {
    TenantShares::new(MemoryLimits { replica_bytes_max: 1024 * MIB, tenant_bytes_max: tenant_mib * MIB })
}

fn answer(shares: &TenantShares, key: Option<Uuid>) -> MemoryHold {
    shares.memory(ONE, key, MemoryPurpose::Answer)
}

fn request(shares: &TenantShares, key: Option<Uuid>) -> MemoryHold {
    shares.memory(ONE, key, MemoryPurpose::Request)
}

fn answer_bytes(shares: &TenantShares) -> usize {
    shares.memory_vitals().answer_bytes
}

#[tokio::test]
async fn small_answers_touch_no_share() {
    let shares = shares(1);
    let mut large = answer(&shares, None);
    large.grow(MIB).await.unwrap();
    let mut small = answer(&shares, None);
    small.grow(FREE_BYTES_MAX).await.unwrap();
    assert!(!small.is_held());
    assert!(small.keep(Bytes::from_static(b"x")).starts_with(b"x"));
}

#[tokio::test]
async fn memory_is_free_again_when_the_last_slice_is_gone() {
    let shares = shares(4);
    let mut hold = answer(&shares, Some(ONE));
    for bytes in [FREE_BYTES_MAX + 1, MIB / 2, MIB, 3 * MIB / 2] {
        hold.grow(bytes).await.unwrap();
        let held = answer_bytes(&shares);
        assert!(held >= bytes && held <= bytes + bytes / 8 + FREE_BYTES_MAX, "{held} for {bytes}");
    }
    let before = answer_bytes(&shares);
    let slice = hold.keep(Bytes::from(vec![b'x'; 3 * MIB / 2])).slice(7..8);
    assert_eq!((&*slice, answer_bytes(&shares)), (&b"x"[..], before));
    drop(slice);
    assert_eq!(answer_bytes(&shares), 0);
}

#[tokio::test]
async fn what_turned_out_smaller_gives_the_rest_back() {
    let shares = shares(4);
    let mut hold = answer(&shares, Some(ONE));
    hold.grow(2 * MIB).await.unwrap();
    hold.shrink(MIB);
    assert_eq!(answer_bytes(&shares), MIB);
    hold.shrink(2 * MIB);
    assert_eq!(answer_bytes(&shares), MIB);
    hold.shrink(FREE_BYTES_MAX);
    assert_eq!(answer_bytes(&shares), 0);
    hold.grow(2 * MIB).await.unwrap();
    assert_eq!(answer_bytes(&shares), 2 * MIB);
}

#[tokio::test]
async fn an_answer_larger_than_the_share_waits_for_all_of_it() {
    let shares = shares(2);
    let (mut first, mut second) = (answer(&shares, None), answer(&shares, None));
    first.grow(MIB).await.unwrap();
    let mut grown = std::pin::pin!(second.grow(100 * MIB));
    assert!(poll!(&mut grown).is_pending());
    drop(first);
    grown.await.unwrap();
}

#[tokio::test]
async fn holders_that_grow_never_wait_for_each_other() {
    for purpose in [MemoryPurpose::Answer, MemoryPurpose::Request] {
        let shares = shares(6);
        let step = if purpose == MemoryPurpose::Answer { 2 * MIB } else { MIB };
        let mut holds = [0; 3].map(|_| shares.memory(ONE, None, purpose));
        for hold in &mut holds {
            hold.grow(step).await.unwrap();
        }
        let [mut first, mut second, _third] = holds;
        // nothing is left: one goes on beyond the share, the other waits until that is done
        first.grow(100 * MIB).await.unwrap();
        let mut grown = std::pin::pin!(second.grow(2 * step));
        assert!(poll!(&mut grown).is_pending());
        let first = first.keep(Bytes::from_static(b"first"));
        assert!(poll!(&mut grown).is_pending(), "it is still in use");
        drop(first);
        grown.await.unwrap();
    }
}

#[tokio::test]
async fn requests_leave_half_of_a_share_to_answers() {
    let shares = shares(4);
    let mut body = request(&shares, None);
    body.grow(2 * MIB).await.unwrap();
    assert_eq!(shares.memory_vitals().request_bytes, 2 * MIB);
    let mut more = request(&shares, None);
    assert!(poll!(std::pin::pin!(more.grow(MIB))).is_pending());
    let mut first = answer(&shares, None);
    first.grow(2 * MIB).await.unwrap();
    assert!(poll!(std::pin::pin!(answer(&shares, None).grow(MIB))).is_pending());
}

#[tokio::test]
async fn one_key_leaves_half_of_its_tenants_share_to_the_others() {
    let shares = shares(4);
    let mut flood = answer(&shares, Some(ONE));
    flood.grow(2 * MIB).await.unwrap();
    assert!(poll!(std::pin::pin!(answer(&shares, Some(ONE)).grow(MIB))).is_pending());
    answer(&shares, Some(OTHER)).grow(2 * MIB).await.unwrap();
    drop(flood);
    answer(&shares, Some(ONE)).grow(2 * MIB).await.unwrap();
}

#[tokio::test]
async fn what_grows_beyond_a_keys_share_takes_nothing_from_other_keys() {
    let shares = shares(4);
    let (mut first, mut second) = (request(&shares, Some(ONE)), request(&shares, Some(ONE)));
    first.grow(MIB / 2).await.unwrap();
    second.grow(MIB / 2).await.unwrap();
    first.grow(100 * MIB).await.unwrap();
    assert!(poll!(std::pin::pin!(second.grow(MIB))).is_pending());
    request(&shares, Some(OTHER)).grow(MIB).await.unwrap();
    // it counts for the replica all the same
    assert!(shares.memory_vitals().request_bytes > 100 * MIB);
}

#[tokio::test]
async fn one_that_is_larger_than_its_keys_share_takes_nothing_from_other_keys() {
    for (purpose, of_each_key) in [(MemoryPurpose::Request, MIB), (MemoryPurpose::Answer, 2 * MIB)] {
        let shares = shares(4);
        let mut large = shares.memory(ONE, Some(ONE), purpose);
        large.grow(of_each_key / 2).await.unwrap();
        large.grow(100 * MIB).await.unwrap();
        let mut other = shares.memory(ONE, Some(OTHER), purpose).waiting(Duration::ZERO);
        other.grow(of_each_key).await.unwrap();
        drop(large);
        drop(other);
        assert_eq!((shares.memory_vitals().request_bytes, answer_bytes(&shares)), (0, 0));
    }
}

#[tokio::test]
async fn one_tenant_leaves_three_quarters_of_the_replica_to_the_others() {
    let limits = MemoryLimits { replica_bytes_max: 8 * MIB, tenant_bytes_max: 100 * MIB };
    let shares = TenantShares::new(limits);
    let mut flood = answer(&shares, None);
    flood.grow(100 * MIB).await.unwrap();
    // an answer that is larger than its tenant's share counts whole against the replica
    assert_eq!(answer_bytes(&shares), 8 * MIB);
    flood.shrink(2 * MIB);
    assert!(poll!(std::pin::pin!(answer(&shares, None).grow(MIB))).is_pending());
    let mut others = Vec::new();
    for tenant in 2..5 {
        let mut other = shares.memory(Uuid::from_u128(tenant), None, MemoryPurpose::Answer);
        other.grow(2 * MIB).await.unwrap();
        others.push(other);
    }
    let mut last = shares.memory(Uuid::from_u128(9), None, MemoryPurpose::Answer);
    let mut grown = std::pin::pin!(last.grow(MIB));
    assert!(poll!(&mut grown).is_pending());
    drop(flood);
    grown.await.unwrap();
}

#[tokio::test]
async fn nobody_waits_for_ever_and_refusals_are_counted() {
    let shares = shares(1);
    let mut first = answer(&shares, None);
    first.grow(MIB).await.unwrap();
    let wait = Duration::from_millis(20);
    let mut hurried = Share { memory_wait_max: wait, ..shares.of(ONE) }.answer(None);
    assert_eq!(hurried.grow(MIB).await, Err(MemoryShort));
    assert_eq!(shares.memory_vitals().refused_answers, 1);
    request(&shares, None).waiting(wait).grow(MIB).await.unwrap_err();
    assert_eq!(shares.memory_vitals().refused_requests, 1);
}

#[tokio::test]
async fn tenants_share_nothing_and_upstreams_little() {
    let shares = shares(1);
    let (one, same, other) = (shares.of(ONE), shares.of(ONE), shares.of(OTHER));
    let _held = (one.lookup().await, one.lookup().await);
    let third = poll!(std::pin::pin!(one.lookup()));
    assert!(third.is_pending(), "an upstream's own look-ups have a bound");
    assert!(same.lookup().await.is_some());
    let mut hold = one.answer(None);
    hold.grow(MIB).await.unwrap();
    other.answer(None).grow(MIB).await.unwrap();
    assert!(poll!(std::pin::pin!(same.answer(None).grow(MIB))).is_pending());
    drop((one, same));
    assert_eq!(shares.tenants.lock().len(), 2, "who holds memory keeps the share");
    drop(other);
    shares.of(Uuid::from_u128(3));
    assert!(shares.tenants.lock().len() < 4);
}
