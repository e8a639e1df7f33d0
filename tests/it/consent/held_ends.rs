//! Ends of the wait for a handshake client, and the bounds of what it is asked meanwhile.

use serde_json::{Value, json};
use tokio::sync::watch;

use super::held::{Held, client, reply, result};
use super::in_band::accept;
use super::{asking, decide, set};
use crate::rounds::asks_twice;
use crate::support::upstream::{Say, Talk};
use crate::support::{Gateway, Mcp, Stage, Tenant, Tool, Upstream, eventually, settle};

const SOON: std::time::Duration = std::time::Duration::from_secs(5);
/// A form of a server.
const FORM: &str = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}"#;
/// Most questions of one server in one call that wait at the same time.
const QUESTIONS_MAX: usize = 8;
/// Most rounds of one call.
const ROUNDS_MAX: usize = 16;

/// A tenant whose calls of the server are allowed, all but those of the tool that writes.
async fn tenant_of(upstream: &Upstream) -> (Stage, Tenant) {
    let stage = Stage::with(&[]).await;
    let tenant = stage.tenant("acme").await;
    tenant.add("zoo", upstream).await;
    let free = json!([{"id": "free", "effect": "allow", "match": {"tool": "zoo:free"}}]);
    set(&tenant, free).await;
    (stage, tenant)
}

async fn only(tenant: &Tenant) -> String {
    let items = tenant.platform.items("/api/v1/consent").await;
    assert_eq!(items.len(), 1, "{items:?}");
    items[0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_client_is_told_that_its_call_waits_and_the_wait_is_not_the_calls_time() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    let told = held.next().await.expect("a message");
    assert_eq!(told["method"], "notifications/progress", "{told}");
    assert_eq!(told["params"]["progressToken"], 9, "{told}");
    assert!(told["params"]["progress"].as_f64().unwrap() > 0.0, "{told}");
    reply(&client, &question, &result(&accept("allow_once"))).await;
    assert_eq!(held.code().await, "ok");
    let path = format!("/api/v1/activity?key={}&type=tool_call", agent.id);
    let records = eventually("the record of the call", SOON, async || {
        let records = tenant.platform.items(&path).await;
        records.iter().any(|record| record["status"] == "success").then_some(records)
    })
    .await;
    assert!(records.iter().all(|record| record["duration_ms"].as_f64().unwrap() < 10_000.0), "{records:?}");
}

#[tokio::test]
async fn a_server_has_so_many_questions_open_and_no_more() {
    let (gate, opened) = watch::channel(false);
    let asks = vec![("elicitation/create", FORM); QUESTIONS_MAX + 1];
    let talk = Talk { asks, gate: opened, bytes: 0, is_patient: false };
    let upstream = Upstream::handshake(vec![Tool::writes("free").says(Say::Talks(talk))]).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    let client = client(&tenant.agent().await).await;
    let mut held = Held::call(&client, "7", "free", "{}").await;
    let mut asked = Vec::new();
    for _ in 0..QUESTIONS_MAX {
        asked.push(held.question().await.0);
    }
    settle(1, SOON, || async { upstream.replies().len() }).await;
    assert!(upstream.replies()[0].contains("-32603"), "{:?}", upstream.replies());
    gate.send_replace(true);
    for _ in 0..QUESTIONS_MAX {
        let taken_back = held.next().await.expect("a message");
        assert_eq!(taken_back["method"], "notifications/cancelled", "{taken_back}");
        let id = taken_back["params"]["requestId"].as_str().unwrap();
        asked.retain(|own| own != id);
    }
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(held.code().await, "ok");
}

#[tokio::test]
async fn a_call_has_so_many_rounds_and_no_more() {
    let ask = format!(r#"{{"method":"elicitation/create","params":{FORM}}}"#);
    let asks =
        format!(r#"{{"resultType":"input_required","requestState":"a","inputRequests":{{"who":{ask}}}}}"#);
    let rounds = ["", r#""a""#].map(|state| (state.to_owned(), Say::Result(asks.clone())));
    let upstream = Upstream::modern(vec![Tool::writes("free").says(Say::Rounds(rounds.to_vec()))]).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    let client = client(&tenant.agent().await).await;
    let mut held = Held::call(&client, "7", "free", "{}").await;
    for _ in 1..ROUNDS_MAX {
        let (question, _) = held.question().await;
        reply(&client, &question, &result(r#"{"action":"accept","content":{}}"#)).await;
    }
    assert_eq!((&*held.code().await, upstream.counts().calls), ("upstream_needs_input", ROUNDS_MAX));
}

#[tokio::test]
async fn a_question_that_its_server_takes_back_is_withdrawn() {
    let (gate, opened) = watch::channel(false);
    let upstream = Upstream::handshake(vec![Tool::writes("free").says(Say::Retracts(FORM, opened))]).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    let client = client(&tenant.agent().await).await;
    let mut held = Held::call(&client, "7", "free", "{}").await;
    let (question, _) = held.question().await;
    gate.send_replace(true);
    held.withdrawn(&question).await;
    reply(&client, &question, &result(r#"{"action":"decline"}"#)).await;
    assert!(upstream.replies().is_empty(), "{:?}", upstream.replies());
    let recorded = tenant.records("type=question&status=cancelled", 1).await;
    assert!(recorded[0]["wait_ms"].is_number(), "{recorded:?}");
}

#[tokio::test]
async fn answers_that_are_too_long_together_reach_no_server() {
    let ask = format!(r#"{{"method":"elicitation/create","params":{FORM}}}"#);
    let asks = format!(
        r#"{{"resultType":"input_required","requestState":"a","inputRequests":{{"one":{ask},"two":{ask}}}}}"#
    );
    let done = r#"{"resultType":"complete","content":[]}"#;
    let rounds = [("", &*asks), (r#""a""#, done)];
    let rounds = rounds.map(|(state, said)| (state.to_owned(), Say::Result(said.to_owned())));
    let upstream = Upstream::modern(vec![Tool::writes("free").says(Say::Rounds(rounds.to_vec()))]).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    let client = client(&tenant.agent().await).await;
    for (calls, bytes, code) in [(2, 1000, "ok"), (3, 600_000, "upstream_needs_input")] {
        let mut held = Held::call(&client, "7", "free", "{}").await;
        let long = json!({"action": "accept", "content": {"name": "x".repeat(bytes)}}).to_string();
        for _ in 0..2 {
            let (question, _) = held.question().await;
            reply(&client, &question, &result(&long)).await;
        }
        assert_eq!((&*held.code().await, upstream.counts().calls), (code, calls));
    }
}

#[tokio::test]
async fn a_replica_that_stops_ends_the_wait() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let mut other = Gateway::start(&stage.database, &[]).await;
    let agent = tenant.agent().await;
    let own = client(&other.ask_as(&agent)).await;
    let mut held = Held::begin(&own, "7").await;
    let (question, _) = held.question().await;
    other.terminate();
    held.withdrawn(&question).await;
    assert_eq!(held.code().await, "consent_pending");
    assert!(other.ended().await.success());
    // the request stays open for the same call at another replica
    let there = Mcp::in_session(&agent, own.session_id()).declaring(r#"{"elicitation":{}}"#);
    assert_eq!(Held::begin(&there, "8").await.question().await.1["mode"], "form");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn the_end_of_a_turn_ends_the_wait_for_what_a_server_asks() {
    let tools = vec![asks_twice(Tool::writes("free")), Tool::writes("writer")];
    let upstream = Upstream::modern(tools).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    let agent = tenant.agent().await;
    let client = client(&agent).await;
    let mut held = Held::call(&client, "7", "free", "{}").await;
    let (question, form): (String, Value) = held.question().await;
    assert!(form["message"].as_str().unwrap().ends_with("Who?"), "{form}");
    let plain = Mcp::bare(&agent).run("write", "zoo:writer", &json!({})).await;
    plain.refused("consent_pending");
    let approver = tenant.approver().await;
    decide(&approver, &only(&tenant).await, "cancel_turn").await.expect(200);
    held.withdrawn(&question).await;
    assert_eq!(held.code().await, "turn_cancelled");
    assert_eq!(upstream.counts().calls, 1);
}
