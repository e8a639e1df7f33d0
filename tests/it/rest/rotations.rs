//! Keys that are rotated more than once, and ended keys.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, Stage, settle};

const EXPIRES: &str = "2040-01-31T00:00:00.000Z";

async fn rotate(admin: &Api, key: &Value) -> Value {
    admin.post(&format!("/api/v1/keys/{}/rotate", key.as_str().unwrap()), &json!({})).await.expect(201)
}

/// Rotates a key that has a successor, which the refusal names.
async fn is_refused(admin: &Api, key: &Value, successor: &Value) {
    let path = format!("/api/v1/keys/{}/rotate", key.as_str().unwrap());
    let says = admin.post(&path, &json!({})).await.refused(409, "conflict");
    let revoke = format!("mcpproxy key revoke {}", successor.as_str().unwrap());
    assert!(says.contains(&revoke), "{says}");
}

async fn revoke(admin: &Api, key: &Value) {
    admin.delete(&format!("/api/v1/keys/{}", key.as_str().unwrap())).await.expect(204);
}

#[tokio::test]
async fn a_key_with_a_successor_is_rotated_again_once_that_is_revoked() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let old = json!(tenant.key(&json!({"role": "agent", "expires_at": EXPIRES})).await.id);
    let lost = rotate(&admin, &old).await;
    is_refused(&admin, &old, &lost["id"]).await;
    revoke(&admin, &lost["id"]).await;
    let again = rotate(&admin, &old).await;
    assert_eq!(again["expires_at"], EXPIRES);
    assert_eq!(again["replaces"]["expires_at"], lost["replaces"]["expires_at"]);
    is_refused(&admin, &old, &again["id"]).await;
    // a successor further on is one as well, and the latest that was not revoked is named
    let last = rotate(&admin, &again["id"]).await;
    is_refused(&admin, &old, &last["id"]).await;
    is_refused(&admin, &again["id"], &last["id"]).await;
    revoke(&admin, &last["id"]).await;
    is_refused(&admin, &old, &again["id"]).await;
    assert_eq!(rotate(&admin, &again["id"]).await["expires_at"], EXPIRES);
    // nor do keys that only were made alike belong to it
    let other = json!(tenant.key(&json!({"role": "agent"})).await.id);
    assert_eq!(rotate(&admin, &other).await["expires_at"], Value::Null);
}

/// The end that a rotation gives a key is not one that somebody chose.
#[tokio::test]
async fn an_expiry_that_was_set_after_a_rotation_holds_for_the_next_successor() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    for chosen in [json!("2035-01-31T00:00:00.000Z"), Value::Null] {
        let old = json!(tenant.key(&json!({"role": "agent", "expires_at": EXPIRES})).await.id);
        let path = format!("/api/v1/keys/{}", old.as_str().unwrap());
        let lost = rotate(&admin, &old).await;
        admin.patch(&path, &json!({"expires_at": chosen})).await.expect(200);
        revoke(&admin, &lost["id"]).await;
        let again = rotate(&admin, &old).await;
        assert_eq!(again["expires_at"], chosen);
        // another name is no other expiry
        admin.patch(&path, &json!({"name": "renamed"})).await.expect(200);
        revoke(&admin, &again["id"]).await;
        assert_eq!(rotate(&admin, &old).await["expires_at"], chosen);
    }
}

#[tokio::test]
async fn keys_name_what_they_replace_and_what_replaces_them() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let old = json!(tenant.agent().await.id);
    let lost = rotate(&admin, &old).await;
    revoke(&admin, &lost["id"]).await;
    let new = rotate(&admin, &old).await;
    let links = async |id: &Value| {
        let key = admin.get(&format!("/api/v1/keys/{}", id.as_str().unwrap())).await.expect(200);
        [key["predecessor_id"].clone(), key["successor_id"].clone()]
    };
    assert_eq!(links(&old).await, [Value::Null, new["id"].clone()]);
    assert_eq!(links(&lost["id"]).await, [old.clone(), Value::Null]);
    assert_eq!(links(&new["id"]).await, [old.clone(), Value::Null]);
    assert_eq!([&new["predecessor_id"], &new["successor_id"]], [&old, &Value::Null]);
}

#[tokio::test]
async fn of_two_rotations_at_one_moment_one_wins() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, key) = (tenant.admin().await, tenant.agent().await);
    let path = format!("/api/v1/keys/{}/rotate", key.id);
    let rotations = (0..6).map(|_| admin.post(&path, &json!({})));
    let answers = futures_util::future::join_all(rotations).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
}

#[tokio::test]
async fn an_expired_key_takes_no_place_of_the_quota() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let quota = json!({"quotas": {"keys": 2}});
    stage.platform().patch("/api/v1/tenants/acme", &quota).await.expect(200);
    let admin = tenant.admin().await;
    let end = chrono::Utc::now() + chrono::Duration::seconds(4);
    let ended = tenant.key(&json!({"role": "agent", "expires_at": end.to_rfc3339()})).await.id;
    admin.post("/api/v1/keys", &json!({"role": "agent"})).await.refused(429, "rate_limited");
    settle(201, Duration::from_secs(9), || {
        let made = admin.post("/api/v1/keys", &json!({"role": "agent"}));
        async { made.await.status }
    })
    .await;
    assert!(chrono::Utc::now() >= end, "it took a place until its end");
    let used = &stage.platform().get("/api/v1/tenants/acme").await.expect(200)["quotas"]["keys"]["used"];
    assert_eq!(used, &json!(2));
    // or a tenant would have as many keys as it likes
    let path = format!("/api/v1/keys/{ended}");
    let says = admin.patch(&path, &json!({"expires_at": EXPIRES})).await.refused(409, "conflict");
    assert!(says.contains("has ended and cannot be prolonged"), "{says}");
    admin.patch(&path, &json!({"name": "of old"})).await.expect(200);
}

/// To revoke the successor and rotate the old key again would leave no key.
#[tokio::test]
async fn of_an_ended_key_the_successor_is_rotated() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, key) = (tenant.admin().await, tenant.agent().await);
    let path = format!("/api/v1/keys/{}/rotate", key.id);
    admin.post(&path, &json!({"overlap_s": 1})).await.expect(201);
    let says = || {
        let again = admin.post(&path, &json!({}));
        async {
            again.await.refused(409, "conflict").contains("has ended and has a successor: rotate that one")
        }
    };
    settle(true, Duration::from_secs(9), says).await;
}
