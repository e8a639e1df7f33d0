//! API keys.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, masked, settle};

#[tokio::test]
async fn a_keys_life() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let body = json!({"role": "agent", "name": "ci", "owner": "ada@example.com"});
    let made = admin.post("/api/v1/keys", &body).await.expect(201);
    let secret = made["key"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("mcpk_") && secret.len() >= 48, "{}", secret.len());
    let varying = ["id", "key", "prefix", "version", "created_at"];
    insta::assert_json_snapshot!(masked(&made, &varying), @r#"
    {
      "created_at": "[text]",
      "expires_at": null,
      "id": "[text]",
      "identity_id": null,
      "key": "[text]",
      "last_used_at": null,
      "name": "ci",
      "owner": "ada@example.com",
      "owner_given": true,
      "predecessor_id": null,
      "prefix": "[text]",
      "revoked_at": null,
      "role": "agent",
      "successor_id": null,
      "version": "[number]"
    }
    "#);
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    let shown = admin.get(&path).await;
    assert!(!shown.text.contains(&secret), "the secret is shown once");
    assert!(secret.starts_with(shown.json()["prefix"].as_str().unwrap()), "{shown:?}");
    insta::assert_json_snapshot!(masked(&shown.json(), &varying), @r#"
    {
      "created_at": "[text]",
      "expires_at": null,
      "id": "[text]",
      "identity_id": null,
      "last_used_at": null,
      "name": "ci",
      "owner": "ada@example.com",
      "owner_given": true,
      "predecessor_id": null,
      "prefix": "[text]",
      "revoked_at": null,
      "role": "agent",
      "successor_id": null,
      "version": "[number]"
    }
    "#);
    let all = admin.get("/api/v1/keys").await;
    assert!(!all.text.contains(&secret) && all.text.contains("ada@example.com"), "{all:?}");

    let agent = admin.with_key(&secret);
    Mcp::bare(&agent).request("tools/list", "{}").await.expect(200);
    let renamed = admin.patch(&path, &json!({"owner": "bob@example.com"})).await.expect(200);
    assert_eq!(renamed["owner"], "bob@example.com");
    let identity = json!("0199aaaa-0000-7000-8000-000000000001");
    let named = admin.patch(&path, &json!({"identity_id": identity})).await.expect(200);
    assert_eq!((&named["identity_id"], &named["owner"]), (&identity, &json!("bob@example.com")));
    // absent is unchanged, null is none
    assert_eq!(admin.patch(&path, &json!({"name": "ci"})).await.expect(200)["identity_id"], identity);
    assert_eq!(
        admin.patch(&path, &json!({"identity_id": null})).await.expect(200)["identity_id"],
        json!(null)
    );
    admin.patch(&path, &json!({"owner": "eve", "version": made["version"]})).await.refused(409, "conflict");
    admin.delete(&path).await.expect(204);
    assert_eq!(Mcp::bare(&agent).request("tools/list", "{}").await.status, 401);
    let gone = admin.get(&path).await;
    assert!(gone.status == 404 || gone.json()["revoked_at"].is_string(), "{gone:?}");
}

#[tokio::test]
async fn a_key_ends_by_itself() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let end = chrono::Utc::now() + chrono::Duration::seconds(2);
    let agent = tenant.key(&json!({"role": "agent", "expires_at": end.to_rfc3339()})).await;
    agent.get("/api/v1/status").await.expect(200);
    settle(401, Duration::from_secs(4), || {
        let asked = agent.get("/api/v1/status");
        async { asked.await.status }
    })
    .await;
    assert!(chrono::Utc::now() >= end, "it ended before its time");
}

#[tokio::test]
async fn bodies_are_checked() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let cases = [
        (json!({}), "role"),
        (json!({"role": "god"}), "role"),
        (json!({"role": "platform"}), "role"),
        (json!({"role": 7}), "role"),
        (json!({"role": "agent", "name": ""}), "name"),
        (json!({"role": "agent", "owner": "x".repeat(201)}), "owner"),
        (json!({"role": "agent", "name": "one\ntwo"}), "name"),
        (json!({"role": "agent", "owner": "\u{1b}[2J"}), "owner"),
        (json!({"role": "agent", "expires_at": "tomorrow"}), "expires_at"),
        (json!({"role": "agent", "expires_at": "2001-01-01T00:00:00Z"}), "expires_at"),
        (json!({"role": "agent", "settings": {"max_operation": "everything"}}), "max_operation"),
        (json!({"role": "agent", "settings": {"nope": 1}}), "nope"),
        (json!({"role": "agent", "settings": {"response_limit": 1}}), "response_limit"),
        (json!({"role": "agent", "key": "mcpk_mine"}), "key"),
        (json!({"role": "agent", "identity_id": "ana"}), "identity_id"),
        (json!({"role": "agent", "identity_id": 7}), "identity_id"),
    ];
    for (body, field) in cases {
        let answer = tenant.platform.post("/api/v1/keys", &body).await;
        answer.refused(400, "invalid_request");
        let named = answer.json()["error"]["field"].as_str().unwrap_or_default().to_owned();
        assert!(named.ends_with(field), "{body}: {answer:?}");
    }
    let made = tenant.platform.items("/api/v1/keys").await;
    assert_eq!(made, [Value::Null; 0], "a refused key was made");
    for id in ["x", "00000000-0000-0000-0000-000000000000", "..%2f"] {
        let answer = tenant.platform.get(&format!("/api/v1/keys/{id}")).await;
        answer.refused(404, "not_found");
    }
}

#[tokio::test]
async fn a_rotated_key_has_a_successor_with_its_rights() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let expires = "2040-01-31T00:00:00.000Z";
    let old = json!({"role": "agent", "name": "ci", "owner": "ada@example.com", "expires_at": expires,
        "identity_id": "0199aaaa-0000-7000-8000-000000000001", "settings": {"max_operation": "read"}});
    let old = tenant.key(&old).await;
    let path = format!("/api/v1/keys/{}", old.id);
    let rules = json!([{"id": "no-drop", "match": {"tool": "pg:*"}, "effect": "deny"}]);
    let policy = json!({"version": 0, "rules": rules});
    admin.ask(reqwest::Method::PUT, &format!("{path}/policy"), Some(&policy)).await.expect(200);

    let before = chrono::Utc::now();
    let made = admin.post(&format!("{path}/rotate"), &json!({"overlap_s": 2})).await.expect(201);
    assert_eq!(made["replaces"]["id"], old.id.as_str());
    let end = chrono::DateTime::parse_from_rfc3339(made["replaces"]["expires_at"].as_str().unwrap()).unwrap();
    assert!((1..=4).contains(&(end.to_utc() - before).num_seconds()), "{made}");
    let new = admin.with_key(made["key"].as_str().unwrap());
    let shown = admin.get(&path).await.expect(200);
    for field in ["role", "name", "owner", "owner_given", "identity_id"] {
        assert_eq!(made[field], shown[field], "{field}");
    }
    assert_eq!(made["expires_at"], expires);
    assert_ne!(made["id"], shown["id"]);
    for key in [&old, &new] {
        let status = key.get("/api/v1/status").await.expect(200);
        assert_eq!(status["settings"]["max_operation"], "read");
    }
    let copied = format!("/api/v1/keys/{}/policy", made["id"].as_str().unwrap());
    let copied = admin.get(&copied).await.expect(200);
    assert_eq!((&copied["version"], &copied["rules"]), (&json!(1), &rules));

    settle(401, Duration::from_secs(5), || {
        let asked = old.get("/api/v1/status");
        async { asked.await.status }
    })
    .await;
    assert!(chrono::Utc::now() >= end, "it ended before its time");
    new.get("/api/v1/status").await.expect(200);
    // what has ended has no successor, and its rights are not revived
    admin.post(&format!("{path}/rotate"), &json!({})).await.refused(409, "conflict");
    let record = admin.items("/api/v1/activity?type=admin").await;
    let acts: Vec<&Value> =
        record.iter().filter(|record| record.to_string().contains("keys.rotate")).collect();
    assert_eq!(acts.len(), 2, "{record:?}");
    assert!(!format!("{record:?}").contains(made["key"].as_str().unwrap()));
}

#[tokio::test]
async fn a_rotation_never_prolongs_a_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let soon = (chrono::Utc::now() + chrono::Duration::hours(1)).format("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    let key = tenant.key(&json!({"role": "agent", "expires_at": soon})).await;
    let rotate = format!("/api/v1/keys/{}/rotate", key.id);
    let made = admin.post(&rotate, &json!({})).await.expect(201);
    assert_eq!((&made["replaces"]["expires_at"], &made["expires_at"]), (&json!(soon), &json!(soon)));
    for bad in [json!({"overlap_s": 0}), json!({"overlap_s": 2_592_001}), json!({"overlap": 1})] {
        admin.post(&rotate, &bad).await.refused(400, "invalid_request");
    }
    let quota = json!({"quotas": {"keys": 3}});
    stage.platform().patch("/api/v1/tenants/acme", &quota).await.expect(200);
    let other = format!("/api/v1/keys/{}/rotate", admin.id);
    admin.post(&other, &json!({})).await.refused(429, "rate_limited");
}
