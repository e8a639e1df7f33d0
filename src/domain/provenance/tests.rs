use super::*;

fn step(selector: &str, value: &str) -> LedgerStep {
    LedgerStep {
        layer: LedgerLayer::Data,
        selector: selector.to_owned(),
        explanation: "sets-the-value".to_owned(),
        original: Some(String::new()),
        value: Some(value.to_owned()),
        sealed: None,
        is_secret: false,
    }
}

fn call(tenant: u128) -> LedgerCall {
    LedgerCall {
        tenant: TenantId(Uuid::from_u128(tenant)),
        record: Ulid::from_parts(1, 2),
        principal: Uuid::from_u128(3),
        server: ServerId(Uuid::from_u128(4)),
        consent_id: None,
        orchestrator: Some("test 1.0".to_owned()),
    }
}

fn key(byte: u8) -> Key {
    Key::new([byte; KEY_BYTES])
}

fn chain(tenant: u128) -> LedgerChain {
    let page = LedgerPage { url: "https://shop.example/search?opaque-key".to_owned(), hash: [7; KEY_BYTES] };
    LedgerChain::new(call(tenant), page, &key(1))
}

fn rows(tenant: u128) -> Vec<LedgerRow> {
    let at = DateTime::from_timestamp_nanos(1_769_860_800_123_456_789);
    let mut chain = chain(tenant);
    let add = |(name, value): (&str, &str)| chain.add(&step(name, value), LedgerPhase::Recorded, at);
    let mut rows = [("q", "boots"), ("size", "44"), ("size", "44")].map(add).to_vec();
    for (layer, phase) in
        [(LedgerLayer::Submit, LedgerPhase::Recorded), (LedgerLayer::Outcome, LedgerPhase::Committed)]
    {
        rows.push(chain.add(&LedgerStep { layer, ..step("#f", "POST") }, phase, at));
    }
    rows
}

fn holds(rows: &[LedgerRow], tenant: u128) -> bool {
    let LedgerCall { tenant, record, .. } = call(tenant);
    is_intact(rows, record, tenant, &[key(9), key(1)])
}

#[test]
fn a_chain_shows_whatever_was_done_to_it() {
    let whole = rows(1);
    assert!(holds(&whole, 1) && has_end(&whole));
    let unended = whole.get(..4).unwrap();
    assert!(holds(unended, 1) && !has_end(unended), "its end is the outcome, which may be missing");
    for left in 0..4 {
        assert!(!holds(whole.get(..left).unwrap(), 1), "{left} rows: the submission is missing");
    }
    assert!(!holds(&whole, 2), "it is another tenant's");
    assert!(!holds(whole.get(1..).unwrap(), 1), "the first is missing");
    assert!(!is_intact(&whole, Ulid::from_parts(1, 3), call(1).tenant, &[key(1)]), "another call's");
    assert!(!is_intact(&whole, call(1).record, call(1).tenant, &[key(2)]), "who has no key makes no chain");
    let changes: [fn(&mut LedgerRow); 15] = [
        |row| row.principal = Uuid::nil(),
        |row| row.server = ServerId(Uuid::nil()),
        |row| row.at += chrono::TimeDelta::microseconds(1),
        |row| row.phase = LedgerPhase::Committed,
        |row| row.layer = LedgerLayer::Submit,
        |row| row.consent_id = Some(Uuid::nil()),
        |row| row.page_url.push('x'),
        |row| row.page_hash = [8; KEY_BYTES],
        |row| row.selector.push('x'),
        |row| row.explanation.push('x'),
        |row| row.original_digest = None,
        |row| row.new_digest = None,
        |row| row.new_preview = None,
        |row| row.orchestrator = None,
        |row| row.hash = [0; KEY_BYTES],
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut rows = whole.clone();
        change(rows.get_mut(1).unwrap());
        assert!(!holds(&rows, 1), "change {number}");
    }
    let mut swapped = whole;
    swapped.swap(1, 2);
    assert!(!holds(&swapped, 1));
}

#[test]
fn a_call_that_has_ended_has_the_end_of_its_ledger() {
    let whole = rows(1);
    let of = |rows: &[LedgerRow], status, has_ledger| {
        let LedgerCall { tenant, record, .. } = call(1);
        is_whole(rows, (record, LedgerRecord::of(status, has_ledger)), tenant, &[key(1)])
    };
    for status in ["success", "upstream_error", "error", "cancelled"] {
        assert_eq!(of(&whole, status, Some(true)), Some(true), "{status}");
        assert_eq!(of(&whole[..4], status, Some(true)), Some(false), "{status}: the outcome is missing");
        // without rows, the record alone says that they are gone
        assert_eq!(of(&[], status, Some(true)), Some(false), "{status}");
    }
    for status in ["pending", "unknown", "blocked"] {
        assert_eq!(of(&whole[..4], status, None), Some(true), "{status}");
    }
    for has_ledger in [Some(false), None] {
        assert_eq!(of(&[], "success", has_ledger), None);
    }
}

#[test]
fn digests_are_of_one_tenant_and_one_value() {
    let digests = |tenant| rows(tenant).iter().map(|row| row.new_digest.unwrap()).collect::<Vec<_>>();
    let (ours, theirs) = (digests(1), digests(2));
    assert_eq!(ours[1], ours[2]);
    assert_ne!(ours[0], ours[1]);
    assert_ne!(ours[1], theirs[1], "equal values of tenants do not show");
    let plain: [u8; 32] = <sha2::Sha256 as sha2::Digest>::digest(b"44").into();
    assert_ne!(ours[1], plain);
}

#[test]
fn rows_of_secrets_hold_nothing_to_try_values_with() {
    let mut chain = chain(1);
    let mut row = |step: &LedgerStep| chain.add(step, LedgerPhase::Recorded, DateTime::UNIX_EPOCH);
    let secret = row(&LedgerStep { is_secret: true, ..step("pin", "1234") });
    assert_eq!((secret.original_digest, secret.new_digest, secret.new_preview), (None, None, None));
    let sent =
        |sealed: Option<&str>| LedgerStep { sealed: sealed.map(str::to_owned), ..step("#f", "POST /send") };
    let digests = [None, Some("a"), Some("b")].map(|sealed| row(&sent(sealed)).new_digest);
    assert!(digests[0] != digests[1] && digests[1] != digests[2], "the digest covers what is sealed");
}

#[test]
fn the_query_of_a_page_is_not_kept() {
    assert_eq!(rows(1)[0].page_url, "https://shop.example/search?[redacted]");
}

#[test]
fn previews_show_no_secret() {
    let at = DateTime::UNIX_EPOCH;
    let mut chain = chain(1);
    let mut shown = |step: &LedgerStep| chain.add(step, LedgerPhase::Recorded, at).new_preview;
    assert_eq!(shown(&step("q", "boots")).as_deref(), Some("boots"));
    let long = shown(&step("q", &"é".repeat(1000))).unwrap();
    assert!(long.len() <= PREVIEW_BYTES_MAX && long.starts_with('é'));
    for (name, value) in [("password", "hunter2"), ("api_key", "abc"), ("note", "card 4111 1111 1111 1111")] {
        let preview = shown(&step(name, value)).unwrap();
        assert!(preview.contains(redact::MASK) && !preview.contains(value), "{name}: {preview}");
    }
    let sealed = LedgerStep { sealed: Some("sha256:ab".to_owned()), ..step("q", "POST /send") };
    assert_eq!(shown(&sealed).as_deref(), Some("POST /send"));
    let debug = format!("{:?}", step("pin", "1234"));
    assert!(!debug.contains("1234"), "{debug}");
}
