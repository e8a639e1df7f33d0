//! People who are refused, and floods of bad tokens: who notices, and what the logs keep.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{GATEWAY, SETTINGS, bearer, register, scene, set_rules};
use crate::support::{Api, Gateway, Idp, Mcp, Stage, Tool, Upstream};

/// Requests of a flood that are under way at the same time.
const FLOOD: usize = 150;

/// Counted refusals of a log.
async fn counted(api: &Api) -> Vec<Value> {
    api.items("/api/v1/activity?type=auth_failure").await
}

fn arguments(record: &Value) -> Value {
    serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn each_is_counted_in_the_log_of_the_tenant() {
    let stage = Stage::with(&SETTINGS).await;
    let (tenant, idp) = (stage.tenant("acme").await, Idp::start().await);
    let body = json!({"name": "corp", "issuer": idp.url, "tenant_claim": "org"});
    stage.platform().post("/api/v1/issuers", &body).await.expect(201);
    let items = json!({"items": [{"value": "a", "tenant": "acme"}]});
    stage
        .platform()
        .ask(reqwest::Method::PUT, "/api/v1/issuers/corp/tenants", Some(&items))
        .await
        .expect(200);
    let condition = json!([{"claim": "sub", "op": "glob", "value": "u*"}]);
    set_rules(&tenant, json!([{"role": "agent", "conditions": condition}])).await;
    let token = |subject: &str, org: &str| idp.token(subject, GATEWAY, json!({"org": org}));
    let (known, unmapped, homeless) = (token("u1", "a"), token("x1", "a"), token("u2", "b"));
    let blocked = bearer(&stage, &known);
    let id = blocked.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
    tenant.platform.post(&format!("/api/v1/identities/{id}/block"), &json!({})).await.expect(200);
    for (person, times) in [(&blocked, 3), (&bearer(&stage, &unmapped), 2), (&bearer(&stage, &homeless), 1)] {
        for _ in 0..times {
            person.get("/api/v1/status").await.refused(403, "forbidden");
        }
    }
    // what is only counted is written when the gateway stops
    let Stage { mut gateway, database, .. } = stage;
    gateway.terminate();
    gateway.ended().await;
    let next = Gateway::start(&database, &SETTINGS).await;
    let own = counted(&next.ask_as(&tenant.platform)).await;
    assert_eq!(own.len(), 2, "{own:?}");
    for (record, (owner, says)) in [("u1", "blocked"), ("x1", "no rule")]
        .map(|(owner, says)| (own.iter().find(|record| record["owner"] == owner).unwrap(), (owner, says)))
    {
        assert!(record["error_message"].as_str().unwrap().contains(says), "{owner} {record}");
        assert_eq!((&record["status"], &record["error_code"]), (&json!("blocked"), &json!("forbidden")));
        assert_eq!((&record["client_address"], &record["key_id"]), (&json!("127.0.0.1"), &Value::Null));
    }
    let of = |owner: &str| own.iter().find(|record| record["owner"] == owner).unwrap();
    assert_eq!(of("u1")["identity_id"], id.as_str());
    assert_eq!(arguments(of("u1")), json!({"issuer": "corp", "count": 3, "addresses": ["127.0.0.1"]}));
    assert!(of("x1")["identity_id"].is_string());
    // whoever belongs to no tenant is in the platform's, without an identity: that is a tenant's
    let platforms = counted(&next.platform()).await;
    assert_eq!(platforms.len(), 1, "{platforms:?}");
    assert!(platforms[0]["error_message"].as_str().unwrap().contains("no tenant"), "{platforms:?}");
    assert_eq!((&platforms[0]["identity_id"], &arguments(&platforms[0])["count"]), (&Value::Null, &json!(1)));
    let written = format!("{own:?}{platforms:?}{}", gateway.log());
    for token in [&known, &unmapped, &homeless] {
        assert!(!written.contains(token.rsplit_once('.').unwrap().1), "a token was written");
    }
}

#[tokio::test]
async fn bad_tokens_of_one_issuer_stop_nobody_else() {
    let (stage, _tenant, idp) = scene().await;
    let beta = stage.tenant("beta").await;
    let other = Idp::start().await;
    register(&stage, &other, "beta-corp", "beta").await;
    set_rules(&beta, json!([{"role": "agent"}])).await;
    let agent = beta.agent().await;
    let valid = idp.sign(&idp.claims("u1", GATEWAY));
    let (signed, signature) = valid.rsplit_once('.').unwrap();
    // a key that the issuer has, and another signature
    let forged: String = signature.chars().rev().collect();
    let flooding = bearer(&stage, &format!("{signed}.{forged}"));
    let over = AtomicBool::new(false);
    let flood = (0..FLOOD).map(|_| async {
        let mut refused = 0;
        while !over.load(Ordering::Relaxed) {
            let answer = flooding.get("/api/v1/status").await;
            assert!(matches!(answer.status, 401 | 503), "{answer:?}");
            refused += 1;
        }
        refused
    });
    let others = async {
        for n in 0..30 {
            let person = bearer(&stage, &other.token("u1", GATEWAY, json!({ "jti": n })));
            person.get("/api/v1/status").await.expect(200);
            agent.get("/api/v1/status").await.expect(200);
        }
        over.store(true, Ordering::Relaxed);
    };
    let (refused, ()) = tokio::join!(futures_util::future::join_all(flood), others);
    assert!(refused.iter().all(|count| *count > 0), "a flood: {refused:?}");
    assert_eq!(bearer(&stage, &valid).get("/api/v1/status").await.status, 200);
}

#[tokio::test]
async fn a_person_sees_the_records_of_the_own_login_alone() {
    let (stage, tenant, idp) = scene().await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let ana = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let id = ana.get("/api/v1/status").await.expect(200)["identity_id"].clone();
    // a key whose person an administrator named has the identity in its records too
    let key = tenant.key(&json!({"role": "agent", "identity_id": id})).await;
    Mcp::bare(&ana).run("write", "up:echo", &json!({})).await.ok();
    Mcp::bare(&key).run("write", "up:echo", &json!({})).await.ok();
    let both = tenant.records(&format!("type=tool_call&identity_id={}", id.as_str().unwrap()), 2).await;
    let of_key = both.iter().find(|record| record["key_id"] == key.id.as_str()).unwrap();
    let calls = "/api/v1/activity?type=tool_call";
    let (own, keys) = (ana.items(calls).await, key.items(calls).await);
    assert_eq!((own.len(), keys.len()), (1, 1), "{own:?} {keys:?}");
    assert_eq!((&own[0]["key_id"], &keys[0]), (&Value::Null, of_key));
    let path = format!("/api/v1/activity/{}", of_key["id"].as_str().unwrap());
    ana.get(&path).await.refused(404, "not_found");
    assert_eq!(ana.get("/api/v1/activity/summary?period=1h").await.expect(200)["top_tools"][0]["calls"], 1);
}
