use proptest::prelude::*;

use super::too_many;
use crate::gateway::tenants::live::bucket::{Bucket, MINUTE_NS, RateShare, SECOND_NS};

/// Returns how many of so many attempts at one moment pass.
fn burst(bucket: &Bucket, share: RateShare, now_ns: u64, attempts: usize) -> usize {
    (0..attempts).filter(|_| bucket.take(share, now_ns).is_ok()).count()
}

#[test]
fn shares() {
    for (limit, replicas, tokens, interval_ns) in [
        (60, 1, 60, SECOND_NS),
        (60, 2, 30, 2 * SECOND_NS),
        (1, 1, 1, MINUTE_NS),
        // every replica lets one attempt through at once, but tokens return at the limit's pace
        (1, 3, 1, 3 * MINUTE_NS),
        (10, 3, 4, 18 * SECOND_NS),
        (7, 1, 7, MINUTE_NS.div_ceil(7)),
        (u32::MAX, 1, u64::from(u32::MAX), 14),
        // a limit of zero and zero replicas count as one each
        (0, 0, 1, MINUTE_NS),
        (1, u32::MAX, 1, 1_000_000 * MINUTE_NS),
    ] {
        let share = RateShare::of(limit, replicas);
        assert_eq!((share.tokens, share.interval_ns), (tokens, interval_ns), "{limit} among {replicas}");
    }
}

#[test]
fn a_minute_at_once_then_an_even_flow() {
    let (bucket, share) = (Bucket::default(), RateShare::of(6, 1));
    let start = MINUTE_NS;
    assert_eq!(burst(&bucket, share, start, 100), 6);
    assert_eq!(bucket.take(share, start), Err(10 * SECOND_NS));
    // a refused attempt took no token, and the returned wait is exact to the nanosecond
    assert_eq!(bucket.take(share, start + 10 * SECOND_NS - 1), Err(1));
    assert_eq!(bucket.take(share, start + 10 * SECOND_NS), Ok(()));
    assert_eq!(burst(&bucket, share, start + 30 * SECOND_NS, 100), 2);
    assert_eq!(burst(&bucket, share, start + 20 * MINUTE_NS, 100), 6);
}

#[test]
fn another_limit_holds_at_once() {
    let (bucket, start) = (Bucket::default(), MINUTE_NS);
    assert_eq!(burst(&bucket, RateShare::of(1, 3), start, 9), 1);
    // 180 s were owed; under the new limit at most its whole minute is
    assert_eq!(bucket.take(RateShare::of(1, 1), start), Err(MINUTE_NS));
    assert_eq!(burst(&bucket, RateShare::of(600, 1), start + MINUTE_NS, 900), 600);
    assert_eq!(bucket.take(RateShare::of(1, 1), start + MINUTE_NS), Err(MINUTE_NS));
}

#[test]
fn what_is_given_back_can_be_taken_again() {
    let (bucket, share, now) = (Bucket::default(), RateShare::of(2, 1), MINUTE_NS);
    assert_eq!(burst(&bucket, share, now, 5), 2);
    bucket.give_back(share);
    assert_eq!(burst(&bucket, share, now, 5), 1);
    let fresh = Bucket::default();
    fresh.give_back(share);
    assert_eq!(burst(&fresh, share, now, 5), 2);
}

#[test]
fn threads_share_one_bucket() {
    let (bucket, share) = (Bucket::default(), RateShare::of(1000, 1));
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| burst(&bucket, share, MINUTE_NS, 1000))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 1000);
}

#[test]
fn the_hint_is_in_whole_seconds_and_never_too_short() {
    for (wait_ns, seconds) in [(1, 1), (SECOND_NS, 1), (SECOND_NS + 1, 2), (MINUTE_NS, 60)] {
        let refusal = too_many("key", 60, wait_ns);
        assert_eq!(refusal.retry_after_s, Some(seconds));
        assert!(refusal.message.ends_with(&format!("try again in {seconds} s")), "{}", refusal.message);
    }
}

proptest! {
    /// For any sequence, a minute sees at most one bucket and its refill. The whole sequence sees at most the limit plus one
    /// bucket. With several replicas, each may admit one call more.
    #[test]
    fn no_minute_sees_more(
        limit in 1_u32..300,
        replicas in 1_u32..5,
        steps in prop::collection::vec((0_u64..20 * SECOND_NS, 1_usize..40, 0_usize..5), 1..60),
    ) {
        let share = RateShare::of(limit, replicas);
        let buckets: Vec<Bucket> = (0..replicas).map(|_| Bucket::default()).collect();
        let mut now = MINUTE_NS;
        let mut passed = Vec::new();
        for (pause, attempts, at) in steps {
            now += pause;
            let bucket = &buckets[at % buckets.len()];
            passed.extend(std::iter::repeat_n(now, burst(bucket, share, now, attempts)));
        }
        let spare = u64::from(replicas);
        for (from, start) in passed.iter().enumerate() {
            let minute = passed[from..].iter().take_while(|at| **at < start + MINUTE_NS).count() as u64;
            prop_assert!(minute <= 2 * u64::from(limit) + 2 * spare, "{minute} of {limit} in a minute");
            let elapsed = now - start;
            let flowed = elapsed.div_ceil(share.interval_ns) * spare;
            prop_assert!((passed.len() - from) as u64 <= u64::from(limit) + spare + flowed);
        }
        // on one replica the bound is exact
        if replicas == 1 {
            for (from, start) in passed.iter().enumerate() {
                let minute = passed[from..].iter().take_while(|at| **at < start + MINUTE_NS).count() as u64;
                prop_assert!(minute <= 2 * u64::from(limit));
            }
        }
    }
}
