//! A replica that was taken for dead, and ends its call after all.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;

use crate::support::upstream::Say;
use crate::support::{Api, Gateway, Mcp, Stage, Tool, Upstream, settle};

/// A sweep is every 5 s; the machine may be busy.
const SWEPT: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(10);

async fn of_type(api: &Api, kind: &str) -> Vec<Value> {
    api.items(&format!("/api/v1/activity?type={kind}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_call_whose_record_was_closed_is_recorded_beside_it() {
    let stage = Stage::start().await;
    let frozen = &stage.gateway;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let held = Tool::writes("put").says(Say::Gate(gate, Box::new(Say::Echo)));
    let upstream = Upstream::handshake(vec![held]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::bare(&agent);
    let call = tokio::spawn(async move { client.run("write", "up:put", &json!({"x": "sent-1"})).await });
    settle(1, SOON, || async { upstream.counts().calls }).await;
    // acts that were answered are closed a moment later
    settle(1, SOON, || stage.database.count("select count(*) from activity_open")).await;

    frozen.freeze();
    // its last heartbeat becomes an old one: nobody has to wait for 30 s
    let dead = "update replicas set heartbeat_at = now() - interval '1 minute'
         where replica_id in (select replica_id from activity_open)";
    stage.database.connect().await.execute(dead).await.unwrap();
    settle(0, SWEPT, || stage.database.count("select count(*) from activity_open")).await;
    let there = other.ask_as(&tenant.platform);
    let closed = of_type(&there, "tool_call").await;
    assert_eq!((closed.len(), &closed[0]["status"]), (1, &json!("unknown")), "{closed:?}");
    assert_eq!(closed[0]["response"], Value::Null);

    frozen.wake();
    open.send_replace(true);
    call.await.unwrap().ok();
    settle(1, SOON, || async { of_type(&there, "late_outcome").await.len() }).await;
    let late = of_type(&there, "late_outcome").await.remove(0);
    assert_eq!(late["parent_id"], closed[0]["id"], "{late}");
    assert_ne!(late["id"], closed[0]["id"]);
    assert_eq!((&late["status"], &late["tool"]), (&json!("success"), &json!("put")), "{late}");
    for text in ["arguments", "response"] {
        assert!(late[text].as_str().unwrap().contains("sent-1"), "{late}");
    }
    // closed records never change, and the call ran once
    assert_eq!(of_type(&there, "tool_call").await, closed);
    assert_eq!(upstream.counts().calls, 1);
    assert_eq!(stage.database.count("select count(*) from activity_open").await, 0);
}
