//! The steps that every official client takes, and what must come of each.

use serde_json::{Value, json};

use super::servers::{Real, modern, register};
use super::stacks::Stack;
use crate::support::upstream::Say;
use crate::support::{Api, Tenant, Tool, Upstream};

/// What an agent might send: every plane of Unicode, and more than fits a packet or a buffer.
fn large() -> Value {
    json!({"text": "línea\u{2028}\u{feff} 🦀 \u{10ffff} \"quoted\" \\ \u{7f}", "blob": "ä€".repeat(40_000), "n": 1.5e300})
}

fn call(variant: &str, name: &str, args: &Value) -> Value {
    json!({"call": {"name": format!("call_tool_{variant}"), "arguments": {"name": name, "args": args}}})
}

/// A tenant's servers: two real ones and one that does what it is told.
pub struct Servers {
    /// A tool of the modern server that reads and needs no arguments.
    simple: String,
    own: Upstream,
    _real: Real,
}

impl Servers {
    pub async fn of(tenant: &Tenant) -> Servers {
        let new = modern().await;
        let own = Upstream::handshake(vec![
            Tool::reads("look"),
            Tool::writes("fails")
                .returns(r#"{"content":[{"type":"text","text":"it failed"}],"isError":true}"#),
            Tool::writes("rpc").says(Say::RpcError(
                r#"{"code":-31000,"message":"no such thing","data":{"n":1}}"#.to_owned(),
            )),
        ])
        .await;
        let everything = json!({"name": "everything", "kind": "stdio", "command": "everything"});
        let old_tools = register(tenant, &everything).await;
        assert!(old_tools.iter().any(|tool| tool["name"] == "echo"), "{old_tools:?}");
        let new_tools = register(tenant, &json!({"name": "modern", "kind": "http", "url": new.url})).await;
        tenant.add("own", &own).await;
        let era = async |name: &str| {
            tenant.platform.get(&format!("/api/v1/servers/{name}")).await.expect(200)["era"].clone()
        };
        assert_eq!((era("everything").await, era("modern").await), (json!("handshake"), json!("modern")));
        let simple = new_tools.iter().find(|tool| {
            tool["tier"] == "read"
                && tool["definition"]["inputSchema"]["required"].as_array().is_none_or(Vec::is_empty)
        });
        let simple = simple.unwrap_or_else(|| panic!("{new_tools:?}"))["name"].as_str().unwrap().to_owned();
        Servers { simple, own, _real: new }
    }

    /// The steps; all but the first are attempts.
    pub fn steps(&self) -> Value {
        let long = |seconds: f64, steps: u32| {
            let args = json!({"duration": seconds, "steps": steps});
            call("read", "everything:trigger-long-running-operation", &args)
        };
        let with = |mut step: Value, name: &str| {
            step[name] = json!(true);
            step
        };
        let mut destructive =
            call("destructive", "everything:echo", &json!({"message": "hello-through-the-gateway"}));
        destructive["call"]["arguments"]["intent"] = json!({"operation_type": "destructive", "data_sensitivity": "internal", "reason": "räumt auf 🧹"});
        json!([
            {"list": true},
            {"call": {"name": "retrieve_tools", "arguments": {"query": "echo a message"}}},
            destructive,
            call("read", &format!("modern:{}", self.simple), &json!({})),
            call("read", "own:look", &large()),
            call("write", "own:fails", &json!({})),
            call("write", "own:rpc", &json!({})),
            call("read", "own:rpc", &json!({})),
            with(long(0.3, 3), "progress"),
            {"call": {"name": "no_such_tool", "arguments": {}}},
            with(long(20.0, 100), "cancel"),
            call("read", "own:look", &json!({"after": "the cancellation"})),
        ])
    }

    /// Checks that the server that keeps a log got what so many clients sent.
    pub fn check_arrived(&self, clients: usize) {
        let looks: Vec<Value> = self
            .own
            .calls()
            .iter()
            .filter(|call| call.tool == "look")
            .map(|call| serde_json::from_str(&call.arguments).unwrap())
            .collect();
        assert_eq!(looks.iter().filter(|arguments| **arguments == large()).count(), clients);
        assert_eq!((looks.len(), self.own.counts().calls), (2 * clients, 4 * clients), "once each");
    }
}

/// The names of a `list` step.
fn listed(step: &Value) -> Vec<&str> {
    let tools = step["ok"]["tools"].as_array().unwrap_or_else(|| panic!("{step}"));
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

/// Checks what a client made of the answers.
pub fn check_report(stack: &Stack, report: &Value) {
    let who = stack.name;
    let step = |at: usize| &report["steps"][at];
    for name in ["retrieve_tools", "call_tool_read", "call_tool_write", "call_tool_destructive"] {
        assert!(listed(step(0)).contains(&name), "{who}: {}", step(0));
    }
    let found = &step(1)["ok"]["structuredContent"]["tools"];
    let has_echo = |tools: &Vec<Value>| tools.iter().any(|tool| tool["name"] == "everything:echo");
    assert!(found.as_array().is_some_and(has_echo), "{who}: {}", step(1));
    assert!(step(2)["ok"].to_string().contains("hello-through-the-gateway"), "{who}: {}", step(2));
    assert_ne!(step(3)["ok"]["content"], json!(null), "{who}: {}", step(3));
    let echoed = step(4)["ok"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{who}: {}", step(4)));
    assert!(serde_json::from_str::<Value>(echoed).unwrap() == large(), "{who}: {echoed}");
    assert_eq!(step(5)["ok"]["isError"], true, "{who}: {}", step(5));
    assert_eq!(step(6)["error"]["code"], -31000, "{who}: {}", step(6));
    assert_eq!(step(6)["error"]["data"], json!({"n": 1}), "{who}: {}", step(6));
    assert_eq!(step(7)["ok"]["structuredContent"]["code"], "server_mismatch", "{who}: {}", step(7));
    assert!(step(8)["ok"].to_string().contains("completed"), "{who}: {}", step(8));
    // a client may drop an update that comes together with the result
    let updates = report["progress"].as_array().unwrap().iter();
    let progress: Vec<f64> = updates.map(|update| update["progress"].as_f64().unwrap()).collect();
    assert!(progress == [1.0, 2.0, 3.0] || progress == [1.0, 2.0], "{who}: {progress:?}");
    assert_eq!(step(9)["error"]["code"], -32602, "{who}: {}", step(9));
    assert!(step(10)["error"].is_object(), "{who}: {}", step(10));
    assert!(step(11)["ok"].to_string().contains("the cancellation"), "{who}: {}", step(11));
    let told = &report["protocolVersion"];
    assert!(*told == stack.version || (told.is_null() && stack.name.contains("mcp-remote")), "{who}: {told}");
}

/// Checks the activity log's side of a client's steps.
pub async fn check_log(tenant: &Tenant, stack: &Stack, key: &Api, steps: &Value) {
    let attempts = steps.as_array().unwrap().len() - 1;
    let mut records = tenant.records(&format!("key={}", key.id), attempts).await;
    // newest first; one after the other, so in the steps' order
    records.reverse();
    let who = stack.name;
    let name = format!("mcpproxy-test-client{}", stack.suffix);
    let session = &records[0]["session_id"];
    for record in &records {
        assert_eq!(record["client"], json!({"name": name, "version": "1.0.0"}), "{who}: {record}");
        assert_eq!(record["session_id"].is_null(), stack.is_modern(), "{who}: {record}");
        assert_eq!(&record["session_id"], session, "{who}: one session: {record}");
    }
    let statuses: Vec<&str> = records.iter().map(|record| record["status"].as_str().unwrap()).collect();
    let expected = [
        "success",
        "success",
        "success",
        "success",
        "upstream_error",
        "upstream_error",
        "blocked",
        "success",
        "blocked",
        "cancelled",
        "success",
    ];
    assert_eq!(statuses, expected, "{who}");
    let intent =
        json!({"operation_type": "destructive", "data_sensitivity": "internal", "reason": "räumt auf 🧹"});
    assert_eq!((&records[1]["intent"], &records[1]["intent_declared"]), (&intent, &json!(true)), "{who}");
}
