//! Blocks of people who are hardly known: before the first call, right after it, and long after the last.

use std::time::Duration;

use serde_json::{Value, json};

use super::{GATEWAY, SETTINGS, bearer, register, scene, scene_with, set_rules};
use crate::support::{Gateway, Idp, Stage, cli, settle};

const SOON: Duration = Duration::from_secs(1);
const BLOCKED: &str = "this account is blocked here";

#[tokio::test]
async fn a_person_is_blocked_before_the_first_call() {
    let (stage, tenant, idp) = scene().await;
    let other = Gateway::start(&stage.database, &SETTINGS).await;
    let path = "/api/v1/identities/block";
    for (field, value) in [("subject", ""), ("subject", "a\nb")] {
        let mut wrong = json!({"issuer": "corp", "subject": "u1"});
        wrong[field] = json!(value);
        let answer = tenant.platform.post(path, &wrong).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], field, "{value}");
    }
    // an issuer whose people are another tenant's is no issuer here
    let beta = stage.tenant("beta").await;
    for (platform, issuer) in [(&tenant.platform, "nobody"), (&beta.platform, "corp")] {
        let answer = platform.post(path, &json!({"issuer": issuer, "subject": "u1"})).await;
        assert_eq!(answer.refused(404, "not_found"), "issuer not found");
    }
    let body = json!({"issuer": "corp", "subject": "u1"});
    let made = tenant.platform.post(path, &body).await.expect(200);
    let unseen = [&made["owner"], &made["role"], &made["last_seen_at"]];
    assert_eq!(unseen, [&json!("u1"), &Value::Null, &Value::Null], "{made}");
    assert!(made["blocked_at"].is_string(), "{made}");
    assert_eq!(tenant.platform.items("/api/v1/identities").await, std::slice::from_ref(&made));
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    assert_eq!(person.get("/api/v1/status").await.refused(403, "forbidden"), BLOCKED);
    settle(403, SOON, || async { other.ask_as(&person).get("/api/v1/status").await.status }).await;
    bearer(&stage, &idp.token("u2", GATEWAY, json!({}))).get("/api/v1/status").await.expect(200);
    // once more is no error, and the first time stays
    let again = tenant.platform.post(path, &body).await.expect(200);
    assert_eq!((&again["id"], &again["blocked_at"]), (&made["id"], &made["blocked_at"]));
    let id = made["id"].as_str().unwrap();
    tenant.platform.post(&format!("/api/v1/identities/{id}/unblock"), &json!({})).await.expect(200);
    let run =
        cli(&tenant.admin().await, &["identity", "block", "--issuer", "corp", "--subject", "u3"]).await.ok();
    assert!(run.err.contains("is blocked"), "{run:?}");
    let third = bearer(&stage, &idp.token("u3", GATEWAY, json!({})));
    assert_eq!(third.get("/api/v1/status").await.refused(403, "forbidden"), BLOCKED);
}

#[tokio::test]
async fn a_person_can_be_blocked_right_after_the_first_call() {
    let (stage, tenant, idp) = scene().await;
    for n in 0..5 {
        let person = bearer(&stage, &idp.token(&format!("u{n}"), GATEWAY, json!({})));
        let id = person.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
        let blocked =
            tenant.platform.post(&format!("/api/v1/identities/{id}/block"), &json!({})).await.expect(200);
        assert_eq!(blocked["subject"], format!("u{n}"));
        assert_eq!(person.get("/api/v1/status").await.refused(403, "forbidden"), BLOCKED);
    }
}

#[tokio::test]
async fn who_was_not_seen_for_long_is_forgotten_but_for_the_blocked() {
    let stage = Stage::with(&[SETTINGS[0], ("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")]).await;
    let (tenant, idp) = (stage.tenant("acme").await, Idp::start().await);
    register(&stage, &idp, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "agent"}])).await;
    for subject in ["recent", "old", "blocked", "unblocked"] {
        let person = bearer(&stage, &idp.token(subject, GATEWAY, json!({})));
        let id = person.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
        let acts: &[&str] = match subject {
            "blocked" => &["block"],
            "unblocked" => &["block", "unblock"],
            _ => &[],
        };
        for act in acts {
            tenant.platform.post(&format!("/api/v1/identities/{id}/{act}"), &json!({})).await.expect(200);
        }
    }
    settle(4, Duration::from_secs(5), || stage.database.count("select count(*) from identities")).await;
    let statement =
        "update identities set last_seen_at = now() - interval '401 days' where subject <> 'recent'";
    sqlx::raw_sql(statement).execute(&mut stage.database.connect().await).await.unwrap();
    settle(3, Duration::from_secs(15), || stage.database.count("select count(*) from identities")).await;
    assert_eq!(stage.database.count("select count(*) from identities where subject = 'old'").await, 0);
    // and comes back with the next call
    let person = bearer(&stage, &idp.token("old", GATEWAY, json!({"jti": "2"})));
    person.get("/api/v1/status").await.expect(200);
}

#[tokio::test]
async fn a_token_as_large_as_the_setting_says_is_read() {
    let (stage, _tenant, idp) = scene_with(&[]).await;
    let sized = |bytes: usize| {
        let token = |pad: usize| idp.token("u1", GATEWAY, json!({"pad": "x".repeat(pad)}));
        // four characters for three bytes
        token((bytes - token(0).len()) * 3 / 4)
    };
    for bytes in [15_000, 16_380] {
        let token = sized(bytes);
        assert!(token.len() <= 16_384 && token.len() + 8 > bytes, "{}", token.len());
        bearer(&stage, &token).get("/api/v1/status").await.expect(200);
    }
    bearer(&stage, &sized(16_400)).get("/api/v1/status").await.refused(401, "unauthenticated");
}
