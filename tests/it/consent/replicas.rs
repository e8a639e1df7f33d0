//! Asked here, answered there, run somewhere else.

use std::time::Duration;

use serde_json::json;

use super::{asked, asking, asking_of, decide, state, write};
use crate::support::upstream::Say;
use crate::support::{Gateway, Tool, eventually, settle};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn any_replica_does_any_step() {
    let (mut stage, tenant, upstream) = asking(&[], json!([])).await;
    let (second, third) =
        (Gateway::start(&stage.database, &[]).await, Gateway::start(&stage.database, &[]).await);
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    // the replica that asked dies
    stage.gateway.kill();
    decide(&second.ask_as(&approver), &id, "allow_once").await.expect(200);
    drop(second);
    write(&third.ask_as(&agent), &json!({"n": 1})).await.ok();
    let approver = third.ask_as(&approver);
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn equal_calls_at_one_moment_are_one_request_and_one_run() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let there = other.ask_as(&agent);
    let args = json!({"n": 1});
    let many = async || {
        let calls = (0..20).map(|n| write(if n % 2 == 0 { &agent } else { &there }, &args));
        futures_util::future::join_all(calls).await
    };
    // the other replica may have to load the tenant first
    eventually("the other replica", SOON, async || {
        (write(&there, &args).await.code() == "consent_pending").then_some(())
    })
    .await;
    for outcome in many().await {
        outcome.refused("consent_pending");
    }
    let [request] = &approver.items("/api/v1/consent").await[..] else { panic!("more than one request") };
    decide(&approver, request["id"].as_str().unwrap(), "allow_once").await.expect(200);
    let codes: Vec<String> = many().await.iter().map(|outcome| outcome.code()).collect();
    assert_eq!(codes.iter().filter(|code| *code == "ok").count(), 1, "{codes:?}");
    assert!(
        codes.iter().all(|code| matches!(&**code, "ok" | "consent_lapsed" | "consent_pending")),
        "{codes:?}"
    );
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn a_call_that_dies_with_its_replica_is_not_run_again() {
    let tools = vec![Tool::writes("writer").says(Say::Hang)];
    let (mut stage, tenant, upstream) = asking_of(&[], json!([]), tools).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, other.ask_as(&tenant.approver().await));
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    let here = agent.clone();
    let running = tokio::spawn(async move { write(&here, &json!({"n": 1})).await });
    settle(1, SOON, async || upstream.counts().calls).await;
    assert_eq!(state(&approver, &id).await, "consumed");
    stage.gateway.kill();
    drop(running);
    let mut connection = stage.database.connect().await;
    // as if it had been silent for long; the other one beats on
    sqlx::query("update replicas set heartbeat_at = now() - interval '1 minute'")
        .execute(&mut connection)
        .await
        .unwrap();
    settle(json!("unknown"), Duration::from_secs(30), || state(&approver, &id)).await;
    let platform = other.ask_as(&tenant.platform);
    let unknown = &platform.items(&format!("/api/v1/activity?tool=consent.unknown&consent_id={id}")).await[0];
    let ended =
        platform.get(&format!("/api/v1/activity/{}", unknown["id"].as_str().unwrap())).await.expect(200);
    assert_eq!((&ended["server"], &ended["arguments"]), (&json!("zoo"), &json!(r#"{"tool":"writer"}"#)));
    assert_ne!(asked(&other.ask_as(&agent), &json!({"n": 1})).await, id);
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn a_step_and_its_record_are_there_together_or_not_at_all() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    let mut connection = stage.database.connect().await;
    let broken = "alter table activity add constraint broken check (type <> 'consent') not valid";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    for n in 1..=2 {
        write(&agent, &json!({ "n": n })).await.refused("consent_undeliverable");
    }
    assert_eq!(upstream.counts().calls, 0);
    assert_eq!(state(&approver, &id).await, "granted");
    assert_eq!(approver.items("/api/v1/consent").await.len(), 1, "nobody was asked without a record");
    sqlx::query("alter table activity drop constraint broken").execute(&mut connection).await.unwrap();
    write(&agent, &json!({"n": 1})).await.ok();
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
}
