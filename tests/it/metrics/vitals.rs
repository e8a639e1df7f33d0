//! What only the gateway knows of itself.

use serde_json::json;

use super::busy;
use crate::support::{ADMIN, DIRECT, Ear, Mcp, Stage, Tool, Upstream};

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_how_it_is() {
    let stage = Stage::with(&[ADMIN, ("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    let tenant = busy(&stage).await;
    let attempts = "mcpproxy_attempts_total";
    let page = stage
        .gateway
        .scrape_until("the log to be written", |page| {
            page.sum("mcpproxy_activity_buffer_records", &[]) == 0.0
                && page.sum(attempts, &[("type", "tool_call")]) == 19.0
        })
        .await;
    for (labels, count) in [
        (&[("type", "tool_call"), ("status", "success"), ("tier", "read")][..], 7.0),
        (&[("type", "tool_call"), ("status", "success"), ("tier", "write")], 2.0),
        (&[("type", "tool_call"), ("status", "upstream_error")], 6.0),
        (&[("type", "tool_call"), ("status", "blocked")], 4.0),
        (&[("type", "direct_call"), ("source", "direct"), ("status", "success")], 1.0),
        (&[("type", "search"), ("source", "mcp")], 2.0),
    ] {
        assert_eq!(page.sum(attempts, labels), count, "{labels:?}\n{}", page.text);
    }
    for (name, labels, value) in [
        ("mcpproxy_refusals_total", &[("code", "server_mismatch")][..], 2.0),
        ("mcpproxy_refusals_total", &[("code", "not_found")], 2.0),
        ("mcpproxy_activity_commit_duration_seconds_count", &[("lane", "opening")], 2.0),
        ("mcpproxy_activity_records_lost_total", &[], 0.0),
        ("mcpproxy_revision_lag", &[], 0.0),
        ("mcpproxy_replicas", &[], 1.0),
        ("mcpproxy_tenants", &[], 1.0),
        ("mcpproxy_upstream_breakers", &[("state", "closed")], 2.0),
        ("mcpproxy_upstream_servers", &[("state", "connected")], 2.0),
        ("mcpproxy_streams", &[], 0.0),
        ("mcpproxy_shed_total", &[], 0.0),
        ("mcpproxy_unauthenticated_requests_total", &[], 0.0),
    ] {
        let found = page.sum(name, labels);
        // refused writes are committed in this lane too, and two that meet are one batch
        let is_so = if name.contains("commit") { found >= value } else { found == value };
        assert!(is_so, "{name} {labels:?}: {found}\n{}", page.text);
    }
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"] {
        assert!(page.sum(name, &[]) > 0.0, "{name}");
    }

    // somebody listens, somebody watches, somebody asks too often, somebody is a stranger
    let agent = tenant.agent_with(json!({"direct_endpoint": true})).await;
    let ears =
        [Ear::of(&Mcp::modern(&agent).at(DIRECT), None).await, Ear::of(&Mcp::bare(&agent), None).await];
    let eager = tenant.agent_with(json!({"rate_limit": 1})).await;
    for _ in 0..3 {
        Mcp::bare(&eager).run("read", "new:look", &json!({})).await;
    }
    stage.gateway.anonymous().with_key("mcpk_nobody").get("/api/v1/status").await.expect(401);
    // a server that is off, and one that waits for a person
    for act in ["servers/old/disable", "servers/new/quarantine"] {
        tenant.platform.post(&format!("/api/v1/{act}"), &json!({})).await.expect(200);
    }
    let page =
        stage.gateway.scrape_until("the streams", |page| page.sum("mcpproxy_streams", &[]) == 2.0).await;
    for (name, labels, value) in [
        ("mcpproxy_streams", ("kind", "direct"), 1.0),
        ("mcpproxy_streams", ("kind", "mcp"), 1.0),
        ("mcpproxy_shed_total", ("reason", "rate_limited"), 2.0),
        ("mcpproxy_unauthenticated_requests_total", ("none", ""), 1.0),
        ("mcpproxy_upstream_servers", ("state", "connected"), 0.0),
        ("mcpproxy_upstream_servers", ("state", "disabled"), 1.0),
        ("mcpproxy_upstream_servers", ("state", "quarantined"), 1.0),
    ] {
        assert_eq!(page.sum(name, &[labels]), value, "{name} {labels:?}\n{}", page.text);
    }
    drop(ears);
    stage.gateway.scrape_until("no streams", |page| page.sum("mcpproxy_streams", &[]) == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_opens_its_breaker() {
    let stage = Stage::with(&[ADMIN]).await;
    let tenant = stage.tenant("acme").await;
    let mut upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    client.run("read", "up:look", &json!({})).await.ok();
    upstream.go_down().await;
    for _ in 0..8 {
        client.run("read", "up:look", &json!({})).await;
    }
    let page = stage
        .gateway
        .scrape_until("the breaker", |page| {
            page.sum("mcpproxy_upstream_breakers", &[("state", "closed")]) == 0.0
        })
        .await;
    assert_eq!(page.sum("mcpproxy_upstream_breakers", &[]), 1.0);
    let failed = [("mcp_method_name", "tools/call"), ("error_type", "server_unavailable")];
    assert!(page.sum("mcp_client_operation_duration_seconds_count", &failed) >= 1.0, "{}", page.text);
    let refused = page.sum("mcpproxy_refusals_total", &[("code", "server_unavailable")]);
    assert!(refused >= 5.0, "{}", page.text);
}
