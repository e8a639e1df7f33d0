use serde_json::{Value, json};
use uuid::Uuid;

use super::fixtures::TestKey;
use super::*;

const NOW: i64 = 1_700_000_000;
const ALL: [TokenAlgorithm; 5] = TokenAlgorithm::ALL;

fn audiences() -> Audiences {
    Audiences::new(&[PublicUrl::new("https://gw.example")], &[])
}

fn keys(jwks: &[Value]) -> KeySet {
    KeySet::parse(&json!({ "keys": jwks }).to_string()).unwrap()
}

fn claims() -> Value {
    json!({"iss": "https://idp.example", "aud": "https://gw.example", "sub": "u1", "iat": NOW, "exp": NOW + 600})
}

/// Verifies a token with the usual rules at [`NOW`].
fn verify(token: &str, keys: &KeySet) -> Result<VerifiedToken, TokenFault> {
    verify_with(token, keys, &ALL, NOW)
}

fn verify_with(
    token: &str,
    keys: &KeySet,
    algorithms: &[TokenAlgorithm],
    now_s: i64,
) -> Result<VerifiedToken, TokenFault> {
    let split = SplitToken::read(token)?;
    let key = split.signature_check(keys, algorithms)?.run()?;
    let audiences = audiences();
    let rules = ClaimRules {
        issuer: "https://idp.example",
        token_types: None,
        audiences: &audiences,
        subject_claim: "sub",
        owner_claim: None,
        leeway_s: 60,
        lifetime_max_s: 86_400,
    };
    split.check_claims(&rules, key, now_s).map(|(token, _)| token)
}

fn why(found: Result<VerifiedToken, TokenFault>) -> String {
    found.map_or_else(|fault| fault.to_string(), |_| "accepted".to_owned())
}

#[test]
fn every_algorithm_verifies() {
    for key in [TestKey::p256("a"), TestKey::p384("a"), TestKey::ed25519("a")] {
        let token = key.token(&claims());
        let found = verify(&token, &keys(&[key.jwk()])).unwrap();
        assert_eq!((found.subject.as_str(), found.owner.as_str(), found.email), ("u1", "u1", None));
        assert_eq!((found.expires_s, found.issued_s), (NOW + 600, Some(NOW)));
        // another key under the same id
        let foreign = match key.algorithm() {
            "ES256" => TestKey::p256("a"),
            "ES384" => TestKey::p384("a"),
            _ => TestKey::ed25519("a"),
        };
        assert_eq!(why(verify(&token, &keys(&[foreign.jwk()]))), "the signature is wrong");
    }
    let rsa: Value = serde_json::from_str(include_str!("tests/rsa.json")).unwrap();
    let set = KeySet::parse(&rsa["keys"].to_string()).unwrap();
    for algorithm in [TokenAlgorithm::Rs256, TokenAlgorithm::Ps256] {
        let token = rsa["tokens"][algorithm.as_str()].as_str().unwrap();
        assert_eq!(verify(token, &set).unwrap().subject, "u1", "{algorithm:?}");
        assert_eq!(
            why(verify_with(token, &set, &[TokenAlgorithm::Es256], NOW)),
            "the issuer does not use this alg"
        );
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let forged = format!("{signed}.{}", signature.chars().rev().collect::<String>());
        assert_eq!(why(verify(&forged, &set)), "the signature is wrong");
    }
    assert_eq!(KeySet::parse(&rsa["weak"].to_string()).err(), Some(JwksFault::NoUsableKey));
}

#[test]
fn headers_that_lie_are_refused() {
    let key = TestKey::p256("a");
    let set = keys(&[key.jwk()]);
    let payload = claims().to_string();
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1MSJ9.";
    assert_eq!(why(verify(unsigned, &set)), "the header's alg is not accepted");
    for (header, fault) in [
        (r#"{"alg":"ES256","kid":"a"}"#, "accepted"),
        (r#"{"alg":"ES256"}"#, "accepted"),
        (
            r#"{"alg":"ES256","kid":"a","typ":"JWT","jku":"https://evil.example","x5u":"x","jwk":{}}"#,
            "accepted",
        ),
        (r#"{"alg":"ES256","kid":"a","typ":"application/AT+JWT"}"#, "accepted"),
        (r#"{"alg":"HS256","kid":"a"}"#, "the header's alg is not accepted"),
        (r#"{"alg":"none"}"#, "the header's alg is not accepted"),
        (r#"{"alg":"es256","kid":"a"}"#, "the header's alg is not accepted"),
        (r#"{"kid":"a"}"#, "the header's alg is not accepted"),
        (r#"{"alg":["ES256"],"kid":"a"}"#, "the header's alg is not accepted"),
        (r#"{"alg":"ES384","kid":"a"}"#, "the issuer has no such key"),
        (r#"{"alg":"ES256","kid":"a","crit":[]}"#, "the header has crit"),
        (r#"{"alg":"ES256","kid":"a","typ":"logout+jwt"}"#, "the header's typ is not of an access token"),
        (r#"{"alg":"ES256","kid":"a","typ":1}"#, "the header's typ is not of an access token"),
        (r#"{"alg":"ES256","kid":7}"#, "the header's kid is no short text"),
        (r#"{"alg":"ES256","kid":"b"}"#, "the issuer has no such key"),
        (r#"{"alg":"ES256","kid":"a","alg":"ES256"}"#, "the header is no JSON object with one reading"),
        (r#"{"alg":"ES256","k\u0069d":"b","kid":"a"}"#, "the header is no JSON object with one reading"),
        (r#"{"alg":"ES256","kid":"a","jwk":{"x":1,"x":2}}"#, "the header is no JSON object with one reading"),
        (r#"["ES256"]"#, "the header is no JSON object with one reading"),
    ] {
        assert_eq!(why(verify(&key.sign(header, &payload), &set)), fault, "{header}");
    }
    for broken in ["", "a.b", "..", "a.b.c.d", &format!("{}=", key.token(&claims()))] {
        assert!(verify(broken, &set).is_err(), "{broken}");
    }
}

#[test]
fn claims_have_one_reading_and_the_right_types() {
    let key = TestKey::p256("a");
    let set = keys(&[key.jwk()]);
    let header = r#"{"alg":"ES256","kid":"a","typ":"JWT"}"#;
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        key.sign(header, &claims.to_string())
    };
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        key.sign(header, &claims.to_string())
    };
    let number = "exp, iat or nbf is no number of seconds";
    let other = "an ID token, a refresh token or a logout token";
    let subject = "the subject is missing or too long";
    for (token, fault) in [
        (with("exp", json!("1700000600")), number),
        (with("exp", json!(null)), number),
        (with("exp", json!(-1)), number),
        (with("exp", json!(1e300)), number),
        (with("exp", json!(1_700_000_600.9)), "accepted"),
        (without("exp"), "exp is missing"),
        (with("iat", json!("1700000000")), number),
        (with("iss", json!(["https://idp.example"])), "iss is not one text"),
        (with("iss", json!("https://idp.example/")), "iss is another issuer"),
        (without("iss"), "iss is not one text"),
        (with("exp", json!(NOW + 86_401)), "the lifetime exceeds identity.token_lifetime_max_s"),
        (with("exp", json!(NOW + 86_400)), "accepted"),
        (with("sub", json!("")), subject),
        (with("sub", json!("x".repeat(256))), subject),
        (with("sub", json!(7)), subject),
        (with("sub", json!("a\nb")), subject),
        (without("sub"), subject),
        (with("nonce", json!("n")), other),
        (with("at_hash", json!("n")), other),
        (with("events", json!({})), other),
        (with("typ", json!("ID")), other),
        (with("typ", json!("Refresh")), other),
        (with("typ", json!("Bearer")), "accepted"),
        (with("token_use", json!("id")), other),
        (with("aud", json!("other")), "issued for another audience"),
        (without("aud"), "issued for another audience"),
        (
            key.sign(header, &claims().to_string().replacen('{', r#"{"sub":"u0","#, 1)),
            "the payload is no JSON object with one reading",
        ),
        (key.sign(header, "[]"), "the payload is no JSON object with one reading"),
        (key.sign(header, "\"x\""), "the payload is no JSON object with one reading"),
    ] {
        assert_eq!(why(verify(&token, &set)), fault);
    }
    // a header that says at+jwt may have a nonce
    let mut nonce = claims();
    nonce["nonce"] = json!("n");
    assert_eq!(why(verify(&key.token(&nonce), &set)), "accepted");
}

#[test]
fn clocks_may_differ_by_a_minute() {
    let key = TestKey::p256("a");
    let set = keys(&[key.jwk()]);
    let at = |name: &str, seconds: i64| {
        let mut claims = claims();
        claims[name] = json!(seconds);
        why(verify(&key.token(&claims), &set))
    };
    for name in ["iat", "nbf"] {
        assert_eq!(at(name, NOW + 59), "accepted", "{name}");
        assert_eq!(at(name, NOW + 61), "iat or nbf is in the future", "{name}");
    }
    let mut early = claims();
    early["iat"] = json!(NOW - 3600);
    let expired = |seconds: i64| {
        let mut claims = early.clone();
        claims["exp"] = json!(NOW - seconds);
        verify(&key.token(&claims), &set)
    };
    assert!(expired(59).is_ok());
    assert_eq!(expired(61).err(), Some(TokenFault::Expired));
    assert_eq!(expired(60).err(), Some(TokenFault::Expired));
}

#[test]
fn the_owner_is_the_first_usual_claim_or_the_issuers_own() {
    let key = TestKey::p256("a");
    let set = keys(&[key.jwk()]);
    let mut named = claims();
    named["name"] = json!("Ana\u{7} Lima ");
    assert_eq!(verify(&key.token(&named), &set).unwrap().owner, "Ana Lima");
    named["preferred_username"] = json!("ana");
    named["email"] = json!("ana@acme.example");
    let found = verify(&key.token(&named), &set).unwrap();
    assert_eq!(
        (found.owner.as_str(), found.email.as_deref()),
        ("ana@acme.example", Some("ana@acme.example"))
    );
}

#[test]
fn key_sets_are_bounded_and_keys_never_guessed() {
    let (one, other, third) = (TestKey::p256("a"), TestKey::p256("b"), TestKey::p256("a"));
    let token = one.token(&claims());
    let anonymous = one.sign(r#"{"alg":"ES256"}"#, &claims().to_string());
    assert_eq!(why(verify(&anonymous, &keys(&[one.jwk()]))), "accepted");
    let several = "several keys of the issuer fit the token";
    assert_eq!(why(verify(&anonymous, &keys(&[one.jwk(), other.jwk()]))), several);
    assert_eq!(why(verify(&token, &keys(&[one.jwk(), other.jwk()]))), "accepted");
    // two keys under one id: neither counts; the same key twice does
    assert_eq!(why(verify(&token, &keys(&[one.jwk(), third.jwk()]))), several);
    assert_eq!(why(verify(&token, &keys(&[one.jwk(), one.jwk()]))), "accepted");
    // a key of another kind under the same id is another key
    assert_eq!(why(verify(&token, &keys(&[TestKey::ed25519("a").jwk(), one.jwk()]))), "accepted");
    let marked = |name: &str, value: Value| {
        let mut jwk = one.jwk();
        jwk[name] = value;
        KeySet::parse(&json!({"keys": [jwk]}).to_string()).map(|set| why(verify(&token, &set)))
    };
    assert_eq!(marked("use", json!("enc")), Err(JwksFault::NoUsableKey));
    assert_eq!(marked("key_ops", json!(["sign"])), Err(JwksFault::NoUsableKey));
    assert_eq!(marked("alg", json!("HS256")), Err(JwksFault::NoUsableKey));
    assert_eq!(marked("alg", json!("ES384")), Ok("the issuer has no such key".to_owned()));
    assert_eq!(marked("alg", json!("ES256")), Ok("accepted".to_owned()));
    assert_eq!(marked("x", json!("AAAA")), Err(JwksFault::NoUsableKey));
    let many = |count| json!({"keys": vec![one.jwk(); count]}).to_string();
    assert!(KeySet::parse(&many(64)).is_ok());
    assert_eq!(KeySet::parse(&many(65)).err(), Some(JwksFault::TooMany));
    let large = format!("{}{}", many(1), " ".repeat(JWKS_BYTES_MAX));
    assert_eq!(KeySet::parse(&large).err(), Some(JwksFault::TooLarge));
    for no_set in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#] {
        assert_eq!(KeySet::parse(no_set).err(), Some(JwksFault::NoKeySet), "{no_set}");
    }
    let secret = json!({"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]}).to_string();
    assert_eq!(KeySet::parse(&secret).err(), Some(JwksFault::NoUsableKey));
}

#[test]
fn identities_are_of_one_tenant_and_issuer() {
    let id = |n: u128| Uuid::from_u128(n);
    let of = |tenant, issuer, subject| identity_id(TenantId(id(tenant)), IssuerId(id(issuer)), subject);
    let one = of(1, 2, "u1");
    assert_eq!((one, one.0.get_version_num()), (of(1, 2, "u1"), 8));
    for other in [of(3, 2, "u1"), of(1, 3, "u1"), of(1, 2, "u2"), of(2, 1, "u1")] {
        assert_ne!(one, other);
    }
    assert!(is_token("a.b.c") && !is_token("mcpk_abc") && !is_token("a.b") && !is_token("a.b.c.d.e"));
}
