//! Rate limits: how much passes, what is said about the rest, and what the log keeps of it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Api, Gateway, Mcp, People, Stage, Tenant, Tool, Upstream, eventually, settle};

/// A replica that came or went is noticed with the next heartbeat, 2 s later.
const NOTICED: Duration = Duration::from_millis(3500);

async fn list(api: &Api) -> Answer {
    Mcp::modern(api).request("tools/list", "{}").await
}

/// How many of so many lists pass.
async fn passed(api: &Api, attempts: usize) -> usize {
    let mut passed = 0;
    for _ in 0..attempts {
        passed += usize::from(list(api).await.status == 200);
    }
    passed
}

/// The seconds that a refusal names, the same in its text and its header.
#[track_caller]
fn hint(answer: &Answer, message: &str) -> u64 {
    let seconds: u64 = answer.header("retry-after").parse().unwrap_or_else(|_| panic!("{answer:?}"));
    assert!(
        (1..=60).contains(&seconds) && message.ends_with(&format!("try again in {seconds} s")),
        "{message}"
    );
    seconds
}

/// Each thing that counts, refused in its own way.
async fn each_is_refused(agent: &Api) {
    // some handshake clients take any HTTP error for the end of their session
    for (client, status) in [(Mcp::modern(agent), 429), (Mcp::bare(agent), 200)] {
        let answer = client.request("tools/list", "{}").await;
        let error = answer.expect(status)["error"].clone();
        let codes = (&error["code"], &error["data"]["code"]);
        assert_eq!(codes, (&json!(-31429), &json!("rate_limited")), "{error}");
        let seconds = hint(&answer, error["message"].as_str().unwrap());
        assert_eq!(error["data"]["retry_after_s"], seconds);
    }

    let said = Mcp::bare(agent).run("read", "up:look", &json!({})).await.refused("rate_limited");
    assert_eq!((&said["tool"], &said["variant"]), (&json!("up:look"), &json!("call_tool_read")), "{said}");
    assert!(said["message"].as_str().unwrap().contains("5 attempts per minute"), "{said}");
    assert_eq!(said.as_object().unwrap().len(), 7, "{said}");

    let found = Mcp::modern(agent).call("retrieve_tools", &json!({"query": "look"})).await;
    assert_eq!(found.code(), "rate_limited");

    let answer = agent.get("/api/v1/tools?query=look").await;
    let message = answer.refused(429, "rate_limited");
    hint(&answer, &message);

    let body = json!({"tool_variant": "call_tool_read", "name": "up:look"});
    let answer = agent.post("/api/v1/tools/call", &body).await;
    let message = answer.refused(429, "rate_limited");
    hint(&answer, &message);
    assert_eq!(answer.json()["error"]["tool"], "up:look", "{answer:?}");
}

/// Makes one attempt of each kind that counts, five in all, and checks that they pass.
async fn five_pass(agent: &Api) {
    list(agent).await.expect(200);
    Mcp::bare(agent).run("read", "up:look", &json!({})).await.ok();
    Mcp::modern(agent).search(&json!({"query": "look"})).await;
    agent.get("/api/v1/tools?query=look").await.expect(200);
    let body = json!({"tool_variant": "call_tool_read", "name": "up:look"});
    agent.post("/api/v1/tools/call", &body).await.expect(200);
}

#[tokio::test]
async fn a_keys_minute() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look"), Tool::destroys("wipe")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent_with(json!({"rate_limit": 5})).await;
    let (colleague, stranger) = (tenant.agent().await, stage.tenant("other").await.agent().await);

    five_pass(&agent).await;
    each_is_refused(&agent).await;
    assert_eq!(upstream.counts().calls, 2, "what was refused never left");
    // the answer to a call that a check refuses is that check's, and such a call is on record
    Mcp::bare(&agent).run("read", "up:wipe", &json!({})).await.refused("server_mismatch");
    Mcp::bare(&agent).run("read", "up:none", &json!({})).await.refused("not_found");
    // what costs nothing is not counted
    Mcp::session(&agent).await;
    Mcp::bare(&agent).request("ping", "{}").await.expect(200);
    Mcp::modern(&agent).request("server/discover", "{}").await.expect(200);
    agent.get("/api/v1/status").await.expect(200);
    // nobody else notices
    assert_eq!((passed(&colleague, 8).await, passed(&stranger, 8).await), (8, 8));

    // none holds at once
    let own = format!("/api/v1/keys/{}/settings", agent.id);
    tenant.platform.patch(&own, &json!({"rate_limit": null})).await.expect(200);
    assert_eq!(passed(&agent, 70).await, 70);

    // four attempts and two refusals of checks, each on record; six sheds, on record together
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let next = Gateway::start(&stage.database, &[]).await;
    let log = next.ask_as(&tenant.platform).items(&format!("/api/v1/activity?key={}", agent.id)).await;
    let of = |status: &str| log.iter().filter(|record| record["status"] == status).collect::<Vec<_>>();
    assert_eq!((of("success").len(), of("blocked").len(), log.len()), (4, 2, 7), "{log:?}");
    let shed = of("rejected")[0];
    let found = ["type", "source", "error_code"].map(|name| shed[name].as_str().unwrap_or("-"));
    assert_eq!(found, ["system", "system", "rate_limited"], "{shed}");
    let counted: Value = serde_json::from_str(shed["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(counted, json!({"count": 6, "calls": 2, "searches": 2, "reads": 0, "lists": 2}), "{shed}");
    assert_eq!(shed["owner"], "agent", "{shed}");
}

/// A person's minute is a key's: of all tokens together, and of nobody else.
#[tokio::test]
async fn a_persons_minute() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look"), Tool::destroys("wipe")]).await;
    tenant.add("up", &upstream).await;
    let people = People::of(&stage, &tenant, "acme").await;
    let person = people.person("agent", json!({"rate_limit": 5})).await;
    let (colleague, key) = (people.person("agent", json!({})).await, tenant.agent().await);
    five_pass(&person).await;
    each_is_refused(&person).await;
    assert_eq!(upstream.counts().calls, 2, "what was refused never left");
    Mcp::bare(&person).run("read", "up:wipe", &json!({})).await.refused("server_mismatch");
    // another token of the same person is no other minute
    assert_eq!(passed(&people.again(&person, "person-0"), 3).await, 0);
    assert_eq!((passed(&colleague, 8).await, passed(&key, 8).await), (8, 8));
    people.change(json!({"rate_limit": null})).await;
    assert_eq!(passed(&person, 70).await, 70);

    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let next = Gateway::start(&stage.database, &[]).await;
    let path = format!("/api/v1/activity?identity_id={}", person.id);
    let log = next.ask_as(&tenant.platform).items(&path).await;
    let shed = log.iter().find(|record| record["status"] == "rejected").unwrap_or_else(|| panic!("{log:?}"));
    let found = ["type", "source", "error_code"].map(|name| shed[name].as_str().unwrap_or("-"));
    assert_eq!(found, ["system", "system", "rate_limited"], "{shed}");
    assert_eq!(shed["key_id"], Value::Null, "{shed}");
}

#[tokio::test]
async fn a_refused_attempt_counts_too() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent_with(json!({"rate_limit": 3})).await;
    let client = Mcp::bare(&agent);
    client.run("read", "up:none", &json!({})).await.refused("not_found");
    assert_eq!(client.call("no_such_tool", &json!({})).await.error()["code"], -32602);
    agent.get("/api/v1/tools?query=x&limit=0").await.refused(400, "invalid_request");
    list(&agent).await.expect(429);
}

/// Checks that attempts over the limit cannot fill the log: the first ten refusals are recorded, the others
/// counted.
#[tokio::test]
async fn refusals_over_the_limit_are_recorded_up_to_ten_and_counted() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look"), Tool::destroys("wipe")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent_with(json!({"rate_limit": 3, "direct_endpoint": true})).await;
    let client = Mcp::bare(&agent);
    for _ in 0..3 {
        client.run("read", "up:none", &json!({})).await.refused("not_found");
    }
    // the answers stay those of the checks, by every way in
    for _ in 0..8 {
        client.run("read", "up:wipe", &json!({})).await.refused("server_mismatch");
        client.run("odd", "up:wipe", &json!({})).await.error();
        agent.get("/api/v1/tools?query=x&limit=0").await.refused(400, "invalid_request");
    }
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let next = Gateway::start(&stage.database, &[]).await;
    let log = next.ask_as(&tenant.platform).items(&format!("/api/v1/activity?key={}", agent.id)).await;
    let of = |status: &str| log.iter().filter(|record| record["status"] == status).collect::<Vec<_>>();
    assert_eq!((of("blocked").len(), of("rejected").len(), log.len()), (3 + 10, 1, 14), "{log:?}");
    let counted: Value = serde_json::from_str(of("rejected")[0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(counted["count"], 14, "{counted}");
    assert_eq!(counted["calls"].as_u64().unwrap() + counted["searches"].as_u64().unwrap(), 14, "{counted}");
}

#[tokio::test]
async fn what_a_session_wishes_counts() {
    let stage = Stage::with(&[("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent_with(json!({"rate_limit": 4, "direct_endpoint": true})).await;
    let client = Mcp::direct(&agent).shake_hands("2025-11-25").await;
    let wishes =
        [("logging/setLevel", r#"{"level":"info"}"#), ("resources/unsubscribe", r#"{"uri":"doc://a"}"#)];
    for (method, params) in wishes.into_iter().cycle().take(4) {
        assert_eq!(client.request(method, params).await.json()["result"], json!({}), "{method}");
    }
    for (method, params) in wishes {
        let error = client.request(method, params).await.json()["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["code"]),
            (&json!(-31429), &json!("rate_limited")),
            "{method}"
        );
    }
    list(&agent).await.expect(429);
}

#[tokio::test]
async fn a_tenants_value_is_the_total_of_its_keys() {
    let stage = Stage::with(&[("MCPPROXY__DEFAULTS__RATE_LIMIT", "4")]).await;
    let tenant = stage.tenant("acme").await;
    tenant.platform.patch("/api/v1/settings", &json!({"rate_limit": 6})).await.expect(200);
    let (first, second) = (tenant.agent().await, tenant.agent_with(json!({"rate_limit": 3})).await);
    // the deployment's value is for each key
    assert_eq!(passed(&first, 9).await, 4);
    assert!(list(&first).await.text.contains("of this key (4 attempts"));
    // the key's own three, of which two are left in the tenant's six
    assert_eq!(passed(&second, 9).await, 2);
    let said = list(&second).await;
    assert!(said.text.contains("of this tenant (6 attempts"), "{said:?}");
    // what the tenant refused took nothing from the key
    tenant.platform.patch("/api/v1/settings", &json!({"rate_limit": null})).await.expect(200);
    assert_eq!(passed(&second, 9).await, 1);
    assert_eq!(passed(&stage.tenant("other").await.agent().await, 9).await, 4);
}

#[tokio::test]
async fn whoever_waits_as_told_is_let_in() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent_with(json!({"rate_limit": 60})).await;
    assert_eq!(passed(&agent, 60).await, 60);
    // one comes back every second, so a busy machine may see one or two more
    let refused = eventually("a refusal", Duration::from_secs(5), || async {
        Some(list(&agent).await).filter(|answer| answer.status == 429)
    })
    .await;
    let error = refused.expect(429)["error"].clone();
    let seconds = hint(&refused, error["message"].as_str().unwrap());
    assert_eq!(seconds, 1, "{error}");
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    list(&agent).await.expect(200);
}

#[tokio::test]
async fn another_limit_holds_at_once() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent_with(json!({"rate_limit": 1})).await;
    assert_eq!(passed(&agent, 3).await, 1);
    let own = format!("/api/v1/keys/{}/settings", agent.id);
    // the minute is used up: it goes on at the new pace, ten a second
    tenant.platform.patch(&own, &json!({"rate_limit": 600})).await.expect(200);
    settle(200, Duration::from_secs(1), || async { list(&agent).await.status }).await;
    tenant.platform.patch(&own, &json!({"rate_limit": 1})).await.expect(200);
    assert_eq!(passed(&agent, 3).await, 0);
    tenant.platform.patch(&own, &json!({"rate_limit": null})).await.expect(200);
    assert_eq!(passed(&agent, 3).await, 3);
}

/// How many of two lists a new key may make here whose limit is two.
async fn of_two(tenant: &Tenant, replica: &Gateway) -> usize {
    let key = tenant.agent_with(json!({"rate_limit": 2})).await;
    passed(&replica.ask_as(&key), 2).await
}

#[tokio::test]
async fn replicas_share_a_limit() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    assert_eq!(of_two(&tenant, &stage.gateway).await, 2);
    let mut other = Gateway::start(&stage.database, &[]).await;
    // the newcomer knows at once, the first one with its next heartbeat
    assert_eq!(of_two(&tenant, &other).await, 1);
    settle(1, NOTICED, || of_two(&tenant, &stage.gateway)).await;
    let agent = tenant.agent_with(json!({"rate_limit": 10})).await;
    assert_eq!((passed(&agent, 9).await, passed(&other.ask_as(&agent), 9).await), (5, 5));
    // a share is never nothing
    let slow = tenant.agent_with(json!({"rate_limit": 1})).await;
    assert_eq!((passed(&slow, 5).await, passed(&other.ask_as(&slow), 5).await), (1, 1));
    other.terminate();
    assert!(other.ended().await.success());
    settle(2, NOTICED, || of_two(&tenant, &stage.gateway)).await;
}
