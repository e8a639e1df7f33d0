//! Check 10 under attack: schemas and arguments made to take time and memory, texts made to switch the check off.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Mcp, Stage, Tenant, Tool, Upstream};

/// Longest answer to anybody else meanwhile. Loose, and no promise: a test build takes seconds to read two bodies of 4 MiB,
/// which happens on the threads that serve. It finds an attack that holds everybody up for its whole time. What a release
/// keeps to is in `domain/schema/tests/bounds.rs`.
const OTHERS: Duration = Duration::from_secs(10);
/// Longest answer to the attacker itself.
const OWN: Duration = Duration::from_secs(60);
/// Most memory of the process, in MiB. It includes what it takes idle, and two requests of 4 MiB at a time.
const MEMORY_MIB: usize = 400;
/// Most bytes of a request's arguments.
const BODY: usize = 4 * 1024 * 1024 - 2048;

pub fn tool(name: &str, schema: &str) -> Tool {
    let definition =
        format!(r#"{{"name":"{name}","inputSchema":{schema},"annotations":{{"readOnlyHint":true}}}}"#);
    Tool::raw(name, &definition)
}

pub fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// Tools, with the arguments that hurt and how such a call ends.
pub fn recipes() -> Vec<(Tool, String, &'static str)> {
    let letters: serde_json::Map<_, _> =
        (0..500).map(|n| (format!("p{n}"), json!({"pattern": r"\p{L}{160}"}))).collect();
    let letters = json!({"type": "object", "properties": letters}).to_string();
    let values = format!(r#"{{"additionalProperties":{{"items":{{"enum":{}}}}}}}"#, list("0", 100_001));
    let strings = r#"{"type":"object","properties":{"a":{"items":{"type":"string"}}}}"#;
    let numbers = r#"{"type":"object","properties":{"a":{"items":{"type":"number"}}}}"#;
    let ones = list("1", 150_000);
    let many = list("1", BODY / 2);
    vec![
        (tool("letters", &letters), r#"{"p0":"x"}"#.to_owned(), "ok"),
        (tool("enum", &values), format!(r#"{{"a":{},"b":{ones}}}"#, list("0", 150_000)), "invalid_arguments"),
        (tool("strings", strings), format!(r#"{{"a":{many}}}"#), "invalid_arguments"),
        (tool("numbers", numbers), format!(r#"{{"a":{many}}}"#), "invalid_arguments"),
        (tool("object", r#"{"type":"object"}"#), format!(r#"{{"a":{}}}"#, list(r#"{"":0}"#, BODY / 7)), "ok"),
    ]
}

async fn attack(tenant: &Tenant, tool: &str, arguments: &str, expected: &str) {
    let client = Mcp::bare(&tenant.agent().await);
    let arguments = format!(r#"{{"name":"bad:{tool}","args":{arguments}}}"#);
    let began = Instant::now();
    let calls = (0..2).map(|_| client.call_raw("call_tool_read", &arguments));
    for outcome in futures_util::future::join_all(calls).await {
        assert_eq!(outcome.code(), expected, "{tool}");
    }
    assert!(began.elapsed() < OWN, "{tool}: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn they_hold_nobody_up_and_take_little_memory() {
    let stage = Stage::start().await;
    let (evil, good) = (stage.tenant("evil").await, stage.tenant("good").await);
    let recipes = recipes();
    let bad = Upstream::handshake(recipes.iter().map(|(tool, ..)| tool.clone()).collect()).await;
    evil.add("bad", &bad).await;
    let honest = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let upstream = Upstream::handshake(vec![tool("look", honest)]).await;
    good.add("up", &upstream).await;
    let client = Mcp::bare(&good.agent().await);
    client.run("read", "up:look", &json!({"n": 1})).await.ok();

    let names = ["letters", "enum", "strings", "numbers", "object"];
    let attacks = recipes
        .iter()
        .zip(names)
        .map(|((_, arguments, expected), name)| attack(&evil, name, arguments, expected));
    let attacks = async {
        for attack in attacks {
            attack.await;
        }
    };
    let mut attacks = std::pin::pin!(attacks);
    let (mut slowest, mut asked) = (Duration::ZERO, 0);
    loop {
        let other = async {
            let began = Instant::now();
            client.run("read", "up:look", &json!({"n": 1})).await.ok();
            stage.gateway.anonymous().get("/livez").await.expect(200);
            began.elapsed()
        };
        tokio::select! {
            biased;
            took = other => {
                slowest = slowest.max(took);
                asked += 1;
            }
            () = &mut attacks => break,
        }
    }
    assert!(asked > 3, "the attack was over too soon to tell");
    assert!(slowest < OTHERS, "another tenant waited {slowest:?}");
    let peak = stage.gateway.memory_peak_mib();
    assert!(peak < MEMORY_MIB, "{peak} MiB");

    // what is not used is said, and what is refused names its bound
    let record = evil.records("type=tool_call&tool=letters", 2).await.remove(0);
    let warning = record["warning"].as_str().unwrap_or_default();
    assert!(warning.contains("could not be used") && warning.contains("a pattern needs more"), "{record}");
    let record = evil.records("type=tool_call&tool=numbers", 2).await.remove(0);
    assert!(record.to_string().contains("more than 200000 values"), "{record}");
    let reached: Vec<String> = bad.calls().into_iter().map(|call| call.arguments).collect();
    assert_eq!(reached.len(), 4, "{}", reached.len());
}

#[tokio::test]
async fn nothing_that_a_caller_writes_switches_the_check_off() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let schema = r#"{"type":"object","properties":{"n":{"maximum":9007199254740992},
        "s":{"type":"string","maxLength":3,"x-mcp-header":"S"}}}"#;
    let upstream = Upstream::modern(vec![tool("t", schema)]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    for client in [Mcp::bare(&agent), Mcp::modern(&agent)] {
        let call = async |form: &str| {
            let arguments = format!(r#"{{"name":"up:t",{form}}}"#);
            client.call_raw("call_tool_read", &arguments).await
        };
        for form in [
            r#""args":{"s":"\ud800"}"#,
            r#""args":{"s":"long","x":["\udc00\ud800"]}"#,
            r#""args":{"s":"long","\ud800":1}"#,
        ] {
            let error = call(form).await.error();
            assert_eq!(error["code"], -32602, "{error}");
            assert!(error["message"].as_str().unwrap().contains("lone surrogate"), "{error}");
        }
        let inside = r#""args_json":"{\"s\":\"long\",\"\\ud800\":1}""#;
        let said = call(inside).await.refused("invalid_arguments");
        assert!(said["message"].as_str().unwrap().contains("lone surrogate"), "{said}");
        for form in [
            r#""args":{"n":1e400}"#,
            r#""args":{"n":9007199254740993}"#,
            r#""args":{"n":1,"s":"long","x":1e400}"#,
            r#""args_json":"{\"n\":1e400}""#,
        ] {
            call(form).await.refused("invalid_arguments");
        }
        call(r#""args":{"n":-1e400,"s":"\ud83d\ude00"}"#).await.ok();
        call(r#""args":{"n":9007199254740992.0,"s":"abc"}"#).await.ok();
    }
    let body = br#"{"tool_variant":"call_tool_read","name":"up:t","args":{"\ud800":1}}"#;
    let request = agent.request(reqwest::Method::POST, "/api/v1/tools/call");
    let answer = agent.send(request.header("Content-Type", "application/json").body(body.to_vec())).await;
    assert!(answer.status == 400 && answer.text.contains("lone surrogate"), "{answer:?}");
    let reached: Vec<String> = upstream.calls().into_iter().map(|call| call.arguments).collect();
    let once = [r#"{"n":-1e400,"s":"\ud83d\ude00"}"#, r#"{"n":9007199254740992.0,"s":"abc"}"#];
    assert_eq!(reached, [once, once].concat());
    let mirrored: Vec<String> =
        upstream.sent("mcp-param-s").into_iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(mirrored, ["=?base64?8J+YgA==?=", "abc", "=?base64?8J+YgA==?=", "abc"]);
}

#[tokio::test]
async fn a_call_over_its_rate_is_not_held_against_a_schema() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![tool("t", r#"{"required":["n"]}"#)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent_with(json!({"rate_limit": 2})).await);
    client.run("read", "up:t", &json!({"n": 1})).await.ok();
    client.run("read", "up:t", &json!({})).await.refused("invalid_arguments");
    client.run("read", "up:t", &json!({})).await.refused("rate_limited");
    // the answers of the other checks come first, as ever
    client.run("read", "up:none", &json!({})).await.refused("not_found");
    assert_eq!(upstream.counts().calls, 1);
}
