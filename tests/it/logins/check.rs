//! Checks of issuers, and explanations of tokens.

use serde_json::{Value, json};

use super::{GATEWAY, SETTINGS, bearer, register, scene, set_rules};
use crate::support::{Answer, Idp, IdpMood, Stage, cli, cli_reading, now_s};

const CHECK: &str = "/api/v1/issuers/corp/check";

/// Findings of a check, one a line: result, check, sentence.
struct Findings(Vec<(String, String, String)>);

impl Findings {
    #[track_caller]
    fn of(answer: &Answer) -> Findings {
        let answer = answer.expect(200);
        let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
        let checks = answer["checks"].as_array().unwrap().iter();
        Findings(checks.map(|item| (text(item, "result"), text(item, "check"), text(item, "says"))).collect())
    }

    /// Checks that a finding has this result, and says this.
    #[track_caller]
    fn has(&self, result: &str, check: &str, says: &str) {
        let is_it = |found: &&(String, String, String)| {
            found.0 == result && found.1 == check && found.2.contains(says)
        };
        assert!(self.0.iter().any(|found| is_it(&found)), "no {result} {check} {says}: {:#?}", self.0);
    }

    /// Names of the checks with a result.
    fn named(&self, result: &str) -> Vec<&str> {
        let these = self.0.iter().filter(|(own, _, _)| own == result);
        these.map(|(_, check, _)| check.as_str()).collect()
    }
}

async fn check(stage: &Stage, token: Option<&str>) -> Findings {
    let body = token.map_or_else(|| json!({}), |token| json!({ "token": token }));
    Findings::of(&stage.platform().post(CHECK, &body).await)
}

#[tokio::test]
async fn a_good_provider_and_a_good_token() {
    let (stage, tenant, idp) = scene().await;
    let found = check(&stage, None).await;
    let names: Vec<&str> = found.0.iter().map(|(_, name, _)| name.as_str()).collect();
    let provider = ["metadata", "issuer", "keys", "key", "algorithms", "stored_keys", "audiences", "tenants"];
    assert_eq!((names.as_slice(), found.named("ok").len()), (&provider[..], 8));
    found.has("ok", "metadata", "/realm/.well-known/openid-configuration");
    found.has("ok", "issuer", &idp.url);
    found.has("ok", "keys", "1 of 1 keys at ");
    found.has("ok", "key", "'k1' (EC P-256) can be used");
    found.has("ok", "algorithms", "have ES256");
    found.has("ok", "audiences", GATEWAY);
    found.has("ok", "tenants", "'acme'");

    let version = json!([
        {"role": "admin", "conditions": [{"claim": "groups", "op": "contains", "value": "the-admins"}]},
        {"role": "operator", "conditions": [{"claim": "groups", "op": "any_of", "value": ["dev"]}]},
    ]);
    set_rules(&tenant, version).await;
    let more = json!({"groups": ["dev"], "email": "ana@acme.example", "scope": "mcp:read"});
    let token = idp.token("u1", GATEWAY, more);
    let found = check(&stage, Some(&format!(" {token}\n"))).await;
    assert_eq!((found.named("bad"), found.named("warn")), (vec![], vec![]), "{:#?}", found.0);
    found.has("ok", "header", "alg 'ES256', typ 'at+jwt', kid 'k1'");
    found.has("ok", "signature", "good");
    for name in ["iss", "kind", "exp", "nbf", "iat", "lifetime", "aud", "subject"] {
        found.has("ok", name, "");
    }
    found.has("ok", "tenant", "'acme'");
    found.has(
        "ok",
        "rule",
        "rules[0] (role admin) does not fit: 'groups' contains: the claim has another value",
    );
    found.has("ok", "rule", "rules[1] (role operator) fits");
    found.has("ok", "person", "role operator, owner 'ana@acme.example'");
    found.has("ok", "person", "max_operation read");
    found.has("ok", "verdict", "accepts this token in 'acme'");
    assert!(!found.0.iter().any(|(_, _, says)| says.contains("the-admins")));
    let person = bearer(&stage, &token).get("/api/v1/status").await.expect(200);
    found.has("ok", "person", person["identity_id"].as_str().unwrap());
    assert_eq!(person["role"], "operator");
    // a check has fetched the provider's keys, and stored nothing
    assert!(idp.fetches() >= 3);
}

#[tokio::test]
async fn what_is_wrong_with_a_provider() {
    let (stage, _tenant, idp) = scene().await;
    stage.tenant("beta").await.admin().await.post(CHECK, &json!({})).await.refused(403, "forbidden");
    stage.platform().post("/api/v1/issuers/none/check", &json!({})).await.refused(404, "not_found");
    let token = idp.token("u1", GATEWAY, json!({}));
    idp.set(IdpMood::Broken);
    let found = check(&stage, Some(&token)).await;
    found.has("bad", "keys", "HTTP 500");
    // the stored keys do
    found.has("ok", "fitting_key", "a stored key fits");
    found.has("ok", "verdict", "accepts");
    idp.set(IdpMood::Huge);
    assert_eq!(check(&stage, None).await.named("bad"), ["keys"]);

    let weak = json!({"kty": "RSA", "kid": "weak", "n": format!("{}w", "x".repeat(170)), "e": "AQAB"});
    let mut enc = idp.jwks().remove(0);
    enc["use"] = json!("enc");
    let mut bare = idp.jwks().remove(0);
    bare.as_object_mut().unwrap().remove("kid");
    idp.set(IdpMood::Keys(vec![weak.clone(), enc.clone(), json!({"kty": "oct", "kid": "o", "k": "AAAA"})]));
    let found = check(&stage, Some(&token)).await;
    found.has("bad", "keys", "0 of 3 keys");
    found.has("warn", "key", "'weak' (RSA) is not used: its modulus has 1024 bits");
    found.has("ok", "key", "'k1' (EC P-256) is not used: it is not for signatures");
    found.has("warn", "key", "'o' (oct) is not used: only RSA");
    let mut other = idp.jwks().remove(0);
    other["kid"] = json!("k9");
    idp.set(IdpMood::Keys(vec![bare, other]));
    let found = check(&stage, Some(&token)).await;
    found.has("warn", "key", "without kid (EC P-256)");
    found.has("warn", "fitting_key", "the provider has this key no longer");
    let platform = stage.platform();
    platform.patch("/api/v1/issuers/corp", &json!({"algorithms": ["RS256"]})).await.expect(200);
    check(&stage, None).await.has("bad", "algorithms", "the keys are for ES256, the entry accepts RS256");

    idp.set(IdpMood::Well);
    idp.lie(&format!("{}/", idp.url));
    let found = check(&stage, None).await;
    found.has("ok", "metadata", "found at ");
    found.has("bad", "issuer", &format!("names '{0}/', the entry '{0}'", idp.url));
    found.has("bad", "issuer", "they differ in the slash at the end");
    let url = idp.url.clone();
    drop(idp);
    let found = check(&stage, None).await;
    found.has("bad", "metadata", &format!("not found; {}", url.trim_end_matches("/realm")));
    assert_eq!(found.named("bad"), ["metadata"]);
}

#[tokio::test]
async fn what_is_wrong_with_a_token() {
    let (stage, _tenant, idp) = scene().await;
    let foreign = Idp::start().await;
    let good = idp.claims("u1", GATEWAY);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        idp.sign(&claims)
    };
    let expired = json!(now_s() - 90);
    let forged = foreign.sign(&good);
    let padded = with("pad", json!("x".repeat(20_000)));
    let unsigned = idp.sign_as(&json!({"alg": "none"}), &good);
    let unknown = idp.sign_as(&json!({"alg": "ES256", "kid": "k7"}), &good);
    for (token, bad, says) in [
        (with("exp", expired), "exp", "expired: "),
        (with("aud", json!("https://other.example")), "aud", "'https://other.example', expected one of"),
        (with("iss", json!(format!("{}/", idp.url))), "iss", "they differ in the slash"),
        (with("nbf", json!(now_s() + 90)), "nbf", "clocks may differ by 60 s"),
        (with("iat", json!(now_s() + 90)), "iat", "clocks may differ by 60 s"),
        (with("exp", json!(now_s() + 100_000)), "lifetime", "at most 86400 s"),
        (with("sub", json!("")), "subject", "the claim sub is ''"),
        (forged, "signature", "the signature is wrong"),
        (unknown, "fitting_key", "the issuer has no such key"),
        (unsigned, "token", "the header's alg is not accepted"),
        (padded, "token", "limits.token_bytes_max is 16384"),
        ("opaque".to_owned(), "token", "opaque tokens cannot be verified"),
        ("a.b.c".to_owned(), "token", "no JSON object"),
        ("a.b.c.d.e".to_owned(), "token", "it is encrypted"),
        (String::new(), "token", "no signed token"),
    ] {
        let found = check(&stage, Some(&token)).await;
        found.has("bad", bad, says);
        found.has("bad", "verdict", "refuses this token");
        // the rest is explained all the same
        if bad != "token" && bad != "subject" {
            found.has("ok", "person", "role agent, owner 'u1'");
        }
        // a larger one does not get through the headers
        if token.len() < 8000 {
            assert_ne!(bearer(&stage, &token).get("/api/v1/status").await.status, 200);
        }
    }
    let found = check(&stage, Some(&".é…".repeat(1000))).await;
    assert_eq!(found.named("bad"), ["token", "verdict"]);
    register(&stage, &foreign, "partner", "acme").await;
    let found = check(&stage, Some(&foreign.token("u1", GATEWAY, json!({})))).await;
    found.has("warn", "iss", "mcpproxy doctor issuer partner");
}

#[tokio::test]
async fn which_tenant_and_which_rule_are_missing() {
    let stage = Stage::with(&SETTINGS).await;
    let (acme, beta) = (stage.tenant("acme").await, stage.tenant("beta").await);
    let idp = Idp::start().await;
    let platform = stage.platform();
    platform.post("/api/v1/issuers", &json!({"name": "corp", "issuer": idp.url})).await.expect(201);
    check(&stage, None).await.has("bad", "tenants", "nobody belongs to a tenant");
    let items = json!({"items": [{"claim": "org", "value": "a", "tenant": "acme"},
        {"claim": "groups", "value": "b", "tenant": "beta"}]});
    platform.ask(reqwest::Method::PUT, "/api/v1/issuers/corp/tenants", Some(&items)).await.expect(200);
    let token = |more: Value| idp.token("u1", GATEWAY, more);

    let found = check(&stage, Some(&token(json!({"org": "x"})))).await;
    found.has("ok", "tenants", "by the claims org, groups");
    found.has("bad", "tenant", "no assignment fits");
    found.has("bad", "verdict", "nothing gives this account access");
    let both = token(json!({"org": "a", "groups": ["b"], "_claim_names": {"roles": "src1"}}));
    let found = check(&stage, Some(&both)).await;
    found.has("warn", "tenant", "X-Tenant must name one of 'acme', 'beta'");
    found.has("bad", "rule", "the tenant 'acme' has no rules");

    let condition = |claim: &str, op: &str| json!({"claim": claim, "op": op, "value": "hidden"});
    let conditions =
        [condition("groups", "contains"), condition("roles", "contains"), condition("no", "glob")];
    set_rules(&acme, json!([{"role": "agent", "conditions": conditions}])).await;
    set_rules(&beta, json!([{"role": "auditor"}])).await;
    let found = check(&stage, Some(&both)).await;
    let missed = "tenant 'acme', rules[0] (role agent) does not fit: 'groups' contains: the claim has another value; \
                  'roles' contains: the provider left the claim out (_claim_names); 'no' glob: the claim is absent";
    found.has("ok", "rule", missed);
    found.has("bad", "rule", "the tenant 'acme' has no rule that fits");
    found.has("ok", "person", "in the tenant 'beta': role auditor");
    found.has("ok", "verdict", "in 'beta'");
    assert!(!found.0.iter().any(|(_, _, says)| says.contains("hidden")));
    platform.post("/api/v1/tenants/beta/suspend", &json!({})).await.expect(200);
    check(&stage, Some(&both)).await.has("bad", "person", "the tenant 'beta' is suspended");
}

#[tokio::test]
async fn a_blocked_person_is_told_from_an_unknown_one() {
    let (stage, tenant, idp) = scene().await;
    let token = idp.token("u1", GATEWAY, json!({"iat": now_s() - 5}));
    let person = bearer(&stage, &token).get("/api/v1/status").await.expect(200);
    let id = person["identity_id"].as_str().unwrap();
    let seen = || async { tenant.platform.items("/api/v1/identities").await.len() };
    crate::support::settle(1, std::time::Duration::from_secs(10), seen).await;
    tenant.platform.post(&format!("/api/v1/identities/{id}/block"), &json!({})).await.expect(200);
    let found = check(&stage, Some(&token)).await;
    found.has("bad", "person", &format!("mcpproxy identity unblock {id} --tenant acme"));
    found.has("bad", "verdict", "nothing gives this account access");
    tenant.platform.post(&format!("/api/v1/identities/{id}/unblock"), &json!({})).await.expect(200);
    let found = check(&stage, Some(&token)).await;
    found.has("bad", "person", "the token was issued before the account was blocked");
}

#[tokio::test]
async fn the_doctor_reads_a_token_and_nothing_keeps_it() {
    let settings = [SETTINGS[0], ("MCPPROXY__TELEMETRY__LOG_FILTER", "trace")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    register(&stage, &idp, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    let platform = stage.platform();
    let token = idp.token("u1", GATEWAY, json!({}));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let from_file =
        cli(&platform, &["doctor", "issuer", "corp", "--token-file", file.to_str().unwrap()]).await;
    let read = cli_reading(&platform, &["doctor", "issuer", "corp", "--token-file", "-"], &token).await;
    for run in [from_file.ok(), read.ok()] {
        let line = |start: &str| run.out.lines().any(|line| line.starts_with(start));
        assert!(
            line("ok    metadata     found at ") && line("ok    verdict      the gateway accepts"),
            "{run:?}"
        );
        assert!(!line("WARN") && !line("bad") && !run.out.contains(&token), "{run:?}");
    }
    let bad = idp.token("u1", "https://other.example", json!({}));
    let run = cli_reading(&platform, &["doctor", "issuer", "corp", "--token-file", "-"], &bad).await.ok();
    assert!(run.out.lines().any(|line| line.starts_with("bad   aud          issued for another")), "{run:?}");
    cli(&platform, &["doctor", "issuer", "none"]).await.failed(3, "issuer");
    cli_reading(&platform, &["doctor", "issuer", "corp", "--token-file", "-"], " ")
        .await
        .failed(2, "no token");
    // wrong types and places
    platform.post(CHECK, &json!({"token": [token]})).await.refused(400, "invalid_request");
    tenant.admin().await.post(CHECK, &json!({ "token": token })).await.refused(403, "forbidden");

    // a token in the place of the body
    let raw = platform.request(reqwest::Method::POST, CHECK).body(token.clone());
    platform.send(raw).await.refused(400, "invalid_request");

    let mut acts = platform.items("/api/v1/activity?type=admin").await;
    acts.extend(tenant.platform.items("/api/v1/activity?type=admin").await);
    let checks: Vec<String> =
        acts.iter().map(Value::to_string).filter(|act| act.contains("issuers.check")).collect();
    assert!(checks.len() >= 5 && checks.iter().any(|act| act.contains("[redacted]")), "{acts:#?}");
    let all = format!("{}{}", json!(acts), stage.gateway.log());
    for token in [&token, &bad] {
        for part in token.split('.').filter(|part| part.len() > 60) {
            assert!(!all.contains(part), "a token was kept");
        }
    }
}
