//! Answers of the person at a modern client, inside of the call (MCP 2026-07-28, multi-round-trip requests).

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;

use super::{asking, decide, set, state};
use crate::rounds::{asks_twice, client, state_of};
use crate::support::{Api, Gateway, Mcp, Outcome, Stage, Tenant, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);
pub(super) const ARGS: &str = r#"{"path":"/a","password":"hunter2hunter2"}"#;

/// Calls a tool that writes, with further members of `params`.
pub(super) async fn call(client: Mcp, tool: &str, args: &str, more: &str) -> Outcome {
    let params =
        format!(r#"{{"name":"call_tool_write","arguments":{{"name":"zoo:{tool}","args":{args}}}{more}}}"#);
    Outcome { answer: client.request("tools/call", &params).await }
}

/// Further members: this answer to the gateway's question, with the state.
pub(super) fn answer(answer: &str, state: &str) -> String {
    format!(r#","inputResponses":{{"mcpproxy.consent":{answer}}},"requestState":"{state}""#)
}

/// Answer of a person who chose this decision.
pub(super) fn accept(decision: &str) -> String {
    format!(r#"{{"action":"accept","content":{{"decision":"{decision}"}}}}"#)
}

/// Calls the tool that writes and gets the question; returns its form and the state.
pub(super) async fn question(api: &Api) -> (Value, String) {
    let asked = call(client(api), "writer", ARGS, "").await;
    let result: Value = serde_json::from_str(asked.raw()).unwrap();
    assert_eq!(result["resultType"], "input_required", "{result}");
    let form = result["inputRequests"]["mcpproxy.consent"].clone();
    assert_eq!(form["method"], "elicitation/create");
    (form["params"].clone(), state_of(&asked))
}

/// The only request of an agent.
async fn only(api: &Api) -> Value {
    let items = api.items("/api/v1/consent").await;
    assert_eq!(items.len(), 1, "{items:?}");
    items[0].clone()
}

#[tokio::test]
async fn the_person_at_the_client_allows_a_call_which_runs_once() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let (form, state) = question(&agent).await;
    let id = only(&agent).await["id"].clone();
    let says = form["message"].as_str().unwrap();
    assert!(says.contains("zoo") && says.contains("/a") && says.contains(id.as_str().unwrap()), "{says}");
    assert!(!says.contains("hunter2") && !state.contains(id.as_str().unwrap()), "{says} {state}");
    assert_eq!(form["mode"], "form");
    let schema = &form["requestedSchema"];
    assert_eq!(schema["required"], json!(["decision"]), "no host fills it in by itself");
    assert_eq!(schema["properties"]["decision"].get("default"), None);
    assert_eq!(upstream.counts().calls, 0);
    let done = call(client(&agent), "writer", ARGS, &answer(&accept("allow_once"), &state)).await;
    done.ok();
    assert_eq!(upstream.counts().calls, 1);
    settle(json!("succeeded"), SOON, || super::state(&agent, id.as_str().unwrap())).await;
    assert_eq!(only(&agent).await["decided_via"], "elicitation");
    // the same answer once more asks anew, and runs nothing
    let again = call(client(&agent), "writer", ARGS, &answer(&accept("allow_once"), &state)).await;
    assert_ne!(state_of(&again), state);
    assert_eq!(upstream.counts().calls, 1);
    let steps = tenant.records(&format!("type=consent&consent_id={}", id.as_str().unwrap()), 4).await;
    let mut steps: Vec<&Value> = steps.iter().map(|step| &step["tool"]).collect();
    steps.sort_by_key(|step| step.to_string());
    let expected = ["consent.asked", "consent.consumed", "consent.granted", "consent.succeeded"];
    assert_eq!(steps, expected.map(Value::from).iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_state_is_for_its_call_and_its_key_alone() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, other) = (tenant.agent().await, tenant.agent().await);
    let (_, state) = question(&agent).await;
    let allow = answer(&accept("allow_once"), &state);
    let broken = answer(&accept("allow_once"), &format!("A{state}"));
    for (api, args, more) in
        [(&other, ARGS, &allow), (&agent, r#"{"path":"/b"}"#, &allow), (&agent, ARGS, &broken)]
    {
        let outcome = call(client(api), "writer", args, more).await;
        assert_eq!(outcome.error()["code"], -32602, "{args}");
    }
    let wrong = call(client(&agent), "writer", ARGS, &answer(&accept("allow_always_and_ever"), &state)).await;
    let id = only(&agent).await["id"].clone();
    assert_eq!(wrong.refused("consent_malformed")["consent_id"], id);
    assert_eq!(upstream.counts().calls, 0);
    assert_eq!(super::state(&agent, id.as_str().unwrap()).await, "pending", "nothing was decided");
}

#[tokio::test]
async fn a_person_refuses_stops_the_turn_or_closes_the_form() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    for (said, code) in [
        (r#"{"action":"decline"}"#.to_owned(), "consent_denied"),
        (accept("reject_once"), "consent_denied"),
        (accept("cancel_turn"), "turn_cancelled"),
    ] {
        let agent = tenant.agent().await;
        let (_, state) = question(&agent).await;
        let refused = call(client(&agent), "writer", ARGS, &answer(&said, &state)).await;
        refused.refused(code);
    }
    let agent = tenant.agent().await;
    let (_, state) = question(&agent).await;
    let closed = call(client(&agent), "writer", ARGS, &answer(r#"{"action":"cancel"}"#, &state)).await;
    let id = only(&agent).await["id"].clone();
    // the call ends: agents without a person close every form by themselves, and would be asked without end
    assert_eq!(closed.refused("consent_pending")["consent_id"], id);
    assert_eq!(only(&agent).await["state"], "pending");
    let (_, again) = question(&agent).await;
    assert_ne!(again, state, "the call itself asks again");
    assert_eq!(only(&agent).await["id"], id);
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn nobody_is_asked_in_band_who_may_not_answer_so() {
    let needs_approver = json!([{"id": "four-eyes", "effect": "ask", "match": {"tool": "zoo:*"},
        "ask": {"assurance": "approver"}}]);
    let (_stage, tenant, upstream) = asking(&[], needs_approver).await;
    let agent = tenant.agent().await;
    call(client(&agent), "writer", ARGS, "").await.refused("consent_pending");
    set(&tenant, json!([])).await;
    let robot = tenant.key(&json!({"role": "agent", "settings": {"in_band_answers": false}})).await;
    call(client(&robot), "writer", ARGS, "").await.refused("consent_pending");
    let plain = tenant.agent().await;
    call(Mcp::modern(&plain), "writer", ARGS, "").await.refused("consent_pending");
    // an answer that came before the rule did is not enough for it
    let late = tenant.agent().await;
    let (_, state) = question(&late).await;
    let rule = json!([{"id": "four-eyes", "effect": "ask", "match": {"tool": "zoo:*"}, "ask": {"assurance": "approver"}}]);
    set(&tenant, rule).await;
    let refused = call(client(&late), "writer", ARGS, &answer(&accept("allow_once"), &state)).await;
    refused.refused("consent_pending");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn channels_say_whether_the_client_may_be_asked() {
    let rule = |channel: &str| json!([{"id": "a", "effect": "ask", "match": {"tool": "zoo:*"}, "ask": {"channels": [channel]}}]);
    let (_stage, tenant, upstream) = asking(&[], rule("inbox")).await;
    let agent = tenant.agent().await;
    call(client(&agent), "writer", ARGS, "").await.refused("consent_pending");
    set(&tenant, rule("elicitation")).await;
    let other = tenant.agent().await;
    call(Mcp::modern(&other), "writer", ARGS, "").await.refused("consent_undeliverable");
    let (_, state) = question(&other).await;
    // an answer that comes after the rule has changed is not enough for it
    set(&tenant, rule("inbox")).await;
    let allow = answer(&accept("allow_once"), &state);
    call(client(&other), "writer", ARGS, &allow).await.refused("consent_pending");
    set(&tenant, rule("elicitation")).await;
    call(client(&other), "writer", ARGS, &allow).await.ok();
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn somebody_else_is_first() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let (_, state) = question(&agent).await;
    let id = only(&agent).await["id"].as_str().unwrap().to_owned();
    decide(&approver, &id, "reject_once").await.expect(200);
    let refused = call(client(&agent), "writer", ARGS, &answer(&accept("allow_once"), &state)).await;
    refused.refused("consent_denied");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn any_replica_takes_the_answer() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let (_, state) = question(&agent).await;
    let second = Gateway::start(&stage.database, &[]).await;
    let there = second.ask_as(&agent);
    call(client(&there), "writer", ARGS, &answer(&accept("allow_once"), &state)).await.ok();
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn who_allowed_in_band_revokes_it() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, stranger) = (tenant.agent().await, tenant.agent().await);
    let (_, state) = question(&agent).await;
    call(client(&agent), "writer", ARGS, &answer(&accept("allow_always"), &state)).await.ok();
    assert_eq!(stranger.items("/api/v1/consent/grants").await, [Value::Null; 0]);
    let [grant] = &agent.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    let path = format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap());
    stranger.delete(&path).await.refused(404, "not_found");
    agent.delete(&path).await.expect(204);
    // its user's refusal is not the agent's to take back
    let (_, state) = question(&agent).await;
    call(client(&agent), "writer", ARGS, &answer(&accept("reject_always"), &state))
        .await
        .refused("consent_denied");
    let [grant] = &agent.items("/api/v1/consent/grants").await[..] else { panic!("one grant") };
    agent
        .delete(&format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap()))
        .await
        .refused(403, "forbidden");
}

/// Creates a tenant with a modern server whose tool asks twice; each call asks.
async fn asking_twice() -> (Stage, Tenant, Upstream) {
    let stage = Stage::with(&[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![asks_twice(Tool::writes("twice"))]).await;
    tenant.add("zoo", &upstream).await;
    set(&tenant, json!([])).await;
    (stage, tenant, upstream)
}

/// Allows a call of a tool that asks twice, runs its first round, and returns the members of the second.
async fn second_round(agent: &Api) -> String {
    let asked = call(client(agent), "twice", "{}", "").await;
    let allow = answer(&accept("allow_once"), &state_of(&asked));
    let first = call(client(agent), "twice", "{}", &allow).await;
    let who = r#"{"who":{"action":"accept","content":{"name":"ana"}}}"#;
    format!(r#","inputResponses":{who},"requestState":"{}""#, state_of(&first))
}

#[tokio::test]
async fn no_round_is_left_of_a_call_whose_turn_ended_meanwhile() {
    let (stage, tenant, upstream) = asking_twice().await;
    let agent = tenant.agent().await;
    // the turn ends while the first round is under way, and no replica hears of it
    let mut connection = stage.database.connect().await;
    let ends_meanwhile = "
        create function end_turn() returns trigger language plpgsql as $$ begin
            insert into consent_fences (tenant_id, id, principal, ends_at)
            values (new.tenant_id, gen_random_uuid(), new.principal, now() + interval '1 millisecond');
            return null;
        end $$;
        create trigger end_turn after update on consent_requests for each row
        when (old.state = 'granted' and new.state = 'consumed') execute function end_turn()";
    connection.execute(ends_meanwhile).await.unwrap();
    let next = second_round(&agent).await;
    call(client(&agent), "twice", "{}", &next).await.refused("consent_lapsed");
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn a_stricter_rule_holds_for_the_rounds_that_are_left() {
    let (_stage, tenant, upstream) = asking_twice().await;
    let agent = tenant.agent().await;
    let next = second_round(&agent).await;
    let rule = json!([{"id": "four-eyes", "effect": "ask", "ask": {"assurance": "approver"}}]);
    set(&tenant, rule).await;
    call(client(&agent), "twice", "{}", &next).await.refused("consent_lapsed");
    assert_eq!(upstream.counts().calls, 1);
    call(client(&agent), "twice", "{}", "").await.refused("consent_pending");
    assert_eq!(agent.items("/api/v1/consent").await[0]["assurance"], "approver");
}

#[tokio::test]
async fn no_form_takes_the_place_of_an_answer_to_the_server() {
    let (_stage, tenant, upstream) = asking_twice().await;
    let agent = tenant.agent().await;
    set(&tenant, json!([{"id": "free", "effect": "allow", "match": {"tool": "zoo:twice"}}])).await;
    let state = state_of(&call(client(&agent), "twice", "{}", "").await);
    // from now on a person is asked: a form now would lose what the server asked for
    set(&tenant, json!([])).await;
    let who = r#"{"who":{"action":"accept","content":{"name":"ana"}}}"#;
    let next = format!(r#","inputResponses":{who},"requestState":"{state}""#);
    call(client(&agent), "twice", "{}", &next).await.refused("consent_pending");
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn later_rounds_of_a_call_ask_nobody_and_run_once_each() {
    let (_stage, tenant, upstream) = asking_twice().await;
    let agent = tenant.agent().await;
    let asked = call(client(&agent), "twice", "{}", "").await;
    let allow = answer(&accept("allow_once"), &state_of(&asked));
    let first = call(client(&agent), "twice", "{}", &allow).await;
    let id = only(&agent).await["id"].as_str().unwrap().to_owned();
    assert_eq!(state(&agent, &id).await, "consumed");
    let who = r#"{"who":{"action":"accept","content":{"name":"ana"}}}"#;
    let next = |state: String| format!(r#","inputResponses":{who},"requestState":"{state}""#);
    let again = next(state_of(&first));
    let second = call(client(&agent), "twice", "{}", &again).await;
    call(client(&agent), "twice", "{}", &again).await.refused("consent_lapsed");
    assert_eq!(upstream.counts().calls, 2, "a round that ran, while the next one may run");
    call(client(&agent), "twice", "{}", &next(state_of(&second))).await.ok();
    settle(json!("succeeded"), SOON, || state(&agent, &id)).await;
    assert_eq!(upstream.counts().calls, 3);
    // nor does a round that ran run once more
    call(client(&agent), "twice", "{}", &again).await.refused("consent_lapsed");
    assert_eq!(upstream.counts().calls, 3);
    assert_eq!(agent.items("/api/v1/consent").await.len(), 1);
}
