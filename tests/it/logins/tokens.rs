//! Tokens that are refused, and what their senders are told.

use serde_json::{Value, json};

use super::{GATEWAY, bearer, scene, scene_with};
use crate::support::{Idp, Mcp, cli, now_s};

const INVALID: &str = "the access token is not valid here";
const EXPIRED: &str = "the access token has expired";
const ELSEWHERE: &str = "the access token was issued for something other than this gateway";
const METADATA: &str = "resource_metadata=\"https://gw.example/.well-known/oauth-protected-resource/mcp\"";

#[tokio::test]
async fn bad_tokens_are_refused_without_a_word_why() {
    let (stage, _tenant, idp) = scene_with(&[("MCPPROXY__LIMITS__TOKEN_BYTES_MAX", "8000")]).await;
    let foreign = Idp::start().await;
    let good = idp.claims("u1", GATEWAY);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        idp.sign(&claims)
    };
    let header = |header: Value| idp.sign_as(&header, &good);
    let valid = idp.sign(&good);
    let (signed, _) = valid.rsplit_once('.').unwrap();
    for (token, text) in [
        (format!("{signed}.AAAA"), INVALID),
        (format!("{signed}."), INVALID),
        ("a.b.c".to_owned(), INVALID),
        (header(json!({"alg": "none"})), INVALID),
        (header(json!({"alg": "HS256", "kid": "k1"})), INVALID),
        (header(json!({"alg": "ES256", "kid": "k1", "crit": ["exp"]})), INVALID),
        (header(json!({"alg": "ES256", "kid": "k1", "typ": "dpop+jwt"})), INVALID),
        // the signature of another provider under the same key id
        (foreign.sign(&good), INVALID),
        // a provider that is not registered
        (foreign.token("u1", GATEWAY, json!({})), INVALID),
        (with("iss", json!([idp.url])), INVALID),
        (with("exp", json!((now_s() + 600).to_string())), INVALID),
        (with("iat", json!(now_s() + 90)), INVALID),
        (with("exp", json!(now_s() + 100_000)), INVALID),
        (with("sub", json!("")), INVALID),
        (with("pad", json!("x".repeat(9_000))), INVALID),
        (
            idp.sign_as(&json!({"alg": "ES256", "kid": "k1"}), &{
                let mut claims = good.clone();
                claims["nonce"] = json!("n");
                claims
            }),
            INVALID,
        ),
        (with("exp", json!(now_s() - 90)), EXPIRED),
        (with("aud", json!("https://other.example")), ELSEWHERE),
        (with("aud", json!("https://gw.example/mcp/")), ELSEWHERE),
    ] {
        let answer = Mcp::bare(&bearer(&stage, &token)).request("ping", "{}").await;
        assert_eq!(answer.refused(401, "unauthenticated"), text, "{token}");
        let challenge = format!("Bearer error=\"invalid_token\", {METADATA}");
        assert_eq!(answer.header("www-authenticate"), challenge, "{token}");
    }
    // clocks may differ by a minute
    for (name, seconds) in [("iat", 50), ("nbf", 50), ("exp", -50)] {
        let token = with(name, json!(now_s() + seconds));
        Mcp::bare(&bearer(&stage, &token)).request("ping", "{}").await.expect(200);
    }
    // a token is never looked up as a key, and a key header holds no tokens
    let api = stage.gateway.anonymous();
    let in_key_header = api.request(reqwest::Method::GET, "/api/v1/status").header("X-API-Key", &valid);
    assert_eq!(api.send(in_key_header).await.header("www-authenticate"), "Bearer error=\"invalid_token\"");
}

#[tokio::test]
async fn an_issuer_may_demand_tokens_that_say_what_they_are() {
    let (stage, _tenant, idp) = scene().await;
    let platform = stage.platform();
    let token = |typ: Option<&str>| {
        let mut header = json!({"alg": "ES256", "kid": "k1"});
        if let Some(typ) = typ {
            header["typ"] = json!(typ);
        }
        bearer(&stage, &idp.sign_as(&header, &idp.claims("u1", GATEWAY)))
    };
    let types = [Some("at+jwt"), Some("application/AT+JWT"), Some("JWT"), None];
    for (accepted, statuses) in [
        (json!(null), [200, 200, 200, 200]),
        (json!(["at+jwt"]), [200, 200, 401, 401]),
        (json!(["jwt"]), [401, 401, 200, 401]),
        (json!(["at+jwt", "jwt"]), [200, 200, 200, 401]),
        (json!(null), [200, 200, 200, 200]),
    ] {
        let patch = json!({ "token_types": accepted });
        let changed = platform.patch("/api/v1/issuers/corp", &patch).await.expect(200);
        assert_eq!(changed["token_types"], accepted);
        for (typ, status) in types.into_iter().zip(statuses) {
            // tokens that are remembered are no exception
            assert_eq!(token(typ).get("/api/v1/status").await.status, status, "{accepted} {typ:?}");
        }
    }
    cli(&platform, &["issuer", "update", "corp", "--token-type", "at+jwt"]).await.ok();
    let jwt = idp.sign_as(&json!({"alg": "ES256", "kid": "k1", "typ": "JWT"}), &idp.claims("u1", GATEWAY));
    let checks = platform.post("/api/v1/issuers/corp/check", &json!({ "token": jwt })).await.expect(200);
    let kind = checks["checks"].as_array().unwrap().iter().find(|check| check["check"] == "kind").unwrap();
    assert_eq!(kind["result"], "bad");
    assert!(kind["says"].as_str().unwrap().contains("the entry accepts at+jwt alone"), "{kind}");
}

#[tokio::test]
async fn a_token_for_mcp_opens_nothing_else() {
    let (stage, _tenant, idp) = scene().await;
    for (audience, rest) in [
        ("https://gw.example", 200),
        ("https://gw.example/", 200),
        ("https://gw.example/mcp", 401),
        ("https://gw.example/mcp/direct", 401),
    ] {
        let person = bearer(&stage, &idp.token("u1", audience, json!({})));
        Mcp::bare(&person).request("ping", "{}").await.expect(200);
        let answer = person.get("/api/v1/status").await;
        assert_eq!(answer.status, rest, "{audience}");
        if rest == 401 {
            assert_eq!(answer.refused(401, "unauthenticated"), ELSEWHERE);
            assert_eq!(answer.header("www-authenticate"), "Bearer error=\"invalid_token\"");
        }
    }
}

#[tokio::test]
async fn the_command_line_takes_a_token_in_the_place_of_a_key() {
    let (stage, _tenant, idp) = scene().await;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({"email": "ana@acme.example"})));
    let run = cli(&person, &["status", "-o", "json"]).await.ok();
    assert_eq!(run.json()["role"], "agent", "{run:?}");
    let expired =
        bearer(&stage, &idp.token("u1", GATEWAY, json!({"iat": now_s() - 700, "exp": now_s() - 100})));
    cli(&expired, &["status"]).await.failed(5, "the access token has expired");
}
