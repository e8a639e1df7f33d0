//! Answers of the person at a handshake client, whose call is held meanwhile.

use std::time::Duration;

use serde_json::{Value, json};

use super::in_band::{ARGS, accept};
use super::{asking, decide, set, state};
use crate::rounds::asks_twice;
use crate::support::upstream::Say;
use crate::support::{ADMIN, Api, Gateway, Mcp, Stage, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);
/// Capability of clients that show forms.
const FORMS: &str = r#"{"elicitation":{}}"#;
/// Replies of clients, by their outcome.
const REPLIES: &str = "mcpproxy_client_replies_total";

/// A handshake client that shows forms.
pub(super) async fn client(api: &Api) -> Mcp {
    client_of(api, "2025-11-25").await
}

async fn client_of(api: &Api, version: &str) -> Mcp {
    Mcp::bare(api).declaring(FORMS).shake_hands(version).await
}

/// Call whose answer is under way.
pub(super) struct Held {
    response: reqwest::Response,
    seen: String,
}

impl Held {
    /// Calls the tool that writes.
    pub(super) async fn begin(client: &Mcp, id: &str) -> Held {
        Held::call(client, id, "writer", ARGS).await
    }

    pub(super) async fn call(client: &Mcp, id: &str, tool: &str, args: &str) -> Held {
        let arguments = format!(r#"{{"name":"zoo:{tool}","args":{args}}}"#);
        let params =
            format!(r#"{{"name":"call_tool_write","arguments":{arguments},"_meta":{{"progressToken":9}}}}"#);
        let response = client.unsent(id, "tools/call", &params).send().await.unwrap();
        Held { response, seen: String::new() }
    }

    /// The next message; `None` at the end of the stream, or where it breaks.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.seen.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
                self.seen = rest.to_owned();
                match data {
                    Some(data) => return Some(serde_json::from_str(&data).unwrap()),
                    None => continue,
                }
            }
            match tokio::time::timeout(SOON * 4, self.response.chunk()).await.expect("a message") {
                Ok(Some(chunk)) => self.seen.push_str(std::str::from_utf8(&chunk).unwrap()),
                // an answer that is no stream
                Ok(None) if !self.seen.is_empty() => {
                    return serde_json::from_str(&std::mem::take(&mut self.seen)).ok();
                }
                _ => return None,
            }
        }
    }

    /// The next message, a question: its id and params.
    pub(super) async fn question(&mut self) -> (String, Value) {
        let asked = self.next().await.expect("a question");
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        (asked["id"].as_str().expect("a text as id").to_owned(), asked["params"].clone())
    }

    /// The code of the refusal that comes next, or `ok`.
    pub(super) async fn code(&mut self) -> String {
        let last = self.next().await.expect("an answer");
        let result = &last["result"];
        assert!(result.is_object(), "{last}");
        match result["isError"] == true {
            true => result["structuredContent"]["code"].as_str().unwrap_or_default().to_owned(),
            false => "ok".to_owned(),
        }
    }

    /// The next message, which takes the question back.
    pub(super) async fn withdrawn(&mut self, id: &str) {
        let message = self.next().await.expect("a message");
        assert_eq!(message["method"], "notifications/cancelled", "{message}");
        assert_eq!(message["params"]["requestId"], id, "{message}");
    }
}

/// Posts a reply with this raw member.
pub(super) async fn reply(client: &Mcp, id: &str, member: &str) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{},{member}}}"#, json!(id));
    let answer = client.post(body).await;
    assert_eq!((answer.status, &*answer.text), (202, ""), "{answer:?}");
}

/// Raw member of a reply with this answer to a form.
pub(super) fn result(answer: &str) -> String {
    format!(r#""result":{answer}"#)
}

async fn only(api: &Api) -> Value {
    let items = api.items("/api/v1/consent").await;
    assert_eq!(items.len(), 1, "{items:?}");
    items[0].clone()
}

#[tokio::test]
async fn the_person_at_a_handshake_client_allows_a_call_which_runs_once() {
    let (_stage, tenant, upstream) = asking(&[ADMIN], json!([])).await;
    for (version, calls) in [("2025-11-25", 1), ("2025-06-18", 2)] {
        let agent = tenant.agent().await;
        let client = client_of(&agent, version).await;
        let mut held = Held::begin(&client, "7").await;
        let (question, form) = held.question().await;
        let id = only(&agent).await["id"].as_str().unwrap().to_owned();
        let says = form["message"].as_str().unwrap();
        assert!(says.contains("/a") && says.contains(&id) && !says.contains("hunter2"), "{says}");
        let decision = &form["requestedSchema"]["properties"]["decision"];
        assert_eq!(decision.get("default"), None, "no host fills it in by itself");
        let first = match version {
            "2025-06-18" => {
                assert_eq!(form.get("mode"), None);
                assert_eq!(
                    decision["enum"].as_array().unwrap().len(),
                    decision["enumNames"].as_array().unwrap().len()
                );
                &decision["enum"][0]
            }
            _ => &decision["oneOf"][0]["const"],
        };
        assert_eq!(first, "allow_once", "{form}");
        assert_eq!(upstream.counts().calls, calls - 1);
        let allow = result(&accept("allow_once"));
        reply(&client, &question, &allow).await;
        assert_eq!(held.code().await, "ok");
        assert!(held.next().await.is_none(), "the answer is the last message");
        reply(&client, &question, &allow).await;
        settle(json!("succeeded"), SOON, || state(&agent, &id)).await;
        assert_eq!(only(&agent).await["decided_via"], "elicitation");
        assert_eq!(upstream.counts().calls, calls);
        let steps = tenant.records(&format!("type=consent&consent_id={id}"), 4).await;
        assert!(steps.iter().any(|step| step["tool"] == "consent.granted"), "{steps:?}");
    }
}

#[tokio::test]
async fn a_person_refuses_closes_the_form_or_has_none() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    for (member, code, state) in [
        (result(r#"{"action":"decline"}"#), "consent_denied", "denied"),
        (result(&accept("reject_once")), "consent_denied", "denied"),
        (result(&accept("cancel_turn")), "turn_cancelled", "cancelled"),
        (result(r#"{"action":"cancel"}"#), "consent_pending", "pending"),
        (r#""error":{"code":-32601,"message":"Method not found"}"#.to_owned(), "consent_pending", "pending"),
        (r#""error":{"code":-32603,"message":"broken"}"#.to_owned(), "consent_pending", "pending"),
    ] {
        let agent = tenant.agent().await;
        let client = client(&agent).await;
        let mut held = Held::begin(&client, "7").await;
        let (question, _) = held.question().await;
        reply(&client, &question, &member).await;
        assert_eq!((&*held.code().await, &only(&agent).await["state"]), (code, &json!(state)), "{member}");
    }
    // what was never offered is asked once more
    let agent = tenant.agent().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (first, _) = held.question().await;
    reply(&client, &first, &result(&accept("allow_for_ever"))).await;
    let (second, _) = held.question().await;
    assert_ne!(first, second);
    reply(&client, &second, &result(r#"{"action":"accept"}"#)).await;
    assert_eq!(held.code().await, "consent_malformed");
    assert_eq!(only(&agent).await["state"], "pending");
    let mut held = Held::begin(&client, "8").await;
    let (first, _) = held.question().await;
    reply(&client, &first, &result(&accept("yes"))).await;
    let (second, _) = held.question().await;
    reply(&client, &second, &result(&accept("reject_once"))).await;
    assert_eq!(held.code().await, "consent_denied");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn nobody_else_replies_and_only_the_first_reply_counts() {
    let (stage, tenant, upstream) = asking(&[ADMIN], json!([])).await;
    let agent = tenant.agent().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    let allow = result(&accept("allow_once"));
    let other_tenant = stage.tenant("other").await.agent().await;
    for other in [
        self::client(&agent).await,
        self::client(&tenant.agent().await).await,
        self::client(&other_tenant).await,
    ] {
        reply(&other, &question, &allow).await;
    }
    let mut broken = question.clone();
    broken.replace_range(10..11, if broken.get(10..11) == Some("A") { "B" } else { "A" });
    for id in [&*broken, question.get(1..).unwrap(), "", "7", &"A".repeat(400)] {
        reply(&client, id, &allow).await;
    }
    client.post(format!(r#"{{"jsonrpc":"2.0","id":7,{allow}}}"#)).await.expect(202);
    for member in [r#""result":true"#, r#""result":[],"error":{}"#] {
        reply(&client, &question, member).await;
    }
    Mcp::bare(&agent).post(format!(r#"{{"jsonrpc":"2.0","id":"{question}",{allow}}}"#)).await.expect(202);
    let page = stage.gateway.scrape().await;
    let count = |outcome| page.sum(REPLIES, &[("outcome", outcome)]);
    assert_eq!((count("unknown"), count("malformed"), count("delivered")), (9.0, 3.0, 0.0));
    assert_eq!(page.sum("mcpproxy_client_questions", &[]), 1.0);
    assert_eq!(only(&agent).await["state"], "pending");
    reply(&client, &question, &result(r#"{"action":"decline"}"#)).await;
    reply(&client, &question, &allow).await;
    assert_eq!(held.code().await, "consent_denied");
    let page = stage.gateway.scrape().await;
    let count = |outcome| page.sum(REPLIES, &[("outcome", outcome)]);
    assert_eq!((count("late"), count("delivered")), (1.0, 1.0));
    assert_eq!(page.sum("mcpproxy_client_questions", &[]), 0.0);
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn a_client_that_never_answers_holds_nothing_after_the_hold() {
    let hold = ("MCPPROXY__LIMITS__CONSENT_HOLD_S", "1");
    let (stage, tenant, upstream) = asking(&[ADMIN, hold], json!([])).await;
    let agent = tenant.agent().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    held.withdrawn(&question).await;
    assert_eq!(held.code().await, "consent_pending");
    assert_eq!(stage.gateway.scrape().await.sum("mcpproxy_client_questions", &[]), 0.0);
    let id = only(&agent).await["id"].as_str().unwrap().to_owned();
    reply(&client, &question, &result(&accept("allow_once"))).await;
    assert_eq!(state(&agent, &id).await, "pending", "a late reply decides nothing");
    decide(&tenant.approver().await, &id, "allow_once").await.expect(200);
    assert_eq!(Held::begin(&client, "8").await.code().await, "ok");
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn somebody_elses_decision_ends_the_wait() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let approver = tenant.approver().await;
    for (decision, code) in
        [("allow_once", "ok"), ("reject_once", "consent_denied"), ("cancel_turn", "turn_cancelled")]
    {
        let agent = tenant.agent().await;
        let client = client(&agent).await;
        let mut held = Held::begin(&client, "7").await;
        let (question, _) = held.question().await;
        let id = only(&agent).await["id"].as_str().unwrap().to_owned();
        decide(&approver, &id, decision).await.expect(200);
        held.withdrawn(&question).await;
        assert_eq!(held.code().await, code);
        reply(&client, &question, &result(&accept("allow_once"))).await;
    }
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn the_client_ends_the_wait() {
    let (stage, tenant, upstream) = asking(&[ADMIN], json!([])).await;
    let nobody = async || stage.gateway.scrape().await.sum("mcpproxy_client_questions", &[]) == 0.0;
    let agent = tenant.agent().await;
    let client = client(&agent).await;
    // it takes the call back, which gets no answer
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    client
        .post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#)
        .await
        .expect(202);
    held.withdrawn(&question).await;
    assert!(held.next().await.is_none());
    // it leaves
    let mut held = Held::begin(&client, "8").await;
    held.question().await;
    drop(held);
    settle(true, SOON, nobody).await;
    // it ends its session
    let mut held = Held::begin(&client, "9").await;
    let (question, _) = held.question().await;
    assert_eq!(agent.send(client.http(reqwest::Method::DELETE)).await.status, 204);
    held.withdrawn(&question).await;
    assert_eq!(held.code().await, "consent_pending");
    assert_eq!(only(&agent).await["state"], "pending", "the request stays open for others");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn nobody_is_asked_while_held_who_may_not_answer_so() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let plain = Mcp::session(&tenant.agent().await).await;
    let robot = tenant.key(&json!({"role": "agent", "settings": {"in_band_answers": false}})).await;
    let robot = client(&robot).await;
    // this revision has no questions to a person
    let oldest = client_of(&tenant.agent().await, "2025-03-26").await;
    for client in [plain, robot, oldest] {
        assert_eq!(Held::begin(&client, "7").await.code().await, "consent_pending");
    }
    // nor one that reads no streams
    let agent = tenant.agent().await;
    let deaf = client(&agent).await;
    let request =
        deaf.unsent("7", "tools/call", r#"{"name":"call_tool_write","arguments":{"name":"zoo:writer"}}"#);
    let mut request = request.build().unwrap();
    request.headers_mut().insert("accept", "application/json".parse().unwrap());
    let answer = reqwest::Client::new().execute(request).await.unwrap().text().await.unwrap();
    assert!(answer.contains("consent_pending"), "{answer}");
    let rule = json!([{"id": "four-eyes", "effect": "ask", "match": {"tool": "zoo:*"}, "ask": {"assurance": "approver"}}]);
    set(&tenant, rule).await;
    let agent = tenant.agent().await;
    assert_eq!(Held::begin(&client(&agent).await, "7").await.code().await, "consent_pending");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn questions_of_a_modern_server_reach_a_handshake_client() {
    let stage = Stage::with(&[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![asks_twice(Tool::writes("twice"))]).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    for asks in [false, true] {
        if asks {
            set(&tenant, json!([])).await;
        }
        let client = client(&agent).await;
        let mut held = Held::call(&client, "7", "twice", "{}").await;
        if asks {
            let (question, form) = held.question().await;
            assert!(form["requestedSchema"]["properties"]["decision"].is_object(), "{form}");
            reply(&client, &question, &result(&accept("allow_once"))).await;
        }
        for _ in 0..2 {
            let (question, form) = held.question().await;
            assert!(form["message"].as_str().unwrap().ends_with("Who?"), "{form}");
            reply(&client, &question, &result(r#"{"action":"accept","content":{"name":"ana"}}"#)).await;
        }
        assert_eq!(held.code().await, "ok");
    }
    let calls = upstream.calls();
    assert_eq!(calls.len(), 6);
    let answered = calls.iter().filter(|call| {
        call.params.contains(r#""inputResponses":{"who":{"action":"accept","content":{"name":"ana"}}}"#)
    });
    assert_eq!(answered.count(), 4, "{calls:?}");
    // without an answer the call ends as for a client that cannot be asked
    set(&tenant, json!([{"id": "a", "effect": "allow", "match": {"tool": "zoo:*"}}])).await;
    let client = client(&agent).await;
    let mut held = Held::call(&client, "7", "twice", "{}").await;
    let (question, _) = held.question().await;
    reply(&client, &question, r#""error":{"code":-32601,"message":"no"}"#).await;
    assert_eq!(held.code().await, "upstream_needs_input");
}

#[tokio::test]
async fn questions_of_a_handshake_server_reach_a_handshake_client() {
    let stage = Stage::with(&[]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let form =
        r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}"#;
    let tools = vec![
        Tool::writes("asker").says(Say::Asks("elicitation/create", form)),
        Tool::writes("roots").says(Say::Asks("roots/list", "{}")),
    ];
    let upstream = Upstream::handshake(tools).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let text =
        |answer: Option<Value>| answer.unwrap()["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    let client = client(&agent).await;
    let there = Mcp::in_session(&other.ask_as(&agent), client.session_id());
    // the reply reaches another replica
    for at in [&client, &there] {
        let mut held = Held::call(&client, "7", "asker", "{}").await;
        let (question, asked) = held.question().await;
        assert_eq!(asked["message"], "Server 'zoo' asks: Who?");
        reply(at, &question, &result(r#"{"action":"accept","content":{"name":"ana"}}"#)).await;
        let said = text(held.next().await);
        assert!(said.contains(r#""result":{"action":"accept","content":{"name":"ana"}}"#), "{said}");
    }
    let mut held = Held::call(&client, "8", "asker", "{}").await;
    let (question, _) = held.question().await;
    reply(&client, &question, r#""error":{"code":-32042,"message":"no"}"#).await;
    let said = text(held.next().await);
    assert!(said.contains("-32042"), "{said}");
    // what was not declared, or relay does not allow, is not asked
    for (client, tool) in [(&Mcp::session(&agent).await, "asker"), (&client, "roots")] {
        let said = text(Held::call(client, "9", tool, "{}").await.next().await);
        assert!(said.contains("-32601"), "{said}");
    }
    assert_eq!(upstream.counts().calls, 5);
}
