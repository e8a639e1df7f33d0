//! What an upstream sends reaches the client whole: bytes are compared, never parsed values.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::upstream::{Era, Form, Say};
use crate::support::{Mcp, Outcome, Stage, Tool, Upstream};

/// A result with everything that a typed relay would lose.
const RESULT: &str = r#"{"zebra":{"y":1,"x":[ ]},"content":[{"type":"hologram","data":{"b":2,"a":1}},{"type":"text","text":"\u00e9\/\ud83d\ude00 \u0000","annotations":{"vendor/priority":0.10,"audience":[]}} ],"structuredContent":{"big":18446744073709551617,"neg":-9223372036854775809,"tiny":1e-400,"far":1e400,"exact":1.10,"zero":-0.0,"nested":{"_meta":{"q":null}}},"_meta":{"vendor/trace":{"z":[1.0,{"deep":true}],"a":"\u2028"}}, "isError":false}"#;

/// A definition with the same.
const DEFINITION: &str = r#"{"name":"odd","x-vendor":{"z":1e400,"a":[ ]},"description":"L\u00f6scht \/ nichts, \ud83d\ude00","inputSchema":{"type":"object","properties":{"z":{"type":"integer","maximum":18446744073709551617},"a":{"type":"number","default":1.10}},"x-order":["z","a"]},"annotations":{"vendor/level":9007199254740993,"readOnlyHint":true,"title":"T\u00e9","idempotentHint":null},"_meta":{"vendor/n":1.0}}"#;

/// A raw member of a raw object.
fn member(object: &str, name: &str) -> String {
    let members: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(object).unwrap();
    members.get(name).unwrap_or_else(|| panic!("no {name} in {object}")).get().to_owned()
}

async fn fetch(stage: &Stage, era: Era, form: Form) -> (String, String) {
    let name = format!("{era:?}-{form:?}").to_lowercase();
    let tenant = stage.tenant(&name).await;
    let raw = match era {
        Era::Handshake => RESULT.to_owned(),
        Era::Modern => RESULT.replacen('{', r#"{"resultType":"complete","#, 1),
    };
    let upstream = Upstream::start(era, form, vec![Tool::raw("odd", DEFINITION).returns(&raw)]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let run = async |client: Mcp| client.run("read", "up:odd", &json!({})).await.raw().to_owned();
    (run(Mcp::session(&agent).await).await, run(Mcp::modern(&agent)).await)
}

/// The result without `resultType`, and whether it was there.
fn without_result_type(raw: &str) -> (String, bool) {
    for spelled in [r#""resultType":"complete","#, r#","resultType":"complete""#] {
        if raw.contains(spelled) {
            return (raw.replacen(spelled, "", 1), true);
        }
    }
    (raw.to_owned(), false)
}

#[tokio::test]
async fn results_of_every_kind_of_server() {
    let stage = Stage::start().await;
    for era in [Era::Handshake, Era::Modern] {
        for form in [Form::Json, Form::Events] {
            let (old, new) = fetch(&stage, era, form).await;
            assert_eq!(old, RESULT, "to a handshake client, from {era:?} {form:?}");
            assert_eq!(
                without_result_type(&new),
                (RESULT.to_owned(), true),
                "to a modern client, from {era:?} {form:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_result_of_several_lines_ends_a_stream_whole() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let padding = "x".repeat(100_000);
    for (name, raw) in [
        ("short", "{\n\"content\":\n[]\n}".to_owned()),
        ("long", format!("{{\n\"content\":[],\n\"x\":\n\"{padding}\"\n}}")),
    ] {
        let tool = Tool::reads("t").says(Say::Chatter(1, 10, Some(raw.clone())));
        let upstream = Upstream::handshake(vec![tool]).await;
        tenant.add(name, &upstream).await;
        let client = Mcp::bare(&tenant.agent().await);
        let params = format!(
            r#"{{"_meta":{{"progressToken":7}},"name":"call_tool_read","arguments":{{"name":"{name}:t"}}}}"#
        );
        let outcome = Outcome { answer: client.request("tools/call", &params).await };
        assert_eq!(outcome.events().len(), 1, "{outcome:?}");
        assert_eq!(outcome.raw(), raw.replace('\n', " "));
    }
}

#[tokio::test]
async fn results_over_rest() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::raw("odd", DEFINITION).returns(RESULT)]).await;
    tenant.add("up", &upstream).await;
    let body = json!({"tool_variant": "call_tool_read", "name": "up:odd"});
    let answer = tenant.agent().await.post("/api/v1/tools/call", &body).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, RESULT));
}

#[tokio::test]
async fn definitions() {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::raw("odd", DEFINITION)]).await;
    tenant.add("up", &upstream).await;
    let shown = tenant.platform.get("/api/v1/servers/up/tools").await;
    let page: Page<'_> = serde_json::from_str(&shown.text).unwrap();
    let item = page.items[0].get();
    assert_eq!(member(item, "definition"), DEFINITION);
    assert_eq!(member(item, "annotations"), member(DEFINITION, "annotations"));

    let agent = tenant.agent().await;
    for client in [Mcp::bare(&agent), Mcp::modern(&agent)] {
        let outcome = client.call("retrieve_tools", &json!({"query": "odd"})).await;
        let structured = member(outcome.raw(), "structuredContent");
        let tools: Vec<Box<RawValue>> = serde_json::from_str(&member(&structured, "tools")).unwrap();
        for name in ["inputSchema", "annotations", "description"] {
            assert_eq!(member(tools[0].get(), name), member(DEFINITION, name), "{name}");
        }
    }
}

#[tokio::test]
async fn only_the_header_hints_leave_a_schema() {
    let definition = r#"{"name":"where","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","maximum":1e30}}},"annotations":{"readOnlyHint":true}}"#;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![Tool::raw("where", definition)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::modern(&tenant.agent().await);
    let outcome = client.call("retrieve_tools", &json!({"query": "where"})).await;
    assert!(!outcome.answer.text.contains("x-mcp-header"), "{outcome:?}");
    assert!(outcome.answer.text.contains("1e30"), "{outcome:?}");
    client.run("read", "up:where", &json!({"region": "eu"})).await.ok();
    let call = upstream.calls().pop().unwrap();
    assert_eq!(call.headers.get("mcp-param-region").map(String::as_str), Some("eu"), "{:?}", call.headers);
}

#[tokio::test]
async fn a_handshake_client_never_sees_the_modern_fields() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![
        Tool::reads("echo"),
        Tool::writes("rpc").says(Say::RpcError(r#"{"code":1,"message":"m"}"#.into())),
    ])
    .await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    for client in [Mcp::bare(&agent), Mcp::session(&agent).await] {
        let mut seen = vec![
            client.request("tools/list", "{}").await.text,
            client.request("prompts/list", "{}").await.text,
        ];
        seen.push(client.request("ping", "{}").await.text);
        seen.push(client.call("retrieve_tools", &json!({"query": "echo"})).await.answer.text);
        seen.push(client.run("read", "up:echo", &json!({})).await.answer.text);
        seen.push(client.run("write", "up:rpc", &json!({})).await.answer.text);
        seen.push(client.run("read", "up:rpc", &json!({})).await.answer.text);
        for text in seen {
            for name in ["resultType", "ttlMs", "cacheScope"] {
                assert!(!text.contains(name), "{name} in {text}");
            }
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["jsonrpc"], "2.0");
        }
    }
}
