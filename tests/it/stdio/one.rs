//! One program of a server on a replica, while it is switched on, and none after.

use std::time::Duration;

use serde_json::json;

use super::{SOON, add, commands, gone, log, pid, stage};
use crate::support::{Api, Mcp, Stage, eventually, settle};

/// How many processes run with this argument.
fn running(vice: &str) -> usize {
    let arguments = |id: &str| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let ids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    ids.filter(|id| arguments(id).split(|byte| *byte == 0).any(|argument| argument == vice.as_bytes()))
        .count()
}

/// A gateway with a program that is slow to end, as `up`; it runs.
async fn slow_to_end(vice: &str) -> (Stage, crate::support::Tenant, Mcp) {
    let commands = commands(&[("prog", vice, &["*"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    add(&tenant.platform, "up", "prog").await;
    let client = Mcp::session(&tenant.agent().await).await;
    pid(&client).await;
    (stage, tenant, client)
}

async fn lingers(api: &Api) {
    eventually("its end to begin", SOON, || async {
        log(api).await.iter().any(|line| line == "lingers").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_switched_off_while_it_is_restarted_stays_off() {
    let vice = "lingers-61";
    let (_stage, tenant, _client) = slow_to_end(vice).await;
    let restarted = tenant.platform.post("/api/v1/servers/up/restart", &json!({}));
    let switched_off = async {
        lingers(&tenant.platform).await;
        tenant.platform.post("/api/v1/servers/up/disable", &json!({})).await.expect(200);
    };
    let (restarted, ()) = tokio::join!(restarted, switched_off);
    restarted.refused(409, "conflict");
    settle(0, Duration::from_secs(6), || async { running(vice) }).await;
}

#[tokio::test]
async fn a_program_that_was_started_for_a_server_that_is_off_is_ended() {
    let (stage, _tenant, client) = stage(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let there = pid(&client).await;
    // nobody is told: as for a call that was on its way
    let mut connection = stage.database.connect().await;
    sqlx::query("update servers set enabled = false").execute(&mut connection).await.unwrap();
    gone(&[there]).await;
}
