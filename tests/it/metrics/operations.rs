//! The four histograms of the conventions, against what was really done.

use std::time::Duration;

use serde_json::json;

use super::{SLOW, busy};
use crate::support::upstream::Say;
use crate::support::{ADMIN, Mcp, Page, Stage, Tool, Upstream, eventually};

const SERVER: &str = "mcp_server_operation_duration_seconds_count";
const CLIENT: &str = "mcp_client_operation_duration_seconds_count";
const CALL: (&str, &str) = ("mcp_method_name", "tools/call");
const MODERN: (&str, &str) = ("mcp_protocol_version", "2026-07-28");
const OLD: (&str, &str) = ("mcp_protocol_version", "2025-11-25");
/// What the older server speaks.
const OLD_SERVER: (&str, &str) = ("mcp_protocol_version", "2025-06-18");

fn calls(page: &Page, name: &str, labels: &[(&str, &str)]) -> f64 {
    page.sum(name, &[labels, &[CALL]].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_what_was_done() {
    let stage = Stage::with(&[ADMIN, ("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    busy(&stage).await;
    let page = stage
        .gateway
        .scrape_until("the last answer to be counted", |page| calls(page, SERVER, &[]) == 22.0)
        .await;
    // clients: by revision and tool of ours; whatever is an upstream's has no name
    for (labels, count) in [
        (&[MODERN, ("gen_ai_tool_name", "call_tool_read")][..], 8.0),
        (&[OLD, ("gen_ai_tool_name", "call_tool_read")], 9.0),
        (&[("gen_ai_tool_name", "call_tool_write")], 2.0),
        (&[("gen_ai_tool_name", "retrieve_tools")], 2.0),
        (&[("gen_ai_tool_name", "")], 1.0),
        (&[("gen_ai_operation_name", "execute_tool"), ("network_transport", "tcp")], 22.0),
        (&[("error_type", "tool_error"), ("rpc_response_status_code", "")], 2.0),
        (&[("error_type", "server_mismatch")], 2.0),
        (&[("error_type", "not_found")], 2.0),
        // that its parameters are wrong is the caller's fault
        (&[("error_type", ""), ("rpc_response_status_code", "-32602")], 2.0),
        (&[("error_type", "_OTHER"), ("rpc_response_status_code", "_OTHER")], 2.0),
    ] {
        assert_eq!(calls(&page, SERVER, labels), count, "{labels:?}\n{}", page.text);
    }
    assert_eq!(page.sum(SERVER, &[("mcp_method_name", "initialize"), OLD]), 1.0);
    assert_eq!(page.sum(SERVER, &[("mcp_method_name", "tools/list")]), 2.0);
    // servers: refusals never got there, and to who asks every error is one
    for (labels, count) in [
        (&[][..], 16.0),
        (&[OLD_SERVER], 7.0),
        (&[MODERN], 9.0),
        (&[("error_type", "tool_error")], 2.0),
        (&[("error_type", "-32602"), ("rpc_response_status_code", "-32602")], 2.0),
        (&[("error_type", "_OTHER"), ("rpc_response_status_code", "_OTHER")], 2.0),
        (&[("gen_ai_tool_name", "")], 16.0),
    ] {
        assert_eq!(calls(&page, CLIENT, labels), count, "{labels:?}\n{}", page.text);
    }
    assert!(page.sum(CLIENT, &[("mcp_method_name", "tools/list")]) >= 2.0);
    assert!(page.sum(CLIENT, &[("mcp_method_name", "initialize")]) >= 2.0);

    let slow = SLOW.as_secs_f64();
    let sum = |name: &str| calls(&page, &name.replace("_count", "_sum"), &[]);
    assert!(sum(CLIENT) >= 2.0 * slow && sum(SERVER) > sum(CLIENT), "{}", page.text);
    assert_eq!(page.sum("mcpproxy_call_overhead_seconds_count", &[]), 16.0);
    assert!(page.sum("mcpproxy_call_overhead_seconds_sum", &[]) <= sum(SERVER) - sum(CLIENT));
    let quick = calls(&page, "mcp_client_operation_duration_seconds_bucket", &[("le", "0.05")]);
    let all = calls(&page, "mcp_client_operation_duration_seconds_bucket", &[("le", "+Inf")]);
    assert!(all == 16.0 && quick <= 14.0, "{quick} of {all}");
    let bounds: Vec<&str> = page
        .samples
        .iter()
        .filter(|sample| sample.name == "mcp_server_operation_duration_seconds_bucket")
        .map(|sample| sample.labels["le"].as_str())
        .take(15)
        .collect();
    let want = "0.01 0.02 0.05 0.1 0.2 0.5 1.0 2.0 5.0 10.0 30.0 60.0 120.0 300.0 +Inf";
    assert_eq!(bounds.join(" "), want);

    // one session of each side has ended, and none of the modern era ever began
    assert_eq!(page.sum("mcp_server_session_duration_seconds_count", &[OLD]), 1.0);
    assert!(
        page.sum("mcp_client_session_duration_seconds_count", &[OLD_SERVER, ("error_type", "lost")]) >= 1.0
    );
    assert_eq!(page.sum("mcp_client_session_duration_seconds_count", &[MODERN]), 0.0);
}

#[tokio::test]
async fn nobody_can_make_series() {
    let stage = Stage::with(&[ADMIN]).await;
    let agent = stage.tenant("acme").await.agent().await;
    let client = Mcp::modern(&agent);
    let series = |page: &Page| page.samples.iter().filter(|sample| sample.name.ends_with("_count")).count();
    client.request("evil/0", "{}").await.expect(404);
    client.call("tool_0", &json!({})).await;
    let before = series(&stage.gateway.scrape_until("both", |page| page.sum(SERVER, &[]) == 2.0).await);
    for n in 1..100 {
        client.request(&format!("evil/{n}"), "{}").await.expect(404);
        client.call(&format!("tool_{n}"), &json!({})).await;
    }
    let page = stage.gateway.scrape_until("all", |page| page.sum(SERVER, &[]) == 200.0).await;
    assert_eq!(series(&page), before, "{}", page.text);
    let unknown = [("mcp_method_name", "_OTHER"), ("rpc_response_status_code", "-32601"), ("error_type", "")];
    assert_eq!(page.sum(SERVER, &unknown), 100.0, "{}", page.text);
    assert!(!page.text.contains("evil") && !page.text.contains("tool_1"));
}

#[tokio::test]
async fn who_gives_up_is_counted_once() {
    let stage = Stage::with(&[ADMIN]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![Tool::reads("hang").says(Say::Hang)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::modern(&tenant.agent().await);
    let params = json!({"name": "call_tool_read", "arguments": {"name": "up:hang"}}).to_string();
    let call = tokio::spawn(client.unsent("1", "tools/call", &params).send());
    eventually("the call to arrive", Duration::from_secs(10), || async {
        (upstream.counts().calls == 1).then_some(())
    })
    .await;
    call.abort();
    let gone = [CALL, ("error_type", "cancelled")];
    let recorded = [("status", "cancelled"), ("type", "tool_call")];
    let page = stage
        .gateway
        .scrape_until("both sides and the log", |page| {
            page.sum(SERVER, &gone) == 1.0
                && page.sum(CLIENT, &gone) == 1.0
                && page.sum("mcpproxy_attempts_total", &recorded) == 1.0
        })
        .await;
    assert_eq!(calls(&page, SERVER, &[]), 1.0);
}
