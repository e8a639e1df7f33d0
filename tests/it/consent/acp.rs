//! Permission requests over the Agent Client Protocol: a plain WebSocket client, and the official one.

use std::process::Stdio;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_tungstenite::tungstenite::Message;

use super::{asked, asking, decide, documented_program, state, write};
use crate::support::{
    Acp, AcpLibrary, AcpProgram, Api, Gateway, Mcp, Nginx, Stage, Tenant, Upstream, node, settle,
};

const SOON: Duration = Duration::from_secs(10);
const NOTHING: &str = "No permission request waits for an answer.";

async fn row(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/consent/{id}")).await.expect(200)
}

/// Three replicas of a tenant whose every call asks.
async fn three() -> (Stage, Gateway, Gateway, Tenant, Upstream) {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let second = Gateway::start(&stage.database, &[]).await;
    let third = Gateway::start(&stage.database, &[]).await;
    (stage, second, third, tenant, upstream)
}

#[tokio::test]
async fn asked_on_one_answered_on_another_run_on_a_third() {
    let (_stage, second, third, tenant, upstream) = three().await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let mut acp = Acp::open(&second.ask_as(&approver)).await;
    let args = json!({"n": 1});
    let id = asked(&agent, &args).await;
    let announced = acp.next().await.unwrap();
    assert_eq!(announced["params"]["update"]["sessionUpdate"], "tool_call");
    assert_eq!(announced["params"]["update"]["status"], "pending");
    let request = acp.asked().await;
    let (params, row_of) = (&request["params"], row(&approver, &id).await);
    assert_eq!((&params["sessionId"], &params["toolCall"]["toolCallId"]), (&json!(acp.session), &json!(id)));
    assert_eq!(params["toolCall"]["rawInput"], args);
    let meta = &params["_meta"];
    assert_eq!((&meta["toolCallId"], &meta["toolName"]), (&json!(id), &json!("zoo:writer")));
    assert_eq!((&meta["reason"], &meta["risk"]), (&row_of["reason"], &row_of["risk"]));
    let offered: Vec<String> =
        params["options"].as_array().unwrap().iter().map(|option| option["optionId"].to_string()).collect();
    let expected: Vec<String> = row_of["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| format!("\"{id}.{}\"", option.as_str().unwrap()))
        .collect();
    assert_eq!(offered, expected);
    assert_eq!(upstream.counts().calls, 0);
    acp.answer(&request, "allow_once").await;
    assert_eq!(acp.status().await, "in_progress");
    assert_eq!(row(&agent, &id).await["decided_via"], "acp");
    write(&third.ask_as(&agent), &args).await.ok();
    assert_eq!(acp.status().await, "completed");
    // once: the next one asks
    assert_ne!(asked(&agent, &args).await, id);
    assert_eq!(upstream.counts().calls, 1);
    let steps = tenant.records(&format!("type=consent&consent_id={id}"), 4).await;
    let granted = steps.iter().find(|step| step["tool"] == "consent.granted").unwrap();
    assert_eq!((&granted["key_id"], &granted["client"]["name"]), (&json!(approver.id), &json!("test-ide")));
    let second_request = acp.asked().await;
    acp.answer(&second_request, "reject_once").await;
    assert_eq!(acp.status().await, "failed");
    write(&agent, &args).await.refused("consent_denied");
}

#[tokio::test]
async fn answers_that_were_not_offered_come_late_twice_or_never_change_nothing() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let (mut one, mut silent) = (Acp::open(&approver).await, Acp::open(&approver).await);
    let id = asked(&agent, &json!({"n": 1})).await;
    let first = one.asked().await;
    let unanswered = silent.asked().await;
    one.choose(&first, "allow_everything").await;
    let again = one.asked().await;
    assert_ne!(first["id"], again["id"]);
    assert_eq!(again["params"]["toolCall"]["toolCallId"], id);
    // of another request, to one that is not open any more, and a last one: then it is left alone
    one.answer(&first, "allow_once").await;
    one.choose(&again, &format!("{}.allow_once", uuid::Uuid::nil())).await;
    assert_eq!(one.status().await, "pending");
    one.answer(&again, "allow_once").await;
    assert!(one.prompt().await.contains(&id));
    assert_eq!(state(&approver, &id).await, "pending");
    // somebody else is first, over REST: the open dialogue closes, and its answer is too late
    decide(&approver, &id, "reject_once").await.expect(200);
    let cancelled = silent.next().await.unwrap();
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("$/cancel_request"), &unanswered["id"])
    );
    assert_eq!((silent.status().await, one.status().await), (json!("failed"), json!("failed")));
    silent.answer(&unanswered, "allow_once").await;
    silent.outcome(&unanswered, json!({"outcome": "cancelled"})).await;
    assert_eq!(silent.prompt().await, NOTHING);
    assert_eq!((state(&approver, &id).await, upstream.counts().calls), (json!("denied"), 0));
    // a second answer, the other way
    let id = asked(&agent, &json!({"n": 2})).await;
    let request = one.asked().await;
    one.answer(&request, "allow_once").await;
    one.answer(&request, "reject_once").await;
    assert_eq!(one.status().await, "in_progress");
    write(&agent, &json!({"n": 2})).await.ok();
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn of_two_answers_at_one_moment_on_two_replicas_one_decides() {
    let (_stage, second, third, tenant, upstream) = three().await;
    let (eva, max) = (tenant.approver().await, tenant.approver().await);
    let mut one = Acp::open(&second.ask_as(&eva)).await;
    let mut other = Acp::open(&third.ask_as(&max)).await;
    let mut allowed = 0;
    for _ in 0..4 {
        let agent = tenant.agent().await;
        asked(&agent, &json!({})).await;
        let (first, last) = (one.asked().await, other.asked().await);
        tokio::join!(one.answer(&first, "allow_once"), other.answer(&last, "reject_once"));
        let told = (one.status().await, other.status().await);
        assert_eq!(told.0, told.1);
        let outcome = write(&agent, &json!({})).await.code();
        let expected = if told.0 == "in_progress" { "ok" } else { "consent_denied" };
        assert_eq!(outcome, expected);
        allowed += usize::from(outcome == "ok");
        if outcome == "ok" {
            assert_eq!((one.status().await, other.status().await), (json!("completed"), json!("completed")));
        }
    }
    assert_eq!(upstream.counts().calls, allowed);
}

#[tokio::test]
async fn what_was_not_answered_is_asked_again_wherever_the_client_comes_back() {
    let (_stage, mut second, mut third, tenant, upstream) = three().await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let mut acp = Acp::open(&second.ask_as(&approver)).await;
    let args = json!({"n": 1});
    let id = asked(&agent, &args).await;
    acp.asked().await;
    let session = acp.session.clone();
    second.kill();
    assert_eq!(acp.next().await, None);
    let mut acp = Acp::load(&third.ask_as(&approver), &session).await;
    let request = acp.asked().await;
    assert_eq!(
        (&request["params"]["sessionId"], &request["params"]["toolCall"]["toolCallId"]),
        (&json!(session), &json!(id))
    );
    // once it has answered, nobody needs it any more
    acp.answer(&request, "allow_once").await;
    drop(acp);
    settle(json!("granted"), SOON, || state(&approver, &id)).await;
    third.kill();
    write(&agent, &args).await.ok();
    assert_eq!(upstream.counts().calls, 1);
    let mut late = Acp::open(&approver).await;
    assert_eq!(late.prompt().await, NOTHING);
}

#[tokio::test]
async fn a_client_is_asked_what_its_key_may_answer() {
    let four_eyes = json!({"id": "four-eyes", "effect": "ask", "match": {"tool": "zoo:wiper"}, "ask": {"assurance": "approver"}});
    let inbox = json!({"id": "inbox", "effect": "ask", "match": {"tool": "zoo:mild"}, "ask": {"channels": ["inbox"]}});
    let (stage, tenant, upstream) = asking(&[], json!([four_eyes, inbox])).await;
    let (agent, approver, operator) =
        (tenant.agent().await, tenant.approver().await, tenant.operator().await);
    let (other, robot) = (tenant.agent().await, tenant.agent_with(json!({"in_band_answers": false})).await);
    let strangers = stage.tenant("other").await;
    let strange = [strangers.approver().await, strangers.admin().await, strangers.agent().await];
    let mut unasked = vec![Acp::open(&other).await, Acp::open(&robot).await, Acp::open(&operator).await];
    for key in &strange {
        unasked.push(Acp::open(key).await);
    }
    let (mut own, mut eva) = (Acp::open(&agent).await, Acp::open(&approver).await);
    let run = async |api: &Api, variant: &str, tool: &str| {
        let refused = Mcp::bare(api).run(variant, tool, &json!({})).await.refused("consent_pending");
        refused["consent_id"].as_str().unwrap().to_owned()
    };
    // the agent's own client cannot answer those of assurance approver, and nobody here those for the inbox alone
    run(&agent, "write", "zoo:mild").await;
    let wiping = run(&agent, "destructive", "zoo:wiper").await;
    let theirs = run(&robot, "write", "zoo:writer").await;
    let mine = run(&agent, "write", "zoo:writer").await;
    let request = own.asked().await;
    assert_eq!(request["params"]["toolCall"]["toolCallId"], mine);
    for expected in [&wiping, &theirs, &mine] {
        assert_eq!(eva.asked().await["params"]["toolCall"]["toolCallId"], **expected);
    }
    for acp in &mut unasked {
        assert_eq!(acp.prompt().await, NOTHING);
    }
    own.answer(&request, "allow_once").await;
    assert_eq!(own.status().await, "in_progress");
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({})).await.ok();
    let decided = row(&approver, &mine).await;
    assert_eq!((&decided["decided_via"], upstream.counts().calls), (&json!("acp"), 1));
    // a setting counts at once, also for who is attached already
    let settings = json!({"in_band_answers": false});
    let path = format!("/api/v1/keys/{}/settings", agent.id);
    let again = run(&agent, "write", "zoo:half").await;
    let request = own.asked().await;
    assert_eq!(request["params"]["toolCall"]["toolCallId"], again);
    tenant.platform.patch(&path, &settings).await.expect(200);
    own.answer(&request, "allow_once").await;
    // its user is told why that did not count, and that is no malformed answer
    let why = own.said("pending").await;
    assert!(
        why.contains("may not decide permission requests") && !why.contains("consent_malformed"),
        "{why}"
    );
    assert_eq!(state(&approver, &again).await, "pending");
    // that client is not asked about a further one, but about both once its key may answer
    let further = asked(&agent, &json!({"n": 2})).await;
    tenant.platform.patch(&path, &json!({"in_band_answers": null})).await.expect(200);
    for expected in [again, further] {
        assert_eq!(own.asked().await["params"]["toolCall"]["toolCallId"], expected);
    }
    // an operator answers for its own calls as an agent does
    let id = run(&operator, "write", "zoo:writer").await;
    let operators = &mut unasked[2];
    assert_eq!(operators.asked().await["params"]["toolCall"]["toolCallId"], id);
    let (status, body) = Acp::connect(&tenant.auditor().await, &[]).await.err().unwrap();
    assert!(status == 403 && body.contains("not_approver"), "{status} {body}");
}

#[tokio::test]
async fn a_rule_may_ask_over_acp_alone() {
    let rule = json!([{"id": "ide", "effect": "ask", "ask": {"channels": ["acp"]}}]);
    let (_stage, tenant, _upstream) = asking(&[], rule).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    asked(&agent, &json!({})).await;
    let mut acp = Acp::open(&approver).await;
    let request = acp.asked().await;
    acp.answer(&request, "allow_once").await;
    assert_eq!(acp.status().await, "in_progress");
    write(&agent, &json!({})).await.ok();
}

#[tokio::test]
async fn cancelled_is_the_whole_turn() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let mut acp = Acp::open(&approver).await;
    let ids = [asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await];
    let request = acp.asked().await;
    acp.outcome(&request, json!({"outcome": "cancelled"})).await;
    for id in &ids {
        settle(json!("cancelled"), SOON, || state(&approver, id)).await;
        assert_eq!(row(&approver, id).await["decided_via"], "acp");
    }
    write(&agent, &json!({"n": 3})).await.refused("turn_cancelled");
    // the agent's own client ends its turn, whether or not anything waits
    let own = tenant.agent().await;
    let mut ide = Acp::open(&own).await;
    ide.stop().await;
    settle("turn_cancelled".to_owned(), SOON, async || write(&own, &json!({"n": 1})).await.code()).await;
    // and an approver's what it was asked
    let third = tenant.agent().await;
    let id = asked(&third, &json!({"n": 1})).await;
    while acp.asked().await["params"]["toolCall"]["toolCallId"] != id {}
    acp.stop().await;
    settle(json!("cancelled"), SOON, || state(&approver, &id)).await;
    write(&third, &json!({"n": 2})).await.refused("turn_cancelled");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn the_door_is_as_narrow_as_the_others() {
    let limit = [("MCPPROXY__LIMITS__STREAMS_PER_KEY_MAX", "2")];
    let (stage, tenant, _upstream) = asking(&limit, json!([])).await;
    let (approver, nobody) = (tenant.approver().await, stage.gateway.anonymous());
    let refused = async |api: &Api, more: &[(&'static str, &str)]| {
        let (status, body) = Acp::connect(api, more).await.err().expect("no socket");
        (status, serde_json::from_str::<Value>(&body).unwrap()["error"]["code"].clone())
    };
    assert_eq!(refused(&nobody, &[]).await, (401, json!("unauthenticated")));
    // a cookie is no credential
    let cookie = format!("x-api-key={}", approver.key.as_deref().unwrap());
    assert_eq!(refused(&nobody, &[("cookie", &cookie)]).await, (401, json!("unauthenticated")));
    assert_eq!(refused(&approver, &[("origin", "https://evil.example")]).await, (403, json!("forbidden")));
    assert_eq!(refused(&approver, &[("host", "evil.example")]).await, (403, json!("forbidden")));
    let bearer = format!("Bearer {}", approver.key.as_deref().unwrap());
    let first = Acp::connect(&nobody, &[("authorization", &bearer)]).await.unwrap();
    let _second = Acp::open(&approver).await;
    assert_eq!(refused(&approver, &[]).await, (503, json!("unavailable")));
    drop(first);
    let again = async || Acp::connect(&approver, &[]).await.is_ok();
    settle(true, SOON, again).await;
    let other = tenant.approver().await;
    assert!(other.get("/acp").await.refused(400, "invalid_request").contains("WebSocket"));
    other.ask(Method::POST, "/acp", Some(&json!({}))).await.refused(405, "invalid_request");
}

#[tokio::test]
async fn a_proxy_passes_the_socket_on() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let nginx = Nginx::before(&[&stage.gateway]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await.at(&nginx.url));
    let mut acp = Acp::open(&approver).await;
    let id = asked(&agent, &json!({})).await;
    let request = acp.asked().await;
    acp.answer(&request, "reject_once").await;
    settle(json!("denied"), SOON, || state(&approver, &id)).await;
}

#[tokio::test]
async fn a_socket_ends_with_its_key_its_replica_and_its_patience() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let mut other = Gateway::start(&stage.database, &[]).await;
    let approver = tenant.approver().await;
    for (frame, code) in
        [(Message::binary(vec![1, 2, 3]), 1003), (Message::text("x".repeat(300 * 1024)), 1009)]
    {
        let mut acp = Acp::open(&approver).await;
        acp.send(frame).await;
        assert_eq!(acp.next().await, None);
        assert_eq!(acp.closed.map(|(code, _)| code), Some(code));
    }
    let mut acp = Acp::open(&approver).await;
    let mut there = Acp::open(&other.ask_as(&approver)).await;
    other.terminate();
    assert_eq!(there.next().await, None);
    assert_eq!(there.closed.map(|(code, _)| code), Some(1012));
    assert!(other.ended().await.success());
    tenant.platform.delete(&format!("/api/v1/keys/{}", approver.id)).await.expect(204);
    assert_eq!(acp.next().await, None);
    assert_eq!(acp.closed.map(|(code, _)| code), Some(1008));
}

#[tokio::test]
async fn the_official_clients_are_asked_and_answer() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    for library in AcpLibrary::ALL {
        let (calls, agent, approver) =
            (upstream.counts().calls, tenant.agent().await, tenant.approver().await);
        let mut client = AcpProgram::start(library, &approver, None).await;
        assert_eq!(client.event("initialized").await["protocolVersion"], 1);
        let session = client.event("session").await.as_str().unwrap().to_owned();
        // an answer that was never offered, then one that was
        let id = asked(&agent, &json!({"n": 1})).await;
        let announced = client.event("update").await;
        assert_eq!(announced["sessionUpdate"], "tool_call");
        let request = client.event("permission").await;
        assert_eq!(request["toolCall"]["toolCallId"], id);
        assert!(request["_meta"].to_string().contains("zoo:writer"), "{request}");
        let options = request["options"].as_array().unwrap();
        let kinds: Vec<&Value> = options.iter().map(|option| &option["kind"]).collect();
        assert_eq!(kinds, ["allow_once", "allow_always", "reject_once", "reject_always", "reject_once"]);
        client.tell("forged").await;
        client.event("permission").await;
        client.tell("answer allow_once").await;
        assert_eq!(client.event("update").await["status"], "in_progress");
        write(&agent, &json!({"n": 1})).await.ok();
        assert_eq!(client.event("update").await["status"], "completed");
        // a loser's dialogue is withdrawn
        if library.hears_of_withdrawals() {
            let id = asked(&agent, &json!({"n": 2})).await;
            client.event("permission").await;
            decide(&approver, &id, "reject_once").await.expect(200);
            assert_eq!(client.event("withdrawn").await, id);
        }
        // the session goes on at another replica, with what is open
        let open = asked(&agent, &json!({"n": 3})).await;
        drop(client);
        let mut client = AcpProgram::start(library, &other.ask_as(&approver), Some(&session)).await;
        assert_eq!(client.event("permission").await["toolCall"]["toolCallId"], open);
        client.event("update").await;
        client.tell("prompt").await;
        let chunk = client.event("update").await;
        assert!(chunk["content"]["text"].as_str().unwrap().contains(&open), "{chunk}");
        assert_eq!(client.event("prompt").await["stopReason"], "end_turn");
        client.tell("cancelled").await;
        settle(json!("cancelled"), SOON, || state(&approver, &open)).await;
        write(&agent, &json!({"n": 4})).await.refused("turn_cancelled");
        assert_eq!(upstream.counts().calls, calls + 1);
    }
}

#[tokio::test]
async fn the_client_of_the_documentation_works() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let url = approver.base_url().replace("http://", "ws://");
    let program = documented_program("js", "ws://127.0.0.1:8080", &url);
    let mut command = tokio::process::Command::new(node());
    command.args(["--input-type=module", "--eval", &program]).env("MCPPROXY_API_KEY", approver.key.unwrap());
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"));
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut client = command.spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let id = asked(&agent, &json!({"n": 1})).await;
    let said = tokio::time::timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(said.ends_with(" moderate") && !said.starts_with("undefined"), "{said}");
    settle(json!("denied"), SOON, || state(&tenant.platform, &id)).await;
    write(&agent, &json!({"n": 1})).await.refused("consent_denied");
    assert_eq!(upstream.counts().calls, 0);
}
