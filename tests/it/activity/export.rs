//! `/activity/export` and `/activity/summary`.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::upstream::{Say, zoo};
use crate::support::{Api, Mcp, Stage, Tenant, Tool, Upstream, cli, masked};

/// More than one page of an export.
const READS: usize = 1100;
/// Reads that are counted.
const COUNTED: usize = 100;

async fn with_calls(stage: &Stage, reads: usize) -> (Tenant, Upstream, Api) {
    let tenant = stage.tenant("acme").await;
    let mut tools = zoo();
    tools.push(Tool::reads("crashing").says(Say::Close));
    let upstream = Upstream::handshake(tools).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let readers = (0..10).map(|_| {
        let client = Mcp::bare(&agent);
        tokio::spawn(async move {
            for _ in 0..reads / 10 {
                client.run("read", "up:reader", &json!({})).await.ok();
            }
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.await.unwrap();
    }
    let other = Mcp::bare(&tenant.agent().await);
    let reason = "=HYPERLINK(1);=1+1\n＝2";
    let intent = json!({"name": "up:writer", "args": {}, "intent_reason": reason, "intent_data_sensitivity": "private"});
    other.call("call_tool_write", &intent).await.ok();
    other.run("read", "up:wiper", &json!({})).await.refused("server_mismatch");
    other.run("read", "up:crashing", &json!({})).await.refused("upstream_lost");
    (tenant, upstream, agent)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The records of calls, once all have been written.
async fn exported(api: &Api, query: &str, count: usize) -> Vec<Value> {
    crate::support::eventually("all records in the export", std::time::Duration::from_secs(10), || async {
        let records = lines(&api.get(&format!("/api/v1/activity/export?{query}")).await.text);
        (records.len() == count).then_some(records)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_the_whole_list() {
    let stage = Stage::start().await;
    let (tenant, _upstream, agent) = with_calls(&stage, READS).await;
    let auditor = tenant.auditor().await;
    let all = exported(&auditor, "type=tool_call", READS + 3).await;
    let ids: Vec<&str> = all.iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), READS + 3);
    let times: Vec<&str> = all.iter().map(|record| record["started_at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    // each line is what the list says
    let listed = auditor.get("/api/v1/activity?type=tool_call&limit=3").await.expect(200);
    assert_eq!(json!(all[..3]), listed["items"]);
    assert_eq!(exported(&agent, "type=tool_call", READS).await.len(), READS);
    let stranger = stage.tenant("other").await.auditor().await;
    assert_eq!(stranger.get("/api/v1/activity/export?type=tool_call").await.text, "");

    let csv = auditor.get("/api/v1/activity/export?format=csv&intent_type=write").await;
    assert!(csv.header("content-type").starts_with("text/csv"), "{csv:?}");
    let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.text.as_bytes());
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2, "{csv:?}");
    let columns: Vec<&str> = rows[0].iter().take(11).collect();
    assert_eq!(columns[..7], ["id", "started_at", "type", "source", "server", "tool", "tool_variant"]);
    assert_eq!(columns[7..], ["tier", "operation_type", "data_sensitivity", "reason"]);
    let cells: Vec<&str> = rows[1].iter().skip(8).take(3).collect();
    assert_eq!(cells, ["write", "private", "'=HYPERLINK(1);'=1+1\n'＝2"], "{csv:?}");
    for (query, field) in [
        ("format=xml", "format"),
        ("limit=5", "limit"),
        ("status=odd", "status"),
        ("start_time=x", "start_time"),
    ] {
        let refused = auditor.get(&format!("/api/v1/activity/export?{query}")).await;
        assert_eq!(refused.expect(400)["error"]["field"], field, "{refused:?}");
    }
    let cli_csv =
        cli(&auditor, &["activity", "export", "--format", "csv", "--intent-type", "write"]).await.ok();
    assert_eq!(cli_csv.out, csv.text);
    let cli_lines = cli(&auditor, &["activity", "export", "--type", "tool_call"]).await.ok();
    assert_eq!(lines(&cli_lines.out), all);
    // a record whose id is of another time than its own, as none of ours is
    let odd = "insert into activity (tenant_id, started_at, id, replica_id, type, source, owner, status)
         select tenant_id, min(started_at), 'ffffffff-0000-0000-0000-000000000000', gen_random_uuid(),
            'tool_call', 'mcp', 'odd', 'success' from activity where type = 'tool_call' group by 1";
    sqlx::query(odd).execute(&mut stage.database.connect().await).await.unwrap();
    assert_eq!(exported(&auditor, "type=tool_call&owner=odd", 1).await.len(), 1, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_counts_what_happened() {
    let stage = Stage::start().await;
    let (tenant, _upstream, agent) = with_calls(&stage, COUNTED).await;
    let auditor = tenant.auditor().await;
    exported(&auditor, "type=tool_call", COUNTED + 3).await;
    let summary = auditor.get("/api/v1/activity/summary?period=1h").await.expect(200);
    // whether records of management are committed yet is no matter here
    let varying = ["admin", "success", "total", "start_time", "end_time", "p50_ms", "p95_ms"];
    let mut shown = masked(&summary, &varying);
    // reads of management are of a tier as well
    shown["by_tier"]["read"] = json!("[number]");
    // tools with as many calls come in any order
    shown["top_tools"].as_array_mut().unwrap().sort_by_key(|tool| tool["tool"].to_string());
    insta::assert_json_snapshot!(shown, @r#"
    {
      "by_decision": {
        "would_ask": 1
      },
      "by_intent_type": {
        "read": 102,
        "write": 1
      },
      "by_status": {
        "blocked": 1,
        "error": 1,
        "success": "[number]"
      },
      "by_tier": {
        "destructive": 1,
        "read": "[number]",
        "write": 1
      },
      "by_type": {
        "admin": "[number]",
        "tool_call": 103
      },
      "end_time": "[text]",
      "period": "1h",
      "start_time": "[text]",
      "top_decisions": [
        {
          "calls": 1,
          "decision": "would_ask",
          "rule": null,
          "server": "up",
          "tool": "writer"
        }
      ],
      "top_servers": [
        {
          "calls": 103,
          "error_rate": 0.00980392156862745,
          "failed": 1,
          "p50_ms": "[number]",
          "p95_ms": "[number]",
          "refused": 1,
          "server": "up"
        }
      ],
      "top_tools": [
        {
          "calls": 1,
          "error_rate": 1.0,
          "failed": 1,
          "p50_ms": "[number]",
          "p95_ms": "[number]",
          "refused": 0,
          "server": "up",
          "tool": "crashing"
        },
        {
          "calls": 100,
          "error_rate": 0.0,
          "failed": 0,
          "p50_ms": "[number]",
          "p95_ms": "[number]",
          "refused": 0,
          "server": "up",
          "tool": "reader"
        },
        {
          "calls": 1,
          "error_rate": 0.0,
          "failed": 0,
          "p50_ms": null,
          "p95_ms": null,
          "refused": 1,
          "server": "up",
          "tool": "wiper"
        },
        {
          "calls": 1,
          "error_rate": 0.0,
          "failed": 0,
          "p50_ms": "[number]",
          "p95_ms": "[number]",
          "refused": 0,
          "server": "up",
          "tool": "writer"
        }
      ],
      "total": "[number]"
    }
    "#);
    let tool = |name: &str| {
        summary["top_tools"].as_array().unwrap().iter().find(|tool| tool["tool"] == name).unwrap().clone()
    };
    assert!(tool("reader")["p95_ms"].as_f64().unwrap() >= tool("reader")["p50_ms"].as_f64().unwrap());
    // an agent's is about itself, a stranger's about nothing
    let own = agent.get("/api/v1/activity/summary").await.expect(200);
    assert_eq!((&own["total"], &own["period"]), (&json!(COUNTED), &json!("24h")));
    let stranger = stage.tenant("other").await.agent().await;
    assert_eq!(stranger.get("/api/v1/activity/summary?period=30d").await.expect(200)["total"], 0);
    let refused = auditor.get("/api/v1/activity/summary?period=2h").await;
    assert_eq!(refused.expect(400)["error"]["field"], "period");
    let shown = cli(&auditor, &["activity", "summary", "--period", "1h"]).await.ok().out;
    assert!(
        shown.contains("up:reader") && shown.contains("FAILURE RATE") && shown.contains("100.0%"),
        "{shown}"
    );
}
