//! A server gets another credential while a call to it waits for its record: what is sent is the new one.

use std::time::Duration;

use serde_json::json;
use sqlx::Connection;

use crate::support::{Gateway, HELD_RECORDS, Mcp, Stage, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_is_replaced_meanwhile_is_not_sent() {
    let stage = Stage::start().await;
    // a replica of its own: the administrator's act does not queue behind the call
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("held"), Tool::reads("look")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "old"}})).await;
    let there = other.ask_as(&tenant.agent().await);
    let last_key = || upstream.calls().last().map(|call| call.headers["x-key"].clone());
    Mcp::bare(&there).run("write", "up:held", &json!({})).await.ok();
    assert_eq!(last_key().as_deref(), Some("old"));

    let held = stage.database.hold_records("held").await;
    let client = Mcp::bare(&there);
    let call = tokio::spawn(async move { client.run("write", "up:held", &json!({})).await });
    settle(1, SOON, || stage.database.count(HELD_RECORDS)).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"headers": {"X-Key": "new"}})).await.expect(200);
    settle(Some("new".to_owned()), SOON, || async {
        Mcp::bare(&there).run("read", "up:look", &json!({})).await.ok();
        last_key()
    })
    .await;
    assert!(!call.is_finished());
    held.close().await.unwrap();
    call.await.unwrap().ok();
    let calls = upstream.calls();
    let written: Vec<_> = calls.iter().filter(|call| call.tool == "held").collect();
    assert_eq!(written.iter().map(|call| &call.headers["x-key"]).collect::<Vec<_>>(), ["old", "new"]);
}
