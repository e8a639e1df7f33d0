//! Versions of policies: who may change them, what is refused, and what stays.

use serde_json::{Value, json};

use super::{code, put, set, zoo};
use crate::support::{Stage, eventually};

#[tokio::test]
async fn versions_are_kept_and_conflicts_told() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let start = admin.get("/api/v1/policy").await.expect(200);
    assert_eq!(start, json!({"version": 0, "mode": "observe", "rules": [], "warnings": []}));
    let rules = json!([{"id": "a", "effect": "deny", "match": {"tool": "pg:*"}}]);
    let first =
        put(&admin, "/policy", &json!({"version": 0, "mode": "by_risk", "rules": rules})).await.expect(200);
    assert_eq!((&first["version"], &first["mode"], &first["rules"]), (&json!(1), &json!("by_risk"), &rules));
    assert_eq!(first["warnings"], json!(["Rule 'a': 'pg:*' matches no tool that is known now"]));
    assert_eq!(admin.get("/api/v1/settings").await.expect(200)["policy_mode"]["origin"], "tenant");
    put(&admin, "/policy", &json!({"version": 0, "rules": []})).await.refused(409, "conflict");
    let says = put(&admin, "/policy", &json!({"version": 2, "rules": []})).await.refused(409, "conflict");
    assert!(says.contains("version 1 is in force, and this document replaces version 2"), "{says}");
    put(&admin, "/policy", &json!({"rules": []})).await.refused(400, "invalid_request");
    let second = put(&admin, "/policy", &json!({"version": 1, "rules": []})).await.expect(200);
    assert_eq!((&second["version"], &second["mode"]), (&json!(2), &json!("by_risk")));
    let auditor = tenant.auditor().await;
    let versions = auditor.items("/api/v1/policy/versions").await;
    let shown = |item: &Value| (item["version"].clone(), item["mode"].clone(), item["rules"].clone());
    assert_eq!(
        versions.iter().map(shown).collect::<Vec<_>>(),
        [(json!(2), Value::Null, json!([])), (json!(1), json!("by_risk"), rules)]
    );
    assert_eq!(versions[0]["created_by"], admin.id);
    for (number, expected) in [(2, &versions[..1]), (1, &versions[1..]), (3, &[])] {
        let found =
            auditor.get(&format!("/api/v1/policy/versions?version={number}&limit=5")).await.expect(200);
        assert_eq!(found, json!({"items": expected, "next_cursor": null}), "{number}");
    }
    auditor.get("/api/v1/policy/versions?version=0").await.refused(400, "invalid_request");
    // each change has a record of its own kind
    let records = tenant.records("type=policy", 5).await;
    let statuses: Vec<&Value> = records.iter().map(|record| &record["status"]).collect();
    assert_eq!(statuses, ["success", "blocked", "blocked", "blocked", "success"]);
    assert!(records.iter().all(|record| record["tool"] == "policy.update"), "{records:?}");
}

#[tokio::test]
async fn faults_are_named_by_their_path() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let rule = |more: Value| {
        let mut rule = json!({"id": "a", "effect": "ask"});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"version": 0, "rules": [rule]})
    };
    for (body, path, says) in [
        (rule(json!({"mach": {}})), "rules[0].mach", "did you mean 'match'?"),
        (rule(json!({"match": {"tol": "a:*"}})), "rules[0].match.tol", "did you mean 'tool'?"),
        (rule(json!({"match": {"risk": "hig"}})), "rules[0].match.risk", "did you mean 'high'?"),
        (rule(json!({"when": "arg.x == 1"})), "rules[0].when", "did you mean 'args'?"),
        (rule(json!({"ask": {"ttl": 5}})), "rules[0].ask.ttl", "did you mean 'ttl_s'?"),
        (json!({"version": 0, "rule": []}), "rule", "did you mean 'rules'?"),
        (json!({"version": 0, "mode": "by-risk", "rules": []}), "mode", "did you mean 'by_risk'?"),
    ] {
        let answer = put(&tenant.platform, "/policy", &body).await;
        let message = answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], path, "{answer:?}");
        assert!(message.contains(path) && message.contains(says), "{message}");
    }
    assert_eq!(tenant.platform.get("/api/v1/policy").await.expect(200)["version"], 0);
    // rules of all keys together have a bound
    let long =
        json!([{"id": "a", "effect": "deny", "match": {"tool": vec![format!("a:{}", "x".repeat(290)); 60]}}]);
    let many: Vec<Value> = (0..12)
        .map(|n| {
            let mut r = long[0].clone();
            r["id"] = json!(format!("r{n}"));
            r
        })
        .collect();
    let mut kept = 0;
    for _ in 0..6 {
        let agent = tenant.agent().await;
        let body = json!({"version": 0, "rules": many});
        let answer = put(&tenant.platform, &format!("/keys/{}/policy", agent.id), &body).await;
        kept += i32::from(answer.status == 200);
        assert!(answer.status == 200 || answer.status == 429, "{answer:?}");
    }
    assert!((1..6).contains(&kept), "{kept}");
}

#[tokio::test]
async fn the_policy_of_a_key_goes_with_it() {
    let (stage, tenant, _upstream) = zoo(&[]).await;
    let other = stage.tenant("other").await;
    let agent = tenant.agent().await;
    let path = format!("/keys/{}/policy", agent.id);
    let rules = json!([{"id": "none", "effect": "deny"}]);
    put(&other.platform, &path, &json!({"version": 0, "rules": rules})).await.refused(404, "not_found");
    put(&tenant.platform, &path, &json!({"version": 0, "mode": "by_risk", "rules": rules})).await.expect(200);
    assert_eq!(code(&agent, "read", "reader").await, "policy_denied");
    other.platform.get(&format!("/api/v1{path}")).await.refused(404, "not_found");
    let versions = format!("/api/v1/policy/versions?key={}", agent.id);
    other.platform.get(&versions).await.refused(404, "not_found");
    let listed = tenant.platform.items(&versions).await;
    assert_eq!((listed.len(), &listed[0]["rules"], &listed[0]["mode"]), (1, &rules, &json!("by_risk")));
    assert_eq!(tenant.platform.items("/api/v1/policy/versions").await, [Value::Null; 0]);
    tenant.platform.get("/api/v1/policy/versions?key=x").await.refused(400, "invalid_request");
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    put(&tenant.platform, &path, &json!({"version": 1, "rules": []})).await.refused(404, "not_found");
}

#[tokio::test]
async fn rules_of_a_newer_release_deny_every_call() {
    let (stage, tenant, _upstream) = zoo(&[]).await;
    set(&tenant, "always_allow", json!([{"id": "a", "effect": "deny", "match": {"tool": "x:y"}}])).await;
    let agent = tenant.agent().await;
    assert_eq!(code(&agent, "read", "reader").await, "ok");
    let mut connection = stage.database.connect().await;
    sqlx::query(r#"update policies set rules = '[{"id":"a","effect":"ponder"}]', version = 9"#)
        .execute(&mut connection)
        .await
        .unwrap();
    // any change of access has the snapshot loaded again
    tenant.platform.patch("/api/v1/settings", &json!({"rate_limit": 100_000})).await.expect(200);
    eventually("the rules that cannot be read", std::time::Duration::from_secs(5), || async {
        (code(&agent, "read", "reader").await == "policy_denied").then_some(())
    })
    .await;
    let shown = tenant.platform.undocumented().get("/api/v1/policy").await.expect(200);
    assert_eq!(shown["version"], 9);
    assert_eq!(shown["warnings"].as_array().map(Vec::len), Some(1), "{shown}");
    set(&tenant, "always_allow", json!([])).await;
    assert_eq!(code(&agent, "read", "reader").await, "ok");
}
