use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::fixtures::TestKey;
use super::jwks::JWKS_BYTES_MAX;
use super::*;
use crate::domain::fuzz::{fuzz, shape};
use crate::domain::json;

const NOW: i64 = 1_700_000_000;
const ISSUER: &str = "https://idp.example";
const GATEWAY: &str = "https://gw.example";
const CLIENT: &str = "client-7";
const LEEWAY_S: i64 = 60;
const LIFETIME_MAX_S: i64 = 86_400;

fn verify(token: &str, keys: &KeySet) -> Result<VerifiedToken, TokenFault> {
    let split = SplitToken::read(token)?;
    let key = split.signature_check(keys, &TokenAlgorithm::ALL)?.run()?;
    let audiences = Audiences::new(&[PublicUrl::new(GATEWAY)], &[CLIENT.to_owned()]);
    let rules = ClaimRules {
        issuer: ISSUER,
        token_types: None,
        audiences: &audiences,
        subject_claim: "sub",
        owner_claim: None,
        leeway_s: LEEWAY_S,
        lifetime_max_s: LIFETIME_MAX_S,
    };
    split.check_claims(&rules, key, NOW).map(|(token, _)| token)
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": GATEWAY, "sub": "u1", "iat": NOW, "exp": NOW + 600, "email": "u1@example.com"})
}

fn set_of(keys: &[&TestKey]) -> Value {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()})
}

/// A token is accepted only if the provider's key signed it, to the byte.
#[test]
fn tokens() {
    let (key, foreign) = (TestKey::ed25519("a"), TestKey::ed25519("a"));
    let keys = KeySet::parse(&set_of(&[&key]).to_string()).expect("a set");
    let good = key.token(&claims());
    let expired = key.token(&json!({"iss": ISSUER, "aud": GATEWAY, "sub": "u1", "exp": NOW - 3600}));
    let seeds = [&*good, &*expired, &*foreign.token(&claims()), "..", "e30.e30.AAAA", "\u{0}.\u{1f980}.\"\\"];
    fuzz(&seeds, &[".", "=", "e30", "eyJhbGciOiJub25lIn0", "AAAA", "eyJ"], |input| {
        let text = String::from_utf8_lossy(input);
        let verified = verify(&text, &keys);
        if text == good {
            assert!(verified.is_ok(), "the provider's token is refused: {verified:?}");
        }
        assert!(verified.is_err() || text == good, "a token that nobody signed");
        // what an administrator is told of a token goes by the same reader
        drop(header_of(&text));
        shape(verified.map(drop).map_err(|fault| fault.to_string()))
    });
}

/// Rules hold for whatever a provider signs, as another reader of JSON sees it.
#[test]
fn signed_claims() {
    let key = TestKey::ed25519("a");
    let keys = KeySet::parse(&set_of(&[&key]).to_string()).expect("a set");
    let header = r#"{"alg":"EdDSA","kid":"a","typ":"at+jwt"}"#;
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        format!("{header}\n{claims}")
    };
    let seeds = [
        with("aud", json!([GATEWAY, "x"])),
        with("aud", json!(format!("{GATEWAY}/mcp"))),
        with("azp", json!(CLIENT)).replace(r#""aud":"https://gw.example","#, ""),
        with("exp", json!("1700000600")),
        with("exp", json!(1_700_000_600.5)),
        with("nbf", json!(NOW + 59)),
        with("nonce", json!("n")),
        with("iss", json!([ISSUER])),
        with("sub", json!("")),
        with("sub", json!("s".repeat(255))),
        format!("{{\"alg\":\"none\"}}\n{}", claims()),
        format!("{{\"alg\":\"EdDSA\",\"crit\":[\"exp\"]}}\n{}", claims()),
    ];
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let words =
        ["\"exp\":", "\"aud\":", "\"iss\":", "\"sub\":", "1e99", "-1", "null", "[]", "1700000000", "\\u0061"];
    fuzz(&seeds, &words, |input| {
        let text = String::from_utf8_lossy(input);
        let (header, payload) = text.split_once('\n').unwrap_or((&text, "{}"));
        let verified = verify(&key.sign(header, payload), &keys);
        if let Ok(token) = &verified {
            let header: Value = serde_json::from_str(header).expect("an accepted header is JSON");
            assert!(header["alg"] == "EdDSA" && header.get("crit").is_none(), "{header}");
            json::members(payload).expect("no member is given twice");
            let claims: Value = serde_json::from_str(payload).expect("accepted claims are JSON");
            assert_eq!(claims["iss"], ISSUER);
            let seconds =
                |name: &str| claims.get(name).map(|time| time.as_f64().expect("a number").floor() as i64);
            let exp = seconds("exp").expect("an end");
            assert!(exp + LEEWAY_S > NOW && token.expires_s == exp, "{claims}");
            let begun = [seconds("iat"), seconds("nbf")];
            assert!(begun.iter().flatten().all(|at| *at <= NOW + LEEWAY_S), "{claims}");
            assert!(exp - seconds("iat").unwrap_or(NOW) <= LIFETIME_MAX_S, "{claims}");
            let is_ours = |aud: &Value| {
                aud.as_str()
                    .is_some_and(|aud| aud == CLIENT || aud.strip_prefix(GATEWAY).is_some_and(is_reach))
            };
            let is_for_us = match claims.get("aud") {
                None => [claims.get("azp"), claims.get("client_id")]
                    .into_iter()
                    .flatten()
                    .any(|own| own == CLIENT),
                Some(Value::Array(all)) => all.iter().any(is_ours),
                Some(one) => is_ours(one),
            };
            assert!(is_for_us, "{claims}");
            assert!(claims["sub"] == *token.subject && (1..=255).contains(&token.subject.len()), "{claims}");
            assert!(!token.owner.chars().any(char::is_control) && token.owner.len() <= 800, "{claims}");
        }
        shape((
            verified.map(|token| token.reach == TokenReach::Mcp).map_err(|fault| fault.to_string()),
            payload.len().min(64),
        ))
    });
}

fn is_reach(path: &str) -> bool {
    ["", "/", "/mcp", "/mcp/direct"].contains(&path)
}

/// A set that is taken has keys, few enough, and each verifies what its owner signs and nobody else.
#[test]
fn key_sets() {
    let (key, other, ec) = (TestKey::ed25519("a"), TestKey::ed25519("b"), TestKey::p256("c"));
    let token = key.token(&claims());
    let rsa: Value = serde_json::from_str(include_str!("tests/rsa.json")).expect("JSON");
    let rsa = rsa["keys"].to_string();
    let one = set_of(&[&key]).to_string();
    let all = set_of(&[&key, &other, &ec]).to_string();
    let own = key.jwk()["x"].as_str().expect("a key").to_owned();
    let seeds = [&*one, &*all, &*rsa, "{\"keys\":[]}", "{\"keys\":{}}", "[]"];
    let words = [
        "\"kid\":\"a\"",
        "\"use\":\"enc\"",
        "\"kty\":\"RSA\"",
        "\"alg\":\"none\"",
        "\"keys\":",
        "AQAB",
        "{},",
        &*own,
    ];
    fuzz(&seeds, &words, |input| {
        let text = String::from_utf8_lossy(input);
        let (set, report) = (KeySet::parse(&text), KeySet::report(&text));
        if let Ok(set) = &set {
            let report = report.as_ref().expect("a set that is taken can be reported");
            assert!(report.len() <= 64 && report.iter().any(|key| key.fault.is_none()));
            assert!(!set.algorithms().is_empty() && text.len() <= JWKS_BYTES_MAX);
            if verify(&token, set).is_ok() {
                // the key is in the document, under its id or the only one of its kind
                let held = serde_json::from_str::<Value>(&text).expect("JSON").to_string();
                let decodes = |x: &str| URL_SAFE_NO_PAD.decode(x.trim_end_matches('=')).ok();
                let keys = serde_json::from_str::<Value>(&held).expect("JSON")["keys"].clone();
                let is_there = keys.as_array().expect("keys").iter().any(|jwk| {
                    jwk["x"].as_str().is_some_and(|x| decodes(x) == decodes(&own)) && jwk["crv"] == "Ed25519"
                });
                assert!(is_there, "another key verified the token");
            }
        }
        let faults = report
            .map(|keys| keys.iter().map(|key| key.fault.map(|fault| fault.to_string())).collect::<Vec<_>>());
        shape((
            set.map(|set| set.algorithms().len()).map_err(|fault| fault.to_string()),
            format!("{faults:?}"),
        ))
    });
}
