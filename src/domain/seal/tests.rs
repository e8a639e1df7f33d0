use proptest::prelude::*;

use super::*;

fn tenant(n: u128) -> TenantId {
    TenantId(Uuid::from_u128(n))
}

fn server(n: u128) -> ServerId {
    ServerId(Uuid::from_u128(n))
}

#[test]
fn an_envelope_opens_in_its_own_place_only() {
    let key = Key::new([7; 32]);
    let [a, b] = ["https://a.example/", "http://a.example/"].map(|url| Origin::of(url).unwrap());
    let [x, y] = ["https://a.example/x", "https://a.example/y"].map(|url| ServerPlace::of(url).unwrap());
    let places = [
        Place::Canary,
        Place::DataKey { tenant: tenant(1), key: Uuid::from_u128(1) },
        Place::DataKey { tenant: tenant(2), key: Uuid::from_u128(1) },
        Place::DataKey { tenant: tenant(1), key: Uuid::from_u128(2) },
        Place::ServerSecret { tenant: tenant(1), server: server(1), origin: &a },
        Place::ServerSecret { tenant: tenant(2), server: server(1), origin: &a },
        Place::ServerSecret { tenant: tenant(1), server: server(2), origin: &a },
        Place::ServerSecret { tenant: tenant(1), server: server(1), origin: &b },
        Place::ServerSecretAt { tenant: tenant(1), server: server(1), place: &x },
        Place::ServerSecretAt { tenant: tenant(2), server: server(1), place: &x },
        Place::ServerSecretAt { tenant: tenant(1), server: server(2), place: &x },
        Place::ServerSecretAt { tenant: tenant(1), server: server(1), place: &y },
        Place::WebDraft {
            tenant: tenant(1),
            principal: Uuid::from_u128(1),
            server: server(1),
            form: &[1; 32],
        },
        Place::WebDraft {
            tenant: tenant(2),
            principal: Uuid::from_u128(1),
            server: server(1),
            form: &[1; 32],
        },
        Place::WebDraft {
            tenant: tenant(1),
            principal: Uuid::from_u128(2),
            server: server(1),
            form: &[1; 32],
        },
        Place::WebDraft {
            tenant: tenant(1),
            principal: Uuid::from_u128(1),
            server: server(2),
            form: &[1; 32],
        },
        Place::WebDraft {
            tenant: tenant(1),
            principal: Uuid::from_u128(1),
            server: server(1),
            form: &[2; 32],
        },
        Place::WebCookies { tenant: tenant(1), principal: Uuid::from_u128(1), server: server(1) },
        Place::WebCookies { tenant: tenant(2), principal: Uuid::from_u128(1), server: server(1) },
        Place::WebCookies { tenant: tenant(1), principal: Uuid::from_u128(2), server: server(1) },
        Place::WebCookies { tenant: tenant(1), principal: Uuid::from_u128(1), server: server(2) },
        Place::CachedText { tenant: tenant(1), principal: Uuid::from_u128(1), hash: &[1; 32] },
        Place::CachedText { tenant: tenant(2), principal: Uuid::from_u128(1), hash: &[1; 32] },
        Place::CachedText { tenant: tenant(1), principal: Uuid::from_u128(2), hash: &[1; 32] },
        Place::CachedText { tenant: tenant(1), principal: Uuid::from_u128(1), hash: &[2; 32] },
        Place::WebhookSecret { tenant: tenant(1), url: "https://a.example/x" },
        Place::WebhookSecret { tenant: tenant(2), url: "https://a.example/x" },
        Place::WebhookSecret { tenant: tenant(1), url: "https://a.example/y" },
        Place::WebSession { tenant: tenant(1), session: &[1; 32] },
        Place::WebSession { tenant: tenant(2), session: &[1; 32] },
        Place::WebSession { tenant: tenant(1), session: &[2; 32] },
        Place::WebLogin { state: &[1; 32] },
        Place::WebLogin { state: &[2; 32] },
        Place::ServerOauth { tenant: tenant(1), server: server(1), endpoint: "https://a/t" },
        Place::ServerOauth { tenant: tenant(1), server: server(1), endpoint: "https://b/t" },
        Place::ConnectFlow { tenant: tenant(1), flow: Uuid::from_u128(1), part: "verifier" },
        Place::ConnectFlow { tenant: tenant(1), flow: Uuid::from_u128(1), part: "tokens" },
        Place::ServerToken {
            principal: Uuid::from_u128(1),
            part: "access",
            tenant: tenant(1),
            server: server(1),
            client: Uuid::from_u128(1),
            place: "https://a/mcp",
        },
        Place::ServerToken {
            principal: Uuid::from_u128(1),
            part: "refresh",
            tenant: tenant(1),
            server: server(1),
            client: Uuid::from_u128(1),
            place: "https://a/mcp",
        },
        Place::ServerToken {
            principal: Uuid::nil(),
            part: "access",
            tenant: tenant(1),
            server: server(1),
            client: Uuid::from_u128(1),
            place: "https://a/t",
        },
        Place::ServerToken {
            principal: Uuid::nil(),
            part: "access",
            tenant: tenant(1),
            server: server(1),
            client: Uuid::from_u128(1),
            place: "https://b/t",
        },
        Place::OfStream { tenant: tenant(1) },
        Place::OfStream { tenant: tenant(2) },
        Place::ClientRequest { tenant: tenant(1), principal: Uuid::from_u128(1), session: &[1; 32] },
        Place::ClientRequest { tenant: tenant(2), principal: Uuid::from_u128(1), session: &[1; 32] },
        Place::ClientRequest { tenant: tenant(1), principal: Uuid::from_u128(2), session: &[1; 32] },
        Place::ClientRequest { tenant: tenant(1), principal: Uuid::from_u128(1), session: &[2; 32] },
        Place::RequestState { tenant: tenant(1), principal: Uuid::from_u128(1), digest: &[1; 32] },
        Place::RequestState { tenant: tenant(2), principal: Uuid::from_u128(1), digest: &[1; 32] },
        Place::RequestState { tenant: tenant(1), principal: Uuid::from_u128(2), digest: &[1; 32] },
        Place::RequestState { tenant: tenant(1), principal: Uuid::from_u128(1), digest: &[2; 32] },
    ];
    for (at, place) in places.iter().enumerate() {
        let sealed = seal(&key, [3; 12], *place, b"secret").unwrap();
        for (other_at, other) in places.iter().enumerate() {
            let opened = open(&key, *other, &sealed).map(|text| text.to_vec());
            let expected = if at == other_at { Ok(b"secret".to_vec()) } else { Err(Unopenable) };
            assert_eq!(opened, expected, "{place:?} in {other:?}");
        }
    }
}

#[test]
fn keys_are_named_found_and_never_shown() {
    let ring = Keyring::new([Key::new([1; 32]), Key::new([2; 32])]).unwrap();
    assert!(Keyring::new([]).is_none());
    assert_eq!(ring.first().0, ring.ids()[0]);
    assert_ne!(ring.ids()[0], ring.ids()[1]);
    assert_eq!(ring.find(ring.ids()[1]).unwrap().expose(), &[2; 32]);
    assert!(ring.find("").is_none());
    assert!(!format!("{ring:?}").contains("1, 1"), "{ring:?}");
    assert_eq!(ring.ids()[0].len(), 2 * ID_BYTES);
}

#[test]
fn a_derived_key_takes_both() {
    let derived = |key: u8, token: &[u8]| *Key::new([key; 32]).derive(token).expose();
    assert_eq!(derived(1, b"a"), derived(1, b"a"));
    assert_ne!(derived(1, b"a"), derived(1, b"b"));
    assert_ne!(derived(1, b"a"), derived(2, b"a"));
    assert_ne!(derived(1, b"a"), [1; 32]);
}

proptest! {
    #[test]
    fn any_other_byte_or_key_does_not_open(
        text in proptest::collection::vec(any::<u8>(), 0..200),
        key in any::<[u8; 32]>(),
        nonce in any::<[u8; 12]>(),
        bit in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let sealed = seal(&Key::new(key), nonce, Place::Canary, &text).unwrap();
        prop_assert_eq!(&open(&Key::new(key), Place::Canary, &sealed).unwrap()[..], &text[..]);
        prop_assert!(text.len() < 8 || !sealed.windows(text.len()).any(|part| part == text));
        let mut changed = sealed.clone();
        let bit = bit.index(sealed.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(open(&Key::new(key), Place::Canary, &changed), Err(Unopenable));
        let mut other = key;
        other[bit % 32] ^= 1;
        prop_assert_eq!(open(&Key::new(other), Place::Canary, &sealed), Err(Unopenable));
        let short = sealed.get(..cut.index(sealed.len())).unwrap();
        prop_assert_eq!(open(&Key::new(key), Place::Canary, short), Err(Unopenable));
    }
}
