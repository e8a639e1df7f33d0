//! Answers that nobody reads cost memory within the shares of their key, their tenant and the replica.

use std::time::Duration;

use serde_json::json;

use crate::support::{ADMIN, Api, Gateway, Mcp, Stage, Tool, Upstream, settle};

pub const MIB: usize = 1024 * 1024;
const SOON: Duration = Duration::from_secs(20);
/// Tools of the server, and bytes of the definition of each.
const TOOLS: usize = 12;
const DEFINITION_BYTES: usize = 250 * 1024;

/// A gateway on which requests and answers may hold 64 MiB, those of a tenant 16 and of a key 8; requests half of it.
pub async fn small_stage() -> Stage {
    Stage::with(&[ADMIN, ("MCPPROXY__LIMITS__MEMORY_BYTES_MAX", "67108864")]).await
}

/// Checks that the gateway's peak of memory has grown by at most `most` MiB since `before`.
#[track_caller]
pub fn grown_mib(gateway: &Gateway, before: usize, most: usize) {
    let grown = gateway.memory_peak_mib().saturating_sub(before);
    assert!(grown <= most, "it grew by {grown} MiB, and {most} are allowed");
}

/// Waits until no request and no answer holds memory.
pub async fn nothing_is_held(gateway: &Gateway) {
    let page = gateway
        .scrape_until("memory to be given back", |page| page.sum("mcpproxy_memory_held_bytes", &[]) == 0.0);
    let page = page.await;
    assert_eq!(page.sum("mcpproxy_memory_held_bytes_max", &[]), 64.0 * MIB as f64);
}

async fn large_tools() -> Upstream {
    let padding = "x".repeat(DEFINITION_BYTES);
    let tool = |n: usize| {
        let members = format!(
            r#""description":"file {padding}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true}}"#
        );
        Tool::raw(&format!("t{n:02}"), &format!(r#"{{"name":"t{n:02}",{members}}}"#))
    };
    Upstream::handshake((0..TOOLS).map(tool).collect()).await
}

/// Sends `count` requests of one key whose answers stay unread. Checks that the gateway grows by at most
/// `most_mib` MiB, and that others are served.
async fn left_unread(
    stage: &Stage,
    flooding: &Api,
    (path, count): (&str, usize),
    most_mib: usize,
    others: &[Api],
) {
    let before = stage.gateway.memory_peak_mib();
    let mut unread = Vec::new();
    for _ in 0..count {
        unread.push(flooding.leave_unread(path).await);
    }
    for other in others {
        assert_eq!(stage.gateway.anonymous().get("/livez").await.status, 200);
        Mcp::bare(other).run("read", "big:t00", &json!({})).await.ok();
        other.get("/api/v1/tools?query=file&limit=1").await.expect(200);
    }
    for answer in &unread {
        tokio::time::timeout(SOON, answer.answered()).await.expect("an answer or a refusal");
    }
    grown_mib(&stage.gateway, before, most_mib);
    drop(unread);
    nothing_is_held(&stage.gateway).await;
    flooding.get(path).await.expect(200);
}

/// Recipe: lists of large tools over REST that nobody reads.
#[tokio::test(flavor = "multi_thread")]
async fn unread_lists_of_tools_have_their_keys_share_and_no_more() {
    let stage = small_stage().await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let upstream = large_tools().await;
    tenant.add("big", &upstream).await;
    other.add("big", &upstream).await;
    let flooding = tenant.auditor().await;
    let others = [tenant.agent().await, other.agent().await];
    left_unread(&stage, &flooding, ("/api/v1/servers/big/tools", 60), 40, &others).await;
}

/// Recipe: searches over REST with an agent's key that nobody reads.
#[tokio::test(flavor = "multi_thread")]
async fn unread_searches_have_their_keys_share_and_no_more() {
    let stage = small_stage().await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let upstream = large_tools().await;
    tenant.add("big", &upstream).await;
    other.add("big", &upstream).await;
    let flooding = tenant.agent().await;
    let others = [tenant.agent().await, other.agent().await];
    left_unread(&stage, &flooding, ("/api/v1/tools?query=file&limit=100", 340), 64, &others).await;
}

/// Recipe: searches over MCP with an agent's key that nobody reads; an MCP answer says everything twice.
#[tokio::test(flavor = "multi_thread")]
async fn unread_searches_over_mcp_count_as_well() {
    let stage = small_stage().await;
    let tenant = stage.tenant("acme").await;
    let upstream = large_tools().await;
    tenant.add("big", &upstream).await;
    let flooding = tenant.agent().await;
    let before = stage.gateway.memory_peak_mib();
    let params = r#"{"name":"retrieve_tools","arguments":{"query":"file","limit":100}}"#;
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(Mcp::bare(&flooding).leave_unread("1", "tools/call", params).await);
    }
    for answer in &unread {
        tokio::time::timeout(SOON, answer.answered()).await.expect("an answer or a refusal");
    }
    grown_mib(&stage.gateway, before, 64);
    let beside = tenant.agent().await;
    beside.get("/api/v1/tools?query=file&limit=1").await.expect(200);
    let refused = Mcp::bare(&flooding).call_raw("retrieve_tools", r#"{"query":"file","limit":100}"#).await;
    assert_eq!(refused.result()["structuredContent"]["code"], "overloaded", "{refused:?}");
    drop(unread);
    nothing_is_held(&stage.gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_large_definitions_end_early_and_lead_to_the_rest() {
    let stage = small_stage().await;
    let tenant = stage.tenant("acme").await;
    let upstream = large_tools().await;
    tenant.add("big", &upstream).await;
    let auditor = tenant.auditor().await;
    let first = auditor.get("/api/v1/servers/big/tools?limit=100").await.expect(200);
    let shown = first["items"].as_array().unwrap().len();
    assert!((2..TOOLS).contains(&shown), "{shown}");
    let all = auditor.items("/api/v1/servers/big/tools").await;
    let names: Vec<&str> = all.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let expected: Vec<String> = (0..TOOLS).map(|n| format!("t{n:02}")).collect();
    assert_eq!(names, expected);
    let few = auditor.get("/api/v1/servers/big/tools?limit=2").await.expect(200);
    assert_eq!(few["items"].as_array().unwrap().len(), 2);
    assert_ne!(few["next_cursor"], json!(null));
    settle(0, SOON, || async {
        stage.gateway.scrape().await.sum("mcpproxy_memory_held_bytes", &[]) as usize
    })
    .await;
}
