//! Times, limits, and the end of a turn.

use std::time::Duration;

use serde_json::json;

use super::{asked, asking, decide, lapse, state, write};
use crate::support::{Gateway, Mcp, eventually, settle};

#[tokio::test]
async fn a_key_has_few_open_requests() {
    let settings = [("MCPPROXY__LIMITS__CONSENT_PENDING_PER_KEY", "2")];
    let (_stage, tenant, _upstream) = asking(&settings, json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let first = asked(&agent, &json!({"n": 1})).await;
    asked(&agent, &json!({"n": 2})).await;
    let refused = write(&agent, &json!({"n": 3})).await.refused("consent_throttled");
    let says = refused["message"].as_str().unwrap();
    let wait = "Too many permission requests of this key (2 open); wait for an answer to one of them, or ";
    let left = says.strip_prefix(wait).and_then(|left| left.strip_suffix(" s until one ends"));
    // far longer than the minute over which asks are counted
    assert!((500..=600).contains(&left.unwrap().parse::<u64>().unwrap()), "{says}");
    let body = json!({"tool_variant": "call_tool_write", "name": "zoo:writer", "args": {"n": 3}});
    let over_rest = agent.post("/api/v1/tools/call", &body).await;
    over_rest.refused(429, "consent_throttled");
    assert!(over_rest.header("retry-after").parse::<u64>().unwrap() >= 1);
    // the one that is open already is no new one, and other keys are not concerned
    assert_eq!(asked(&agent, &json!({"n": 1})).await, first);
    asked(&tenant.agent().await, &json!({"n": 1})).await;
    decide(&approver, &first, "reject_once").await.expect(200);
    asked(&agent, &json!({"n": 3})).await;
}

#[tokio::test]
async fn asks_at_one_moment_are_counted_over_replicas() {
    let settings = [("MCPPROXY__LIMITS__CONSENT_PENDING_PER_KEY", "5")];
    let (stage, tenant, _upstream) = asking(&settings, json!([])).await;
    let other = Gateway::start(&stage.database, &settings).await;
    let agent = tenant.agent().await;
    let there = other.ask_as(&agent);
    // the other replica may have to load the tenant first
    eventually("the other replica", Duration::from_secs(5), async || {
        (write(&there, &json!({"n": 0})).await.code() == "consent_pending").then_some(())
    })
    .await;
    let args: Vec<_> = (1..=30).map(|n| json!({ "n": n })).collect();
    let calls =
        args.iter().enumerate().map(|(n, args)| write(if n % 2 == 0 { &agent } else { &there }, args));
    let outcomes = futures_util::future::join_all(calls).await;
    let open = outcomes.iter().filter(|outcome| outcome.code() == "consent_pending").count();
    assert_eq!(open, 4, "besides the one before");
}

#[tokio::test]
async fn a_key_asks_so_often_a_minute() {
    let settings = [("MCPPROXY__LIMITS__CONSENT_ASKS_PER_MINUTE", "2")];
    let (_stage, tenant, _upstream) = asking(&settings, json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    for n in 0..2 {
        let id = asked(&agent, &json!({ "n": n })).await;
        decide(&approver, &id, "reject_once").await.expect(200);
    }
    let refused = write(&agent, &json!({"n": 3})).await.refused("consent_throttled");
    let says = refused["message"].as_str().unwrap();
    let left = says.strip_prefix("Too many permission requests of this key (0 open); wait ").unwrap();
    assert!(left.strip_suffix(" s").unwrap().parse::<u64>().unwrap() <= 60, "{says}");
}

#[tokio::test]
async fn a_tool_that_was_refused_three_times_is_not_asked_about() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    for n in 0..3 {
        let id = asked(&agent, &json!({ "n": n })).await;
        decide(&approver, &id, "reject_once").await.expect(200);
    }
    let refused = write(&agent, &json!({"n": 3})).await.refused("consent_cooldown");
    let says = refused["message"].as_str().unwrap();
    assert!(
        says.starts_with("'zoo:writer' was refused 3 times; it is refused automatically until "),
        "{says}"
    );
    // another tool and another key are not concerned
    Mcp::bare(&agent).run("read", "zoo:reader", &json!({})).await.refused("consent_pending");
    asked(&tenant.agent().await, &json!({})).await;
}

#[tokio::test]
async fn nobody_answers_in_time() {
    let rule = json!([{"id": "short", "effect": "ask", "ask": {"ttl_s": 10}}]);
    let (stage, tenant, _upstream) = asking(&[], rule).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({})).await;
    let granted = asked(&agent, &json!({"n": 2})).await;
    decide(&approver, &granted, "allow_once").await.expect(200);
    let mut connection = stage.database.connect().await;
    sqlx::query("update consent_requests set expires_at = now() - interval '1 second'")
        .execute(&mut connection)
        .await
        .unwrap();
    // whether or not it was swept meanwhile
    assert_eq!(state(&approver, &id).await, "timed_out");
    assert_eq!(lapse(&approver, &granted).await, "not_repeated");
    // as a replica of an older release ends one before its time
    let older = asked(&agent, &json!({"n": 3})).await;
    sqlx::query("update consent_requests set state = 'lapsed', ended_at = now() where id = $1::uuid")
        .bind(&older)
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(lapse(&approver, &older).await, json!(null));
    let says = decide(&approver, &id, "allow_once").await.refused(409, "conflict");
    let begins = "this request is timed out already; it stays as it is: nobody answered by ";
    assert!(says.starts_with(begins) && says.ends_with("the same call asks again"), "{says}");
    let refused = write(&agent, &json!({})).await.refused("consent_timed_out");
    let says =
        format!("Nobody answered within 10 s ({id}); the call was not made. The same call asks once more");
    assert_eq!(refused["message"], says);
    assert_ne!(asked(&agent, &json!({})).await, id, "it is told once");
    assert_ne!(asked(&agent, &json!({"n": 2})).await, granted, "an allow ends with its request");
    settle(2, Duration::from_secs(20), async || {
        let swept = "select count(*) from consent_requests where state in ('timed_out', 'lapsed')";
        let mut connection = stage.database.connect().await;
        sqlx::query_scalar::<_, i64>(swept).fetch_one(&mut connection).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_turn_is_fenced() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let granted = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &granted, "allow_once").await.expect(200);
    let (pending, id) = (asked(&agent, &json!({"n": 2})).await, asked(&agent, &json!({"n": 3})).await);
    let elsewhere = tenant.agent().await;
    let others = asked(&elsewhere, &json!({"n": 1})).await;
    assert_eq!(decide(&approver, &id, "cancel_turn").await.expect(200)["state"], "cancelled");
    for id in [&granted, &pending, &id] {
        assert_eq!(state(&approver, id).await, "cancelled", "{id}");
    }
    assert_eq!(state(&approver, &others).await, "pending");
    // no era, session or argument of the client gets around the fence
    for n in [1, 2, 9] {
        let refused = write(&agent, &json!({ "n": n })).await.refused("turn_cancelled");
        let begins = "The user stopped this turn; no further calls until the next instruction. Calls that need permission \
                      are refused until ";
        let until = refused["message"].as_str().unwrap().strip_prefix(begins).expect(begins);
        let until = chrono::DateTime::parse_from_rfc3339(until).unwrap();
        let left = until.to_utc() - chrono::Utc::now();
        assert!((0..=30).contains(&left.num_seconds()), "{refused}");
    }
    for client in [Mcp::modern(&agent), Mcp::session(&agent).await] {
        client.run("write", "zoo:writer", &json!({"n": 1})).await.refused("turn_cancelled");
    }
    assert_eq!(upstream.counts().calls, 0);
    let mut connection = stage.database.connect().await;
    sqlx::query("update consent_fences set ends_at = now()").execute(&mut connection).await.unwrap();
    asked(&agent, &json!({"n": 1})).await;
}

#[tokio::test]
async fn a_session_is_fenced_with_those_that_come_after() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let (first, second) = (Mcp::session(&agent).await, Mcp::session(&agent).await);
    let refused = first.run("write", "zoo:writer", &json!({"n": 1})).await.refused("consent_pending");
    // a session that began in the second of the fence cannot prove that it is older
    let began = chrono::Utc::now().timestamp();
    eventually("the next second", Duration::from_secs(5), async || {
        (chrono::Utc::now().timestamp() > began).then_some(())
    })
    .await;
    decide(&approver, refused["consent_id"].as_str().unwrap(), "cancel_turn").await.expect(200);
    first.run("write", "zoo:writer", &json!({"n": 2})).await.refused("turn_cancelled");
    second.run("write", "zoo:writer", &json!({"n": 2})).await.refused("consent_pending");
    let third = Mcp::session(&agent).await;
    third.run("write", "zoo:writer", &json!({"n": 2})).await.refused("turn_cancelled");
    Mcp::modern(&agent).run("write", "zoo:writer", &json!({"n": 2})).await.refused("turn_cancelled");
}
