//! Clients that do not read their answers cost their own tenant, and nothing stays open for them.

use std::time::Duration;

use serde_json::json;

use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);
/// More than half of what a tenant's answers may have together.
const LARGE_BYTES: usize = 3 * 1024 * 1024;

fn read_of(tool: &str) -> String {
    let arguments = format!(r#"{{"name":"up:{tool}","args":{{}}}}"#);
    format!(r#"{{"_meta":{{"progressToken":7}},"name":"call_tool_read","arguments":{arguments}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_read_keeps_its_share_of_memory() {
    let stage = Stage::with(&[
        ("MCPPROXY__LIMITS__TENANT_ANSWERS_BYTES_MAX", "4194304"),
        ("MCPPROXY__DEFAULTS__RESPONSE_LIMIT", "0"),
    ])
    .await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let result = format!(r#"{{"content":[],"x":"{}"}}"#, "x".repeat(LARGE_BYTES));
    let upstream = Upstream::handshake(vec![
        Tool::reads("plain").says(Say::Large(LARGE_BYTES)),
        Tool::reads("chatty").says(Say::Chatter(1, 10, Some(result))),
    ])
    .await;
    tenant.add("up", &upstream).await;
    other.add("up", &upstream).await;
    let (agent, elsewhere) = (tenant.agent().await, other.agent().await);
    for (tool, end) in [("plain", "]}}"), ("chatty", "\n\n\r\n0\r\n\r\n")] {
        let unread = Mcp::modern(&agent).leave_unread("1", "tools/call", &read_of(tool)).await;
        // it has ended, as far as the gateway is concerned
        tenant.records(&format!("type=tool_call&tool={tool}"), 1).await;
        let calls = upstream.counts().calls;
        let next = Mcp::bare(&agent);
        let next = tokio::spawn(async move { next.run("read", "up:plain", &json!({})).await });
        settle(calls + 1, SOON, || async { upstream.counts().calls }).await;
        for _ in 0..3 {
            Mcp::bare(&elsewhere).run("read", "up:plain", &json!({})).await.ok();
        }
        assert!(!next.is_finished(), "{tool}: there was room for two");
        let answer = unread.read_until(end).await;
        assert!(answer.len() > LARGE_BYTES && answer.contains(r#""resultType":"complete""#), "{tool}");
        next.await.unwrap().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_holds_for_a_client_that_does_not_read_its_progress() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t").says(Say::Chatter(100, 64 * 1024, None))]).await;
    tenant.add_with("up", &upstream, json!({"limits": {"call_timeout_s": 1}})).await;
    let agent = tenant.agent().await;
    let modern = Mcp::modern(&agent).leave_unread("1", "tools/call", &read_of("t")).await;
    let handshake = Mcp::bare(&agent).leave_unread("1", "tools/call", &read_of("t")).await;
    for record in tenant.records("type=tool_call", 2).await {
        assert_eq!(record["error_code"], "upstream_timeout", "{record}");
    }
    tenant.records("type=tool_call&status=pending", 0).await;
    drop((modern, handshake));
}
