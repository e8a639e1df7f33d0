//! Programs that write what they should not.

use serde_json::{Value, json};

use super::{SOON, add, commands, log, pid, stage, text};
use crate::support::{Mcp, Stage, eventually};

#[tokio::test]
async fn noise_on_standard_output_is_passed_over_and_noted() {
    let commands = commands(&[("prog", "noise", &["*"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    assert_eq!(add(&tenant.platform, "up", "prog").await["last_error"], Value::Null);
    pid(&Mcp::session(&tenant.agent().await).await).await;
    let lines = eventually("the noise", SOON, || async {
        let lines = log(&tenant.platform).await;
        (lines.iter().filter(|line| line.contains("no message on standard output")).count() == 3)
            .then_some(lines)
    })
    .await;
    assert!(lines.iter().any(|line| line.ends_with(": Welcome! this is no message")), "{lines:?}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_costs_its_own_call_only() {
    let (stage, _tenant, client) = stage(&[
        ("MCPPROXY__LIMITS__RESPONSE_BYTES_MAX", "2000000"),
        ("MCPPROXY__DEFAULTS__RESPONSE_LIMIT", "0"),
    ])
    .await;
    let before = pid(&client).await;
    assert_eq!(text(&client, "huge", json!({"bytes": 1_900_000})).await.len(), 1_900_000);
    for bytes in [2_000_000, 30_000_000] {
        let refused = client.run("read", "up:huge", &json!({ "bytes": bytes })).await;
        refused.refused("upstream_too_large");
    }
    assert_eq!(pid(&client).await, before);
    assert!(stage.gateway.memory_peak_mib() < 150, "{} MiB", stage.gateway.memory_peak_mib());
}
