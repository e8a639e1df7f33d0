use uuid::Uuid;

use super::*;

const MAX: usize = 8;

fn tenant(n: u128) -> TenantId {
    TenantId(Uuid::from_u128(n))
}

fn pins(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{n:06}")).collect()
}

/// Runs the queue for tenants with so many definitions each, `is_bad` ones among them; returns the batches sent.
fn play(
    turns: &mut EmbedTurns,
    now: &mut Instant,
    left: &mut BTreeMap<TenantId, Vec<String>>,
    is_bad: impl Fn(TenantId, &str) -> Option<BatchEnd>,
    count: usize,
) -> Vec<(TenantId, Vec<String>)> {
    let mut sent = Vec::new();
    while sent.len() < count {
        let Some(tenant) = turns.next(*now) else {
            let Some(at) = turns.next_at() else { break };
            *now = at;
            continue;
        };
        let batch = turns.batch(tenant, *now);
        let of = left.entry(tenant).or_default();
        let wanted = of.iter().filter(|pin| **pin > batch.after && !batch.except.contains(pin));
        let found: Vec<String> = wanted.take(batch.limit).cloned().collect();
        if found.is_empty() {
            turns.nothing(tenant, *now);
            continue;
        }
        let ended = found.iter().find_map(|pin| is_bad(tenant, pin)).unwrap_or(BatchEnd::Well);
        if ended == BatchEnd::Well {
            of.retain(|pin| !found.contains(pin));
        }
        turns.ended(tenant, &found, ended, *now);
        sent.push((tenant, found));
    }
    sent
}

#[test]
fn tenants_take_turns_also_new_ones() {
    let (mut now, mut turns) = (Instant::now(), EmbedTurns::new(MAX));
    let mut left = BTreeMap::from([(tenant(1), pins(0..1000)), (tenant(2), pins(0..1000))]);
    turns.add(tenant(1), now);
    turns.add(tenant(2), now);
    let whose = |sent: Vec<(TenantId, Vec<String>)>| -> Vec<TenantId> {
        sent.into_iter().map(|(tenant, _)| tenant).collect()
    };
    let well = |_, _: &str| None;
    assert_eq!(whose(play(&mut turns, &mut now, &mut left, well, 3)), [1, 2, 1].map(tenant));
    left.insert(tenant(3), pins(0..1));
    turns.add(tenant(3), now);
    assert_eq!(whose(play(&mut turns, &mut now, &mut left, well, 4)), [2, 3, 1, 2].map(tenant));
}

#[test]
fn what_the_service_fails_at_is_found_and_set_aside() {
    for bad in [BatchEnd::Failed, BatchEnd::Refused] {
        let start = Instant::now();
        let (mut now, mut turns) = (start, EmbedTurns::new(MAX));
        let mut left = BTreeMap::from([(tenant(1), pins(0..20)), (tenant(2), pins(0..20))]);
        turns.add(tenant(1), now);
        turns.add(tenant(2), now);
        let is_bad = |whose, pin: &str| (whose == tenant(1) && pin.ends_with('3')).then_some(bad);
        play(&mut turns, &mut now, &mut left, is_bad, 40);
        assert_eq!(left[&tenant(1)], ["000003", "000013"], "{bad:?}: all others were sent");
        assert!(left[&tenant(2)].is_empty());
        // again and again, but less and less often: within a day at most once an hour, plus some at first
        let sent = play(&mut turns, &mut now, &mut left, is_bad, 40);
        let hours = now.duration_since(start).as_secs_f64() / 3600.0;
        assert!(sent.len() == 40 && hours > 4.0, "{bad:?}: 40 requests in {hours} hours");
        // the service accepts the definitions from now on
        now += REFUSED_FOR;
        play(&mut turns, &mut now, &mut left, |_, _| None, 40);
        assert!(left.values().all(Vec::is_empty) && turns.tenants.is_empty(), "{bad:?}: {turns:?}");
    }
}

#[test]
fn a_service_that_fails_is_left_alone() {
    let start = Instant::now();
    let (mut now, mut turns) = (start, EmbedTurns::new(MAX));
    let mut left = BTreeMap::from([(tenant(1), pins(0..1000))]);
    turns.add(tenant(1), now);
    let sent = play(&mut turns, &mut now, &mut left, |_, _| Some(BatchEnd::Failed), 40);
    assert!(now.duration_since(start) > PAUSE_MAX * 10, "{:?}", now.duration_since(start));
    // a change does not make the next batch earlier
    turns.add(tenant(1), now);
    assert!(turns.next(now).is_none() && turns.next_at() > Some(now), "{sent:?}");
    // once the service is back, all are sent soon
    let back = now;
    play(&mut turns, &mut now, &mut left, |_, _| None, 1000);
    assert!(left[&tenant(1)].is_empty());
    assert!(now.duration_since(back) <= REFUSED_FOR, "{:?}", now.duration_since(back));
}

#[test]
fn what_is_remembered_is_bounded_and_nobody_is_forgotten() {
    let (mut now, mut turns) = (Instant::now(), EmbedTurns::new(MAX));
    let all = ASIDE_MAX + 200;
    let mut left = BTreeMap::from([(tenant(1), pins(0..all + 1))]);
    turns.add(tenant(1), now);
    let last = pins(all..all + 1).remove(0);
    let is_bad = |_, pin: &str| (pin != last).then_some(BatchEnd::Refused);
    let start = now;
    while left[&tenant(1)].contains(&last) {
        play(&mut turns, &mut now, &mut left, is_bad, 100);
        assert!(turns.tenants.values().all(|standing| standing.aside.len() <= ASIDE_MAX));
        assert!(now.duration_since(start) < REFUSED_FOR * 4, "the last one is never sent");
    }
    assert!(now.duration_since(start) >= REFUSED_FOR, "as many refused ones an hour");
}

#[test]
fn a_tenants_trouble_is_one_line() {
    let (mut now, mut turns) = (Instant::now(), EmbedTurns::new(MAX));
    turns.add(tenant(1), now);
    for pin in pins(0..200) {
        turns.ended(tenant(1), &[pin], BatchEnd::Refused, now);
        assert_eq!(turns.news(tenant(1), now), None, "there is more to send");
    }
    turns.nothing(tenant(1), now);
    assert_eq!(turns.news(tenant(1), now), Some(200));
    turns.ended(tenant(1), &pins(200..201), BatchEnd::Failed, now);
    assert_eq!(turns.news(tenant(1), now), None, "not again so soon");
    now += TELL;
    turns.nothing(tenant(1), now);
    assert_eq!(turns.news(tenant(1), now), Some(1));
}
