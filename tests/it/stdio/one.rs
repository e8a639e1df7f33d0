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

/// How the programs of `up` came and went.
async fn lives(api: &Api) -> Vec<String> {
    let lines = log(api).await.into_iter();
    let lives = lines.filter_map(|line| Some(line.split([' ', ',']).next()?.to_owned()));
    lives.filter(|word| word == "started" || word == "ended").collect()
}

#[tokio::test]
async fn a_program_starts_when_that_of_before_has_ended() {
    let (_stage, tenant, _client) = slow_to_end("lingers-62").await;
    for act in ["disable", "enable"] {
        tenant.platform.post(&format!("/api/v1/servers/up/{act}"), &json!({})).await.expect(200);
    }
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["connection"], "connected");
    let expected = ["started", "ended", "started"].map(str::to_owned);
    settle(expected.to_vec(), SOON, || lives(&tenant.platform)).await;
}

#[tokio::test]
async fn a_program_goes_on_through_changes_until_it_may_ask_for_something_else() {
    let (_stage, tenant, client) = stage(&[]).await;
    let path = "/api/v1/servers/up";
    let first = pid(&client).await;
    tenant.platform.patch(path, &json!({"limits": {"queue": 7}})).await.expect(200);
    assert_eq!(pid(&client).await, first);
    // it declared in its handshake what it may ask for
    tenant.platform.patch(path, &json!({"relay": {"roots": true}})).await.expect(200);
    assert_ne!(pid(&client).await, first);
    gone(&[first]).await;
}

#[tokio::test]
async fn a_call_under_way_keeps_the_next_program_from_starting_until_a_restart_ends_it() {
    let (_stage, tenant, client) = stage(&[("MCPPROXY__LIMITS__STDIO_START_TIMEOUT_S", "1")]).await;
    let first = pid(&client).await;
    let params = r#"{"name":"call_tool_read","arguments":{"name":"up:slow"},"_meta":{"progressToken":"p"}}"#;
    let running = client.begin("77", "tools/call", params).await;
    for act in ["disable", "enable"] {
        tenant.platform.post(&format!("/api/v1/servers/up/{act}"), &json!({})).await.expect(200);
    }
    eventually("the reason", SOON, || async {
        log(&tenant.platform)
            .await
            .iter()
            .any(|line| line.contains("the previous instance of the program"))
            .then_some(())
    })
    .await;
    tenant.platform.post("/api/v1/servers/up/restart", &json!({})).await.expect(200);
    drop(running);
    gone(&[first]).await;
    assert_ne!(pid(&client).await, first);
    let expected = ["started", "ended", "started"].map(str::to_owned);
    settle(expected.to_vec(), SOON, || lives(&tenant.platform)).await;
}
