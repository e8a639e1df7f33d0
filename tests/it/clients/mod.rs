//! The official clients, against real servers: what their users will run. Every stack takes the same steps; a client
//! that is not installed fails the test.

mod agents;
mod consent;
mod direct;
mod listening;
mod rounds;
mod script;
mod servers;
pub mod stacks;

use serde_json::{Value, json};

use self::script::{Servers, check_log, check_report};
use self::stacks::{STACKS, Stack, inspector, run_all};
use crate::support::{Api, Balancer, Exchange, Gateway, Stage, Tenant};

/// A key for every client; results are compared whole.
async fn keys(tenant: &Tenant, settings: Value) -> Vec<Api> {
    tenant.platform.patch("/api/v1/settings", &json!({"response_limit": 0})).await.expect(200);
    let mut keys = Vec::new();
    for _ in STACKS {
        keys.push(tenant.agent_with(settings.clone()).await);
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_against_every_server() {
    let commands = servers::commands();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let servers = Servers::of(&tenant).await;
    let steps = servers.steps();
    for (stack, key, code, report) in
        run_all(&stage.gateway.url, keys(&tenant, json!({})).await, &steps).await
    {
        assert_eq!(code, Some(0), "{}: {report}", stack.name);
        check_report(&stack, &report);
        if stack.keeps_wire() {
            let bodies = report["wire"].as_array().unwrap().iter();
            let messages: Vec<Value> =
                bodies.map(|body| serde_json::from_str(body.as_str().unwrap()).unwrap()).collect();
            on_the_wire(&stack, &messages);
        }
        check_log(&tenant, &stack, &key, &steps).await;
    }
    servers.check_arrived(STACKS.len());
}

/// `resultType` is in every modern result and in no other; progress came whole and in order.
fn on_the_wire(stack: &Stack, messages: &[Value]) {
    let who = stack.name;
    let results: Vec<&Value> = messages.iter().filter(|message| message["result"].is_object()).collect();
    for message in &results {
        let result_type = &message["result"]["resultType"];
        assert_eq!(*result_type == "complete", stack.is_modern(), "{who}: {message}");
        assert!(stack.is_modern() || !message.to_string().contains("resultType"), "{who}: {message}");
    }
    assert!(results.len() >= 9, "{who}: only {} results on the wire", results.len());
    let updates = messages.iter().filter(|message| message["params"]["total"] == 3);
    let progress: Vec<&Value> = updates.map(|message| &message["params"]["progress"]).collect();
    assert_eq!(progress, [1, 2, 3], "{who}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_through_two_replicas() {
    let commands = servers::commands();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    let stage = Stage::with(&settings).await;
    let other = Gateway::start(&stage.database, &settings).await;
    let tenant = stage.tenant("acme").await;
    let servers = Servers::of(&tenant).await;
    let balancer = Balancer::before(&[&stage.gateway, &other]).await;
    let steps = servers.steps();
    for (stack, key, code, report) in run_all(&balancer.url, keys(&tenant, json!({})).await, &steps).await {
        assert_eq!(code, Some(0), "{}: {report}", stack.name);
        check_report(&stack, &report);
        let passed = balancer.passed(key.key.as_deref().unwrap());
        without_stickiness(&stack, &passed);
        let messages: Vec<Value> = passed.iter().flat_map(Exchange::messages).collect();
        on_the_wire(&stack, &messages);
        check_log(&tenant, &stack, &key, &steps).await;
    }
    servers.check_arrived(STACKS.len());
}

/// One session for all that a client does, used on both replicas; none in the modern era; nothing was refused.
fn without_stickiness(stack: &Stack, passed: &[Exchange]) {
    let who = stack.name;
    let is_use = |exchange: &&Exchange| exchange.rpc.starts_with("tools/");
    let session = passed.iter().find(is_use).unwrap().session.clone();
    assert_eq!(session.is_empty(), stack.is_modern(), "{who}: {passed:?}");
    for replica in [0, 1] {
        assert!(
            passed.iter().filter(is_use).any(|exchange| exchange.replica == replica),
            "{who}: {passed:?}"
        );
    }
    // a client may try a server out before it settles; from then on a handshake would mean a lost session
    for exchange in passed.iter().skip_while(|exchange| !is_use(exchange)) {
        assert_eq!(exchange.session, session, "{who}: {passed:?}");
    }
    assert!(passed.iter().all(|exchange| exchange.status < 300), "{who}: {passed:?}");
    let streams = passed.iter().filter(|exchange| exchange.method == "GET" && exchange.session == session);
    assert_eq!(streams.count() == 1, !stack.is_modern(), "{who}: {passed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_lives_through_a_rate_limit() {
    let commands = servers::commands();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let search = json!({"call": {"name": "retrieve_tools", "arguments": {"query": "x"}}});
    let steps = json!([{"list": true}, search, {"list": true}, search, search]);
    let keys = keys(&tenant, json!({"rate_limit": 2})).await;
    for (stack, _, code, report) in run_all(&stage.gateway.url, keys, &steps).await {
        let (who, step) = (stack.name, |at: usize| &report["steps"][at]);
        assert_eq!(code, Some(0), "{who}: {report}");
        assert!(step(0)["ok"]["tools"].is_array(), "{who}: {report}");
        assert_eq!(step(1)["ok"]["structuredContent"]["total"], 0, "{who}: {report}");
        // a modern client keeps a list for as long as it was told that it may
        let is_kept = stack.is_modern() && step(2)["ok"]["tools"].is_array();
        assert!(is_kept || step(2)["error"].to_string().contains("try again in"), "{who}: {report}");
        for at in [3, 4] {
            assert_eq!(step(at)["ok"]["structuredContent"]["code"], "rate_limited", "{who}: {report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector() {
    let commands = servers::commands();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let _servers = Servers::of(&tenant).await;
    let agent = tenant.agent().await;
    let (url, key) = (&stage.gateway.url, agent.key.as_deref().unwrap());
    let call = async |era: &str, tool: &str, arguments: Value| {
        let arguments = arguments.to_string();
        let call = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &arguments];
        inspector(url, key, era, &call).await
    };
    let (listed, found, ran, refused) = tokio::join!(
        inspector(url, key, "legacy", &["--method", "tools/list"]),
        call("auto", "retrieve_tools", json!({"query": "echo"})),
        call(
            "legacy",
            "call_tool_destructive",
            json!({"name": "everything:echo", "args": {"message": "grüße 🦀"}})
        ),
        call("modern", "call_tool_read", json!({"name": "own:rpc"})),
    );
    assert_eq!(
        (listed.0, &listed.1["result"]["tools"][0]["name"]),
        (Some(0), &json!("retrieve_tools")),
        "{listed:?}"
    );
    assert_eq!(listed.1["result"]["tools"].as_array().map(Vec::len), Some(5), "{listed:?}");
    assert_eq!(found.1["result"]["structuredContent"]["tools"][0]["name"], "everything:echo", "{found:?}");
    assert_eq!(ran.1["result"]["content"][0]["text"], "Echo: grüße 🦀", "{ran:?}");
    assert_eq!(refused.1["result"]["structuredContent"]["code"], "server_mismatch", "{refused:?}");
    assert!(refused.2.contains("tool_is_error"), "{refused:?}");
    for record in tenant.records(&format!("key={}", agent.id), 3).await {
        assert_eq!(record["client"]["name"], "inspector-cli", "{record}");
        let is_legacy = record["tool"] == "echo";
        assert_eq!(record["session_id"].is_string(), is_legacy, "{record}");
    }
    let (code, _, complaint) = inspector(url, "mcpk_wrong", "legacy", &["--method", "tools/list"]).await;
    assert!(code != Some(0) && complaint.contains("auth"), "{code:?} {complaint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_told_so() {
    let commands = servers::commands();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    let stage = Stage::with(&settings).await;
    let keys = STACKS.iter().map(|_| stage.gateway.anonymous().with_key("mcpk_wrong")).collect();
    for (stack, _, code, report) in run_all(&stage.gateway.url, keys, &json!([])).await {
        assert_eq!(code, Some(1), "{}: {report}", stack.name);
        let http = report["http"].as_array().cloned().unwrap_or_default();
        let is_told = http.iter().any(|http| http["status"] == 401);
        assert!(is_told || !stack.keeps_wire(), "{}: {report}", stack.name);
    }
}
