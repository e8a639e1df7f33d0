//! One record per attempt, whatever its end, and what stands in it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream, upstream};

#[tokio::test]
async fn one_record_per_attempt() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut tools = upstream::zoo();
    tools.push(Tool::reads("cut-read").says(Say::Close));
    tools.push(Tool::writes("cut-write").says(Say::Close));
    tools.push(Tool::writes("fails").returns(r#"{"content":[],"isError":true}"#));
    tools.push(Tool::writes("rpc").says(Say::RpcError(r#"{"code":-31000,"message":"m"}"#.to_owned())));
    let upstream = Upstream::handshake(tools).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent_with(json!({"max_operation": "write"})).await;
    let client = Mcp::session(&agent).await;
    let cases = [
        ("read", "zoo:reader", "success", Value::Null),
        ("write", "zoo:writer", "success", Value::Null),
        ("write", "zoo:plain", "success", Value::Null),
        ("write", "zoo:fails", "upstream_error", Value::Null),
        ("write", "zoo:rpc", "upstream_error", json!("-31000")),
        ("read", "zoo:cut-read", "error", json!("upstream_lost")),
        ("write", "zoo:cut-write", "error", json!("upstream_lost")),
        ("read", "zoo:writer", "blocked", json!("server_mismatch")),
        ("destructive", "zoo:writer", "blocked", json!("operation_not_permitted")),
        ("write", "zoo:none", "blocked", json!("not_found")),
        ("read", "no name", "blocked", json!("invalid_name")),
    ];
    for (variant, name, ..) in &cases {
        client.run(variant, name, &json!({"ticket": name})).await;
    }
    // within one millisecond ids have no order; the requests' own do
    let mut records = tenant.records("type=tool_call", cases.len()).await;
    records.sort_by_key(|record| record["request_id"].as_str().unwrap().parse::<u64>().unwrap());
    let session = records[0]["session_id"].clone();
    assert!(session.is_string(), "{}", records[0]);
    for ((variant, name, status, code), record) in cases.into_iter().zip(&records) {
        assert_eq!(
            (&record["status"], &record["error_code"]),
            (&json!(status), &code),
            "{variant} {name}: {record}"
        );
        assert_eq!(record["tool_variant"], format!("call_tool_{variant}"), "{record}");
        assert_eq!((&record["source"], &record["key_id"]), (&json!("mcp"), &json!(agent.id)));
        assert_eq!(record["session_id"], session);
        assert_eq!(record["intent"]["operation_type"], variant);
        assert_eq!(record["intent_declared"], false);
        assert!(record["duration_ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{record}");
    }
    // after all of that nothing stays open
    let mut connection = stage.database.connect().await;
    let left: i64 =
        sqlx::query_scalar("select count(*) from activity_open").fetch_one(&mut connection).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_stands_in_a_record() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "ada@example.com"})).await;
    let client = Mcp::session(&agent).await;
    let arguments = json!({"name": "zoo:writer", "args": {"colour": "green"},
        "intent": {"operation_type": "write", "data_sensitivity": "internal", "reason": "because"}});
    client.call("call_tool_write", &arguments).await.ok();
    let record = tenant.records("type=tool_call", 1).await.remove(0);
    let names = [
        "id",
        "started_at",
        "type",
        "source",
        "server",
        "tool",
        "tool_variant",
        "tier",
        "intent",
        "intent_declared",
        "warning",
        "status",
        "error_code",
        "error_message",
        "decision",
        "rule",
        "consent_id",
        "key_id",
        "key_name",
        "identity_id",
        "owner",
        "client",
        "client_address",
        "session_id",
        "request_id",
        "trace_id",
        "parent_id",
        "duration_ms",
        "upstream_ms",
        "wait_ms",
        "request_bytes",
        "response_bytes",
        "arguments",
        "response",
        "truncated",
    ];
    for name in names {
        assert!(record.get(name).is_some(), "{name} is missing: {record}");
    }
    assert_eq!(record.as_object().unwrap().len(), names.len(), "{record}");
    let expected = [
        ("type", json!("tool_call")),
        ("server", json!("zoo")),
        ("tool", json!("writer")),
        ("tier", json!("write")),
        ("intent", json!({"operation_type": "write", "data_sensitivity": "internal", "reason": "because"})),
        ("intent_declared", json!(true)),
        ("owner", json!("ada@example.com")),
        ("client", json!({"name": "it-client", "version": "1.2.3"})),
        ("arguments", json!(r#"{"colour":"green"}"#)),
        ("request_bytes", json!(18)),
        ("truncated", json!(false)),
    ];
    for (name, value) in expected {
        assert_eq!(record[name], value, "{name}");
    }
    assert_eq!(record["id"].as_str().unwrap().len(), 26, "a ULID");
    assert!(record["response"].as_str().unwrap().contains("green"), "{record}");
    let one = tenant
        .platform
        .get(&format!("/api/v1/activity/{}", record["id"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(one, record);
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_a_record() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let held = Say::Gate(gate, Box::new(Say::Echo));
    let upstream =
        Upstream::handshake(vec![Tool::writes("slow").says(held.clone()), Tool::reads("look").says(held)])
            .await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let calls = [("write", "slow"), ("read", "look")].map(|(variant, tool)| {
        let client = Mcp::bare(&agent);
        tokio::spawn(async move { client.run(variant, &format!("up:{tool}"), &json!({})).await })
    });
    crate::support::settle(2, Duration::from_secs(5), || async { upstream.counts().calls }).await;
    // while it runs, the one that writes is seen as open
    tenant.records("type=tool_call&status=pending", 1).await;
    for call in calls {
        call.abort();
    }
    open.send_replace(true);
    let records = tenant.records("type=tool_call", 2).await;
    for record in &records {
        assert_ne!(record["status"], "unknown", "{record}");
    }
    crate::support::eventually("both to be closed", Duration::from_secs(5), || async {
        let open = tenant.platform.items("/api/v1/activity?type=tool_call&status=pending").await;
        open.is_empty().then_some(())
    })
    .await;
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn searches_are_recorded() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    Mcp::bare(&agent).search(&json!({"query": "needle"})).await;
    agent.get("/api/v1/tools?query=haystack").await.expect(200);
    let records = tenant.records("type=search", 2).await;
    for (source, query) in [("rest", "haystack"), ("mcp", "needle")] {
        let record = records.iter().find(|record| record["source"] == source).unwrap();
        assert!(record["arguments"].as_str().unwrap().contains(query), "{record}");
    }
}

#[tokio::test]
async fn texts_that_the_database_cannot_hold() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![
        Tool::writes("echo").returns("{\"content\":[{\"type\":\"text\",\"text\":\"a\\u0000b\"}]}"),
        Tool::reads("look"),
    ])
    .await;
    tenant.add("up", &upstream).await;
    let client = Mcp::session(&tenant.agent().await).await;
    let odd = [
        "a\u{0}b",
        "\u{fffe}\u{feff}",
        "\u{1}\u{7f}",
        "\u{10ffff}\u{202e}x",
        "'; drop table activity; --",
        "{\"unfinished",
    ];
    for text in odd {
        let arguments = json!({"name": "up:echo", "args": {"x": text, text: 1}, "intent_reason": text});
        client.call("call_tool_write", &arguments).await.ok();
        client.call("call_tool_read", &json!({"name": format!("up:{text}")})).await;
        client.search(&json!({"query": text})).await;
    }
    let lone = r#"{"name":"up:echo","args":{"x":"\ud800"},"intent_reason":"ok"}"#;
    client.call_raw("call_tool_write", lone).await;
    client.run("read", "up:look", &json!({})).await.ok();
    tenant.records("type=search", odd.len()).await;
    let records = tenant.records("type=tool_call", 2 * odd.len() + 2).await;
    let stubs = records.iter().filter(|record| record["error_code"] == "record_stub").count();
    assert_eq!(stubs, 0, "{records:?}");
    assert!(
        records
            .iter()
            .all(|record| !record.to_string().contains("\\u0000") || record["arguments"].is_string())
    );
}
