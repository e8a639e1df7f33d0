//! What the search-first tools look like, and what a call carries.

use serde_json::{Value, json};

use crate::support::upstream::Say;
use crate::support::{Mcp, Outcome, Stage, Tool, Upstream, upstream};

fn named<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}: {tools:?}"))
}

#[tokio::test]
async fn the_list_shows_each_key_its_own_forms() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let inferred = Mcp::bare(&tenant.agent().await).tools().await;
    let required =
        Mcp::modern(&tenant.agent_with(json!({"intent_declaration": "required"})).await).tools().await;
    insta::assert_json_snapshot!("tools_where_intent_is_inferred", inferred);
    insta::assert_json_snapshot!("tools_where_intent_is_required", required);
    for tool in inferred.iter().chain(&required) {
        assert_eq!(tool.get("outputSchema"), None, "{tool}");
    }
    let properties = |tools: &[Value]| {
        named(tools, "call_tool_read")["inputSchema"]["properties"].as_object().unwrap().clone()
    };
    for name in ["name", "args", "args_json", "intent_data_sensitivity", "intent_reason"] {
        assert!(properties(&inferred).contains_key(name), "{name}");
    }
    assert!(!properties(&inferred).contains_key("intent"), "some models fail on nested objects");
    assert!(properties(&required).contains_key("intent"));
    let described =
        |tools: &[Value]| named(tools, "call_tool_write")["description"].as_str().unwrap().to_lowercase();
    assert!(described(&inferred).contains("inferred"), "{}", described(&inferred));
    assert!(!described(&required).contains("inferred"), "{}", described(&required));
}

#[tokio::test]
async fn arguments_and_meta_travel_and_credentials_do_not() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    for upstream in [Upstream::handshake(upstream::zoo()).await, Upstream::modern(upstream::zoo()).await] {
        let name = format!("zoo-{}", upstream.url.rsplit(':').next().unwrap().trim_end_matches("/mcp"));
        tenant.add(&name, &upstream).await;
        let agent = tenant.agent().await;
        let odd = r#"{ "z":1.50 ,"a":"\u00e9\/","big":18446744073709551617,"far":1e400,"nested":{"b":[ ],"a":-0.0}}"#;
        for client in [Mcp::session(&agent).await, Mcp::modern(&agent)] {
            let arguments = format!(r#"{{"name":"{name}:reader","args":{odd}}}"#);
            client.call_raw("call_tool_read", &arguments).await.ok();
            let escaped = serde_json::to_string(odd).unwrap();
            let arguments = format!(r#"{{"name":"{name}:reader","args_json":{escaped}}}"#);
            client.call_raw("call_tool_read", &arguments).await.ok();
        }
        let key = agent.key.clone().unwrap();
        let calls = upstream.calls();
        assert_eq!(calls.len(), 4);
        for call in calls {
            assert_eq!(call.arguments, odd);
            assert_eq!(call.tool, "reader");
            assert!(!format!("{:?}", call.headers).contains(&key), "{:?}", call.headers);
            for name in ["x-api-key", "authorization", "cookie", "x-tenant"] {
                assert!(!call.headers.contains_key(name), "{:?}", call.headers);
            }
        }
    }
}

#[tokio::test]
async fn arguments_are_checked_against_the_schema() {
    let definition = r#"{"name":"book","inputSchema":{"type":"object","required":["room"],"additionalProperties":false,
        "properties":{"room":{"type":"string","maxLength":8},"guests":{"type":"integer","minimum":1},
        "who":{"type":"object","properties":{"mail":{"type":"string","pattern":"^[^@]+@[^@]+$"}}}}},
        "annotations":{"readOnlyHint":true}}"#;
    let broken =
        r#"{"name":"broken","inputSchema":{"type":"no such type"},"annotations":{"readOnlyHint":true}}"#;
    let remote = r#"{"name":"remote","inputSchema":{"$ref":"http://127.0.0.1:9/schema"},"annotations":{"readOnlyHint":true}}"#;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![
        Tool::raw("book", definition),
        Tool::raw("broken", broken),
        Tool::raw("remote", remote),
    ])
    .await;
    tenant.add("hotel", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let cases = [
        (json!({}), "room"),
        (json!({"room": 7}), "/room"),
        (json!({"room": "sevensecret"}), "/room"),
        (json!({"room": "a", "guests": -424242}), "/guests"),
        (json!({"room": "a", "sevensecret": 1}), ""),
        (json!({"room": "a", "who": {"mail": "sevensecret"}}), "/who/mail"),
    ];
    for (arguments, path) in cases {
        let outcome = client.run("read", "hotel:book", &arguments).await;
        let message = outcome.refused("invalid_arguments")["message"].as_str().unwrap().to_owned();
        assert!(message.contains(path), "{arguments}: {message}");
        // an unknown member's name is the rule's own words; a value never is
        let is_named = arguments.get("sevensecret").is_some();
        assert!(is_named || !message.contains("sevensecret"), "{arguments}: {message}");
        assert!(!message.contains("424242"), "{arguments}: {message}");
    }
    assert_eq!(upstream.counts().calls, 0);
    client.run("read", "hotel:book", &json!({"room": "a", "guests": 2})).await.ok();
    for name in ["hotel:broken", "hotel:remote"] {
        let result = client.run("read", name, &json!({"any": "thing"})).await.ok();
        assert!(result["_meta"]["mcpproxy/warning"].is_string(), "{name}: {result}");
    }
    let records = tenant.records("type=tool_call&status=blocked", 6).await;
    assert!(records.iter().all(|record| record["error_code"] == "invalid_arguments"));
}

#[tokio::test]
async fn a_warning_joins_the_meta_that_is_there() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![
        Tool::reads("with").returns(r#"{"content":[],"_meta":{"vendor/x":{"deep":[1,2]}}}"#),
        Tool::reads("without").returns(r#"{"content":[]}"#),
        Tool::reads("empty").returns("{}"),
    ])
    .await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    for tool in ["with", "without", "empty"] {
        let result = client.run("write", &format!("up:{tool}"), &json!({})).await.ok();
        let warning = result["_meta"]["mcpproxy/warning"].as_str().unwrap_or_default();
        assert_eq!(
            warning,
            format!("Tool 'up:{tool}' is marked read-only by server, call_tool_read is enough")
        );
        if tool == "with" {
            assert_eq!(result["_meta"]["vendor/x"], json!({"deep": [1, 2]}), "{result}");
        }
        let silent = client.run("read", &format!("up:{tool}"), &json!({})).await.ok();
        assert!(silent["_meta"].get("mcpproxy/warning").is_none(), "{silent}");
    }
}

#[tokio::test]
async fn progress_comes_before_the_result() {
    const COUNT: usize = 5;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstreams = [
        ("old", Upstream::handshake(vec![Tool::reads("work").says(Say::Progress(COUNT))]).await),
        ("new", Upstream::modern(vec![Tool::reads("work").says(Say::Progress(COUNT))]).await),
    ];
    let agent = tenant.agent().await;
    for (name, upstream) in &upstreams {
        tenant.add(name, upstream).await;
        for client in [Mcp::session(&agent).await, Mcp::modern(&agent)] {
            let arguments = json!({"name": format!("{name}:work")});
            let silent = client.call("call_tool_read", &arguments).await;
            assert!(silent.events().is_empty(), "{silent:?}");
            let params =
                json!({"name": "call_tool_read", "arguments": arguments, "_meta": {"progressToken": "p-7"}});
            let told = client.request("tools/call", &params.to_string()).await;
            let outcome = Outcome { answer: told };
            outcome.ok();
            let updates: Vec<Value> = outcome
                .events()
                .into_iter()
                .map(|event| {
                    json!([event["method"], event["params"]["progressToken"], event["params"]["progress"]])
                })
                .collect();
            let expected: Vec<Value> =
                (1..=COUNT).map(|n| json!(["notifications/progress", "p-7", n])).collect();
            assert_eq!(updates, expected, "from {name}: {outcome:?}");
        }
    }
}
