//! Calls: the same pipeline and the same records as on `/mcp`.

use serde_json::{Value, json};

use super::{modern, scene};
use crate::support::{Database, Gateway, Line, Mcp, Stage, Tool, Upstream, Way, upstream};

#[tokio::test]
async fn the_variant_is_the_tools_own() {
    let (_stage, tenant) = scene().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let trusts = tenant.agent().await;
    let distrusts = tenant.agent_with(json!({"unannotated_tools": "distrust"})).await;
    let rows = [
        ("reader", "read", "read"),
        ("writer", "write", "write"),
        ("wiper", "destructive", "destructive"),
        ("half", "write", "destructive"),
        ("mild", "write", "write"),
        ("plain", "write", "destructive"),
    ];
    for (tool, trust, distrust) in rows {
        for (api, expected) in [(&trusts, trust), (&distrusts, distrust)] {
            let arguments = r#"{ "n" : 1e400,"z":{"b":1,"a":2} }"#;
            let client = if tool == "half" { modern(api) } else { Mcp::direct(api) };
            let result = client.call_raw(&format!("zoo:{tool}"), arguments).await.ok();
            assert_eq!(result["_meta"], Value::Null, "{tool}: {result}");
            assert_eq!(upstream.calls().pop().unwrap().arguments, arguments, "{tool}");
            let record = tenant.records(&format!("key={}&tool={tool}", api.id), 1).await.pop().unwrap();
            let variant = format!("call_tool_{expected}");
            assert_eq!(record["tool_variant"], variant, "{record}");
            assert_eq!(record["intent"]["operation_type"], expected, "{record}");
            assert_eq!(record["tier"] == "read", expected == "read", "{record}");
            assert_eq!((&record["intent_declared"], &record["status"]), (&json!(false), &json!("success")));
            assert_eq!(
                (&record["type"], &record["source"]),
                (&json!("direct_call"), &json!("direct")),
                "{record}"
            );
            assert_eq!((&record["server"], &record["tool"]), (&json!("zoo"), &json!(tool)), "{record}");
        }
    }
    assert_eq!(upstream.counts().calls, 12);
}

#[tokio::test]
async fn what_is_not_there_is_unknown_and_on_record() {
    let (_stage, tenant) = scene().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let narrow = tenant.agent_with(json!({"allowed_tools": ["zoo:reader"], "max_operation": "read"})).await;
    let names = ["retrieve_tools", "call_tool_read", "zoo:writer", "zoo:none", "none:none", "nothing", ""];
    for client in [Mcp::direct(&narrow), modern(&narrow)] {
        for name in names {
            // wrong arguments do not tell a tool that is hidden from one that is not there
            for arguments in ["{}", "[]"] {
                let outcome = client.call_raw(name, arguments).await;
                let expected = json!({"code": -32602, "message": format!("Unknown tool: {name}")});
                assert_eq!(outcome.error(), expected, "{name} {arguments}");
            }
        }
    }
    let records = tenant.records(&format!("key={}", narrow.id), 4 * names.len()).await;
    for record in &records {
        let expected = (json!("direct_call"), json!("direct"), json!("blocked"), json!("not_found"));
        let found = ["type", "source", "status", "error_code"].map(|name| record[name].clone());
        assert_eq!(<[Value; 4]>::from(expected), found, "{record}");
        assert_eq!(record["tool_variant"], Value::Null, "{record}");
    }
    assert_eq!(upstream.counts().calls, 0);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#;
    assert_eq!(Mcp::direct(&narrow).post(body).await.json()["error"]["code"], -32602);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"zoo:reader","arguments":{"a":1,"a":2}}}"#;
    assert!(Mcp::direct(&narrow).post(body).await.json()["error"].is_object());
    let unread = tenant.records(&format!("key={}", narrow.id), 4 * names.len() + 2).await;
    assert!(unread.iter().all(|record| record["type"] == "direct_call"), "{unread:?}");
    let doubled =
        tenant.records(&format!("key={}&server=zoo&tool=reader", narrow.id), 1).await.pop().unwrap();
    assert_eq!((&doubled["tier"], &doubled["status"]), (&json!("read"), &json!("blocked")), "{doubled}");
    // refused before its tool was looked at, and committed before the answer: of either spelling
    let agent = tenant.agent().await;
    for name in ["zoo:wiper", "zoo__wiper"] {
        let params = format!(r#"{{"name":"{name}","arguments":{{"a":1,"a":2}}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        assert!(Mcp::direct(&agent).post(body).await.json()["error"].is_object(), "{name}");
    }
    let found =
        tenant.platform.items(&format!("/api/v1/activity?key={}&server=zoo&tool=wiper", agent.id)).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|record| record["tier"] == "destructive"), "{found:?}");
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_not_run() {
    let database = Database::migrated().await;
    let line = Line::to(database.port()).await;
    let url = line.url(&database.url());
    let settings = [
        super::ON,
        ("MCPPROXY__DATABASE__URL", url.as_str()),
        ("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3"),
    ];
    let stage = Stage { gateway: Gateway::start(&database, &settings).await, database };
    let tenant = super::open(&stage, "acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::direct(&agent);
    client.call("zoo:wiper", &json!({})).await.ok();
    client.call("zoo:reader", &json!({})).await.ok();
    line.turn(Way::Refuses).await;
    let arguments = json!({});
    let (wiped, written) =
        tokio::join!(client.call("zoo:wiper", &arguments), client.call("zoo:writer", &arguments));
    assert_eq!([wiped.code(), written.code()], ["record_unavailable", "record_unavailable"]);
    assert_eq!(upstream.counts().calls, 2);
    client.call("zoo:reader", &json!({})).await.ok();
    line.turn(Way::Open).await;
    tenant.records("type=direct_call&status=rejected", 2).await;
    assert_eq!(upstream.counts().calls, 3);
}

#[tokio::test]
async fn results_are_never_cut_and_progress_passes() {
    let (_stage, tenant) = scene().await;
    tenant.platform.patch("/api/v1/settings", &json!({"response_limit": 100})).await.expect(200);
    let long = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(5000));
    let tools =
        vec![Tool::reads("long").returns(&long), Tool::reads("steps").says(upstream::Say::Progress(3))];
    let upstream = Upstream::handshake(tools).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::direct(&agent);
    assert_eq!(client.call("up:long", &json!({})).await.raw(), long);
    let cut = Mcp::bare(&agent).run("read", "up:long", &json!({})).await.ok();
    let note = cut.to_string();
    assert!(note.len() < 2000, "on /mcp it is cut: {note}");
    let key = cut["_meta"]["mcpproxy/truncated"].to_string();
    let key = key.split('"').find(|part| part.len() > 20).unwrap_or_else(|| panic!("{cut}"));
    let page = client.call("read_cache", &json!({"key": key, "limit": 10})).await;
    assert_ne!(page.result()["isError"], true, "{page:?}");
    let params = r#"{"_meta":{"progressToken":"mine"},"name":"up:steps"}"#;
    let outcome = crate::support::Outcome { answer: client.request("tools/call", params).await };
    assert_eq!(outcome.events().len(), 3, "{outcome:?}");
    assert!(outcome.events().iter().all(|event| event["params"]["progressToken"] == "mine"), "{outcome:?}");
    outcome.ok();
}
