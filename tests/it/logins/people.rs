//! People as callers: what holds for a key holds for them.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{GATEWAY, SETTINGS, bearer, register, scene, set_rules};
use crate::support::{Ear, Gateway, Mcp, Stage, Tool, Upstream, eventually, now_s, settle};

const SOON: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_person_calls_tools_and_is_recorded() {
    let (stage, tenant, idp) = scene().await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let token = idp.token("u1", GATEWAY, json!({"email": "ana@acme.example"}));
    let (ana, bob) = (bearer(&stage, &token), bearer(&stage, &idp.token("u2", GATEWAY, json!({}))));
    Mcp::bare(&ana).run("write", "up:echo", &json!({"x": 1})).await.ok();
    Mcp::modern(&bob).run("write", "up:echo", &json!({"x": 2})).await.ok();

    let records = tenant.records("type=tool_call", 2).await;
    let own: Vec<&Value> = records.iter().filter(|record| record["owner"] == "ana@acme.example").collect();
    assert_eq!(own.len(), 1, "{records:?}");
    let (record, id) = (own[0], own[0]["identity_id"].as_str().unwrap());
    assert_eq!((&record["key_id"], &record["key_name"]), (&Value::Null, &Value::Null));
    assert_eq!(tenant.records(&format!("identity_id={id}&type=tool_call"), 1).await[0]["id"], record["id"]);
    assert_eq!(ana.get("/api/v1/status").await.expect(200)["identity_id"], id);
    // an agent sees its own records only
    let calls = "/api/v1/activity?type=tool_call";
    assert_eq!(&*ana.items(calls).await, std::slice::from_ref(record));
    assert_eq!(bob.items(calls).await.len(), 1);
    let path = format!("/api/v1/activity/{}", record["id"].as_str().unwrap());
    ana.get(&path).await.expect(200);
    bob.get(&path).await.refused(404, "not_found");
    assert_eq!(ana.get("/api/v1/activity/summary?period=1h").await.expect(200)["top_tools"][0]["calls"], 1);

    let people = eventually("two people", Duration::from_secs(5), || {
        let people = tenant.platform.items("/api/v1/identities");
        async move { Some(people.await).filter(|people| people.len() == 2) }
    });
    let people = people.await;
    let shown = people.iter().find(|person| person["id"] == id).unwrap();
    let named = [&shown["issuer"], &shown["subject"], &shown["owner"], &shown["email"], &shown["role"]];
    assert_eq!(named, ["corp", "u1", "ana@acme.example", "ana@acme.example", "agent"]);
    assert_eq!(shown["blocked_at"], Value::Null);

    // the token went nowhere
    let written = format!("{records:?}{}", stage.gateway.log());
    let signature = token.rsplit_once('.').unwrap().1;
    assert!(!written.contains(signature));
    assert!(upstream.sent("authorization").iter().all(|header| !header.contains(signature)));
    assert!(!format!("{:?}", upstream.calls()).contains(signature));
}

#[tokio::test]
async fn a_block_holds_within_a_second_everywhere() {
    let (stage, tenant, idp) = scene().await;
    let other = Gateway::start(&stage.database, &SETTINGS).await;
    let minted = now_s() - 5;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({"iat": minted})));
    let there = other.ask_as(&person);
    there.get("/api/v1/status").await.expect(200);
    let ear = Ear::of(&Mcp::session(&person).await, None).await;
    let far_ear = Ear::of(&Mcp::session(&there).await, None).await;
    let id = person.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
    let block = format!("/api/v1/identities/{id}/block");
    settle(true, Duration::from_secs(5), || async {
        tenant.platform.items("/api/v1/identities").await.iter().any(|person| person["id"] == id.as_str())
    })
    .await;
    let blocked = tenant.platform.post(&block, &json!({})).await.expect(200);
    assert!(blocked["blocked_at"].is_string());
    let said = person.get("/api/v1/status").await.refused(403, "forbidden");
    assert_eq!(said, "this account is blocked here");
    settle(403, SOON, || async { there.get("/api/v1/status").await.status }).await;
    ear.ends(SOON).await;
    far_ear.ends(SOON).await;
    // a new token does not help
    let again = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    again.get("/api/v1/status").await.refused(403, "forbidden");
    // after the block, only a new token does
    tenant.platform.post(&block.replace("/block", "/unblock"), &json!({})).await.expect(200);
    assert_eq!(
        person.get("/api/v1/status").await.refused(401, "unauthenticated"),
        "the access token has expired"
    );
    let later = bearer(&stage, &idp.token("u1", GATEWAY, json!({"iat": now_s() + 1})));
    later.get("/api/v1/status").await.expect(200);
    let nobody = "/api/v1/identities/00000000-0000-8000-8000-000000000000/block";
    tenant.platform.post(nobody, &json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn another_rule_holds_at_once_for_calls_and_streams() {
    let (stage, tenant, idp) = scene().await;
    let other = Gateway::start(&stage.database, &SETTINGS).await;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({"groups": ["dev"]})));
    let there = other.ask_as(&person);
    let role = |api: crate::support::Api| async move {
        let answer = api.get("/api/v1/status").await;
        answer.json()["role"].as_str().unwrap_or("none").to_owned()
    };
    assert_eq!(
        (role(person.clone()).await, role(there.clone()).await),
        ("agent".to_owned(), "agent".to_owned())
    );
    let ear = Ear::of(&Mcp::session(&there).await, None).await;
    let condition = json!([{"claim": "groups", "op": "contains", "value": "dev"}]);
    set_rules(&tenant, json!([{"conditions": condition, "role": "operator"}])).await;
    assert_eq!(role(person.clone()).await, "operator");
    settle("operator".to_owned(), SOON, || role(there.clone())).await;
    // the issuer goes, and with it all its people and their streams
    stage.platform().delete("/api/v1/issuers/corp").await.expect(204);
    assert_eq!(person.get("/api/v1/status").await.status, 401);
    settle(401, SOON, || async { there.get("/api/v1/status").await.status }).await;
    ear.ends(SOON).await;
}

#[tokio::test]
async fn a_session_is_the_persons_whatever_the_token() {
    let (stage, _tenant, idp) = scene().await;
    let first = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let session = Mcp::session(&first).await;
    let refreshed = bearer(&stage, &idp.token("u1", GATEWAY, json!({"jti": "2"})));
    assert_ne!(first.key, refreshed.key);
    Mcp::in_session(&refreshed, session.session_id()).request("ping", "{}").await.expect(200);
    let stranger = bearer(&stage, &idp.token("u2", GATEWAY, json!({})));
    assert_eq!(Mcp::in_session(&stranger, session.session_id()).request("ping", "{}").await.status, 404);
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let settings = [SETTINGS[0], ("MCPPROXY__IDENTITY__LEEWAY_S", "1")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let idp = crate::support::Idp::start().await;
    register(&stage, &idp, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({"exp": now_s() + 2})));
    let ear = Ear::of(&Mcp::session(&person).await, None).await;
    ear.ends(Duration::from_secs(6)).await;
    settle(401, Duration::from_secs(2), || async { person.get("/api/v1/status").await.status }).await;
}

#[tokio::test]
async fn limits_hold_for_a_person_over_all_tokens() {
    let (stage, tenant, idp) = scene().await;
    set_rules(&tenant, json!([{"role": "agent", "settings": {"rate_limit": 2}}])).await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let token = |n: i64| bearer(&stage, &idp.token("u1", GATEWAY, json!({"jti": n})));
    let mut codes = Vec::new();
    for n in 0..3 {
        codes.push(Mcp::bare(&token(n)).run("write", "up:echo", &json!({})).await.code());
    }
    assert_eq!(codes, ["ok", "ok", "rate_limited"]);
    let other = bearer(&stage, &idp.token("u2", GATEWAY, json!({})));
    assert_eq!(Mcp::bare(&other).run("write", "up:echo", &json!({})).await.code(), "ok");
}

#[tokio::test]
async fn people_of_one_tenant_do_not_exist_in_another() {
    let (stage, _acme, idp) = scene().await;
    let beta = stage.tenant("beta").await;
    let other = crate::support::Idp::start().await;
    register(&stage, &other, "beta-corp", "beta").await;
    set_rules(&beta, json!([{"role": "admin", "conditions": [{"claim": "sub", "op": "present"}]}])).await;
    let ana = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let id = ana.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
    let admin = bearer(&stage, &other.token("u1", GATEWAY, json!({})));
    assert_ne!(admin.get("/api/v1/status").await.expect(200)["identity_id"], id.as_str());
    admin.post(&format!("/api/v1/identities/{id}/block"), &json!({})).await.refused(404, "not_found");
    assert!(admin.items("/api/v1/identities").await.iter().all(|person| person["id"] != id.as_str()));
    let rule = json!({"version": 1, "rules": [{"issuer": "corp", "role": "agent"}]});
    let said = admin.ask(Method::PUT, "/api/v1/identity/rules", Some(&rule)).await;
    assert_eq!(said.refused(400, "invalid_request"), "no issuer 'corp' has people of this tenant");
    ana.get("/api/v1/status").await.expect(200);
}
