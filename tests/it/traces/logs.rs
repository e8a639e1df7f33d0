//! Lines of JSON that are written within a request.

use serde_json::{Value, json};

use super::{TRACE, agent, params};
use crate::support::upstream::Say;
use crate::support::{Collector, Mcp, Stage, Tool, Upstream};

#[tokio::test]
async fn a_line_written_within_a_request_names_its_span() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.extend([
        ("MCPPROXY__TELEMETRY__LOG_FORMAT", "json"),
        ("MCPPROXY__TELEMETRY__LOG_FILTER", "info,mcpproxy=debug"),
        ("MCPPROXY__LIMITS__UPSTREAM_FAILURES_MAX", "1"),
    ]);
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("leaves").says(Say::Close)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let meta = json!({"traceparent": agent("01")});
    client.request("tools/call", &params("up:leaves", &json!({}), &meta)).await.expect(200);
    let spans = collector.trace(TRACE, 2).await;
    let log = stage.gateway.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let within = lines.iter().find(|line| line["message"].as_str().unwrap().contains("left alone")).unwrap();
    assert_eq!((&within["trace_id"], &within["span_id"]), (&json!(TRACE), &json!(spans[0].id)));
    let outside =
        lines.iter().find(|line| line["message"].as_str().unwrap().contains("listening on")).unwrap();
    assert_eq!((outside.get("trace_id"), outside.get("span_id")), (None, None));
}
