//! Definitions and results reach the client as the server sent them: bytes are compared.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{modern, scene};
use crate::support::upstream::{Era, Form};
use crate::support::{Mcp, Tool, Upstream};

/// A definition with everything that a typed relay would lose, and all five hints.
const DEFINITION: &str = r#"{"x-vendor":{"z":1e400,"a":[ ]},"name":"odd" ,"description":"L\u00f6scht \/ nichts, \ud83d\ude00","inputSchema":{"type":"object","properties":{"z":{"type":"integer","maximum":18446744073709551617},"a":{"type":"number","default":1.10}},"x-order":["z","a"]},"annotations":{"vendor/level":9007199254740993,"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"title":"T\u00e9"},"_meta":{"vendor/n":1.0}, "title":"\u0041"}"#;
const RESULT: &str = r#"{"zebra":{"y":1,"x":[ ]},"content":[{"type":"hologram","data":{"b":2,"a":1}}],"structuredContent":{"big":18446744073709551617,"far":1e400},"_meta":{"vendor/trace":{"z":[1.0]}}, "isError":false}"#;

/// The tools of a list, raw.
async fn listed(client: &Mcp) -> Vec<String> {
    #[derive(Deserialize)]
    struct Listed {
        result: Tools,
    }
    #[derive(Deserialize)]
    struct Tools {
        tools: Vec<Box<RawValue>>,
    }
    let answer = client.request("tools/list", "{}").await;
    let listed: Listed = serde_json::from_str(&answer.text).unwrap_or_else(|e| panic!("{e}: {answer:?}"));
    listed.result.tools.iter().map(|tool| tool.get().to_owned()).collect()
}

#[tokio::test]
async fn a_definition_and_a_result_are_the_bytes_sent() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    for (era, form) in [(Era::Handshake, Form::Json), (Era::Modern, Form::Events)] {
        let name = format!("{era:?}").to_lowercase();
        let raw = match era {
            Era::Handshake => RESULT.to_owned(),
            Era::Modern => RESULT.replacen('{', r#"{"resultType":"complete","#, 1),
        };
        let upstream = Upstream::start(era, form, vec![Tool::raw("odd", DEFINITION).returns(&raw)]).await;
        tenant.add(&name, &upstream).await;
        let own = format!("{name}:odd");
        let expected = DEFINITION.replacen("\"odd\"", &format!("\"{own}\""), 1);
        for client in [Mcp::direct(&agent), modern(&agent)] {
            assert!(listed(&client).await.contains(&expected), "{own}");
        }
        let old = Mcp::direct(&agent).call(&own, &json!({})).await;
        assert_eq!(old.raw(), RESULT);
        let new = modern(&agent).call(&own, &json!({})).await.raw().to_owned();
        assert_eq!(new.replacen(r#""resultType":"complete","#, "", 1), RESULT);
        tenant.platform.delete(&format!("/api/v1/servers/{name}")).await.expect(204);
    }
}

#[tokio::test]
async fn the_five_hints_are_the_same_on_both_endpoints() {
    let (_stage, tenant) = scene().await;
    let upstream = Upstream::handshake(vec![Tool::raw("odd", DEFINITION)]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let annotations =
        DEFINITION.split(r#""annotations":"#).nth(1).unwrap().split(r#","_meta""#).next().unwrap();
    let found = Mcp::bare(&agent).call("retrieve_tools", &json!({"query": "odd"})).await;
    for text in [found.raw(), &Mcp::direct(&agent).request("tools/list", "{}").await.text] {
        assert!(text.contains(annotations), "{text}");
    }
}

#[tokio::test]
async fn each_era_gets_what_it_can_read_and_one_bad_tool_spoils_no_list() {
    let (_stage, tenant) = scene().await;
    let tool = |name: &str, members: &str| {
        Tool::raw(name, &format!(r#"{{"name":"{name}"{members},"annotations":{{"readOnlyHint":true}}}}"#))
    };
    let schema = r#","inputSchema":{"type":"object"}"#;
    let upstream = Upstream::modern(vec![
        tool("any", &format!(r#"{schema},"outputSchema":{{"type":"array"}}"#)),
        tool("object", &format!(r#"{schema},"outputSchema":{{"type":"object"}}"#)),
        tool("tasks", &format!(r#"{schema},"execution":{{"taskSupport":"optional"}}"#)),
        tool("hidden", r#","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}"#),
        tool("untyped", r#","inputSchema":{}"#),
        Tool::raw("empty", &format!(r#"{{"name":"empty","title":null{schema},"annotations":{{"readOnlyHint":true,"idempotentHint":null}}}}"#)),
    ])
    .await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let (old, new) = (listed(&Mcp::direct(&agent)).await, listed(&modern(&agent)).await);
    let of = |tools: &[String], name: &str| {
        let own = format!("\"up:{name}\"");
        tools.iter().find(|tool| tool.contains(&own)).cloned().unwrap_or_default()
    };
    for (name, member, in_old, in_new) in [
        ("any", "outputSchema", false, true),
        ("object", "outputSchema", true, true),
        ("tasks", "execution", true, false),
        ("hidden", "x-mcp-header", false, false),
        ("empty", "null", false, false),
    ] {
        assert_eq!((of(&old, name).is_empty(), of(&new, name).is_empty()), (false, false), "{name}");
        assert_eq!(of(&old, name).contains(member), in_old, "{name}: {old:?}");
        assert_eq!(of(&new, name).contains(member), in_new, "{name}: {new:?}");
    }
    assert_eq!((of(&old, "untyped"), of(&new, "untyped")), (String::new(), String::new()));
    Mcp::direct(&agent).call("up:untyped", &json!({})).await.ok();
    for tool in tenant.platform.items("/api/v1/servers/up/tools").await {
        assert_eq!(tool["not_listed"].is_string(), tool["name"] == "untyped", "{tool}");
    }
}
