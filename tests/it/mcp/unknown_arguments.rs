//! A misspelt argument must not run a tool without it.

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, Upstream, upstream};

#[tokio::test]
async fn an_unknown_argument_is_named_and_nothing_runs() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let mut attempts = 0;
    for client in [Mcp::bare(&agent), Mcp::session(&agent).await, Mcp::modern(&agent)] {
        for (variant, tool) in [("read", "reader"), ("write", "writer"), ("destructive", "wiper")] {
            for unknown in ["arguments", "Args", "params", "intent_type", "tool_variant", ""] {
                let mut arguments = json!({"name": format!("zoo:{tool}")});
                arguments[unknown] = json!({"ticket": "lost"});
                let outcome = client.call(&format!("call_tool_{variant}"), &arguments).await;
                let said = outcome.refused("invalid_arguments");
                let message = said["message"].as_str().unwrap();
                let says = format!("'{unknown}'; known: name, args, args_json, intent, ");
                assert!(message.contains(&says), "{unknown}: {message}");
                assert_eq!(said["variant"], format!("call_tool_{variant}"), "{said}");
                attempts += 1;
            }
        }
    }
    let rest = tenant.agent().await;
    let body =
        json!({"tool_variant": "call_tool_write", "name": "zoo:writer", "arguments": {"ticket": "lost"}});
    let answer = rest.post("/api/v1/tools/call", &body).await;
    answer.refused(400, "invalid_request");
    assert_eq!(answer.json()["error"]["field"], "arguments", "{answer:?}");
    assert_eq!(upstream.counts().calls, 0, "{:?}", upstream.calls());
    for record in tenant.records(&format!("type=tool_call&key={}", agent.id), attempts).await {
        assert_eq!(
            (&record["status"], &record["error_code"]),
            (&json!("blocked"), &json!("invalid_arguments")),
            "{record}"
        );
    }
    let record = tenant.records(&format!("type=tool_call&key={}", rest.id), 1).await.remove(0);
    assert_eq!((&record["status"], &record["source"]), (&json!("blocked"), &json!("rest")), "{record}");
    // rightly spelt it arrives
    let arguments: Value = json!({"name": "zoo:writer", "args": {"ticket": "found"}});
    Mcp::bare(&agent).call("call_tool_write", &arguments).await.ok();
    assert_eq!(upstream.tickets(), ["found"]);
}
