//! Calls that are taken back, in both eras: the record, the upstream, and what the caller still gets.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::upstream::Say;
use crate::support::{Answer, Api, Gateway, Mcp, Stage, Tenant, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(5);

/// Posts a write call of `up:slow` with this raw id, in the background.
fn call(client: &Mcp, id: &str) -> JoinHandle<Answer> {
    let (client, id) = (client.again(), id.to_owned());
    tokio::spawn(async move {
        let params = r#"{"name":"call_tool_write","arguments":{"name":"up:slow","args":{"ticket":"t"}}}"#;
        client.request_as(&id, "tools/call", params).await
    })
}

async fn cancel(client: &Mcp, id: &str) {
    let params = format!(r#"{{"requestId":{id},"reason":"the user pressed escape"}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#);
    assert_eq!(client.post(body).await.status, 202);
}

/// A tool that answers when the gate opens.
fn gated() -> (Tool, watch::Sender<bool>) {
    let (gate, opened) = watch::channel(false);
    (Tool::writes("slow").says(Say::Gate(opened, Box::new(Say::Echo))), gate)
}

async fn dispatched(upstream: &Upstream, calls: usize) {
    settle(calls, SOON, || async { upstream.counts().calls }).await;
}

/// The one record of the call, once it has ended.
async fn record(tenant: &Tenant) -> Value {
    tenant.records("type=tool_call", 1).await.remove(0)
}

fn assert_cancelled(record: &Value) {
    assert_eq!(
        (&record["status"], &record["error_code"]),
        (&json!("cancelled"), &json!("cancelled")),
        "{record}"
    );
    assert!(record["error_message"].as_str().unwrap().contains("may have run"), "{record}");
}

#[tokio::test]
async fn a_notification_takes_a_handshake_call_back() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (tool, _gate) = gated();
    let upstream = Upstream::handshake(vec![tool]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::session(&tenant.agent().await).await;
    let waiting = call(&client, r#""mine""#);
    dispatched(&upstream, 1).await;
    cancel(&client, r#""mine""#).await;
    let answer = waiting.await.unwrap();
    // the answer ends without a message: nobody waits for one
    assert_eq!((answer.status, answer.text.as_str()), (200, ""), "{answer:?}");
    assert!(answer.header("content-type").starts_with("text/event-stream"), "{answer:?}");
    assert_cancelled(&record(&tenant).await);
    let sent = &upstream.calls()[0];
    settle(1, SOON, || async { upstream.notifications("notifications/cancelled").len() }).await;
    let told: Value = serde_json::from_str(&upstream.notifications("notifications/cancelled")[0]).unwrap();
    assert_eq!(told["params"]["requestId"].to_string(), sent.id);
    settle(1, SOON, || async { upstream.abandoned() }).await;
}

#[tokio::test]
async fn a_notification_finds_its_call_on_another_replica() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let (tool, _gate) = gated();
    let upstream = Upstream::handshake(vec![tool]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::session(&agent).await;
    let there = Mcp::in_session(&other.ask_as(&agent), client.session_id());
    let waiting = call(&client, "41");
    dispatched(&upstream, 1).await;
    cancel(&there, "41").await;
    assert_eq!(waiting.await.unwrap().text, "");
    assert_cancelled(&record(&tenant).await);
}

#[tokio::test]
async fn nobody_else_can_take_a_call_back() {
    let stage = Stage::start().await;
    let (tenant, stranger) = (stage.tenant("acme").await, stage.tenant("other").await);
    let (tool, gate) = gated();
    let upstream = Upstream::handshake(vec![tool]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::session(&agent).await;
    let waiting = call(&client, "7");
    dispatched(&upstream, 1).await;
    // another session of the same key, no session, another key, another tenant: each with the right id
    cancel(&Mcp::session(&agent).await, "7").await;
    cancel(&Mcp::bare(&agent), "7").await;
    let with_its_session = |api: &Api| Mcp::in_session(api, client.session_id());
    cancel(&with_its_session(&tenant.agent().await), "7").await;
    cancel(&with_its_session(&stranger.agent().await), "7").await;
    cancel(&client, r#""7""#).await;
    cancel(&client, "8").await;
    // all of them were answered, so all have been heard
    gate.send(true).unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer.expect(200)["result"]["isError"], Value::Null, "{answer:?}");
    assert_eq!(record(&tenant).await["status"], "success");
    assert!(upstream.notifications("notifications/cancelled").is_empty());
}

#[tokio::test]
async fn calls_that_nobody_can_tell_apart_go_on() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (tool, gate) = gated();
    let upstream = Upstream::handshake(vec![tool]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let (client, bare) = (Mcp::session(&agent).await, Mcp::bare(&agent));
    // one client that uses an id again, and two without a session, whose ids say nothing about who they are
    let waiting = [call(&client, "1"), call(&client, "1"), call(&bare, "1"), call(&bare, "2")];
    dispatched(&upstream, 4).await;
    cancel(&client, "1").await;
    cancel(&bare, "1").await;
    cancel(&bare, "2").await;
    gate.send(true).unwrap();
    for call in waiting {
        let answer = call.await.unwrap();
        assert!(answer.expect(200)["result"]["content"].is_array(), "{answer:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_taken_back_before_its_turn_was_not_run() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (tool, gate) = gated();
    let upstream = Upstream::handshake(vec![tool]).await;
    tenant.add_with("up", &upstream, json!({"limits": {"concurrency": 1}})).await;
    let client = Mcp::session(&tenant.agent().await).await;
    let running = call(&client, "1");
    dispatched(&upstream, 1).await;
    let queued = call(&client, "2");
    // its record is committed: from here on it waits for its turn only
    tenant.records("type=tool_call&status=pending", 2).await;
    cancel(&client, "2").await;
    assert_eq!(queued.await.unwrap().text, "");
    let record = tenant.records("type=tool_call&status=cancelled", 1).await.remove(0);
    assert!(record["error_message"].as_str().unwrap().contains("nothing was run"), "{record}");
    gate.send(true).unwrap();
    running.await.unwrap().expect(200);
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn a_lost_connection_cancels_in_the_modern_era_only() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (tool, gate) = gated();
    let upstream = Upstream::modern(vec![tool]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;

    let lost = call(&Mcp::modern(&agent), "1");
    dispatched(&upstream, 1).await;
    lost.abort();
    // the upstream sees its own connection close
    settle(1, SOON, || async { upstream.abandoned() }).await;
    assert_cancelled(&record(&tenant).await);

    let lost = call(&Mcp::session(&agent).await, "1");
    dispatched(&upstream, 2).await;
    lost.abort();
    assert!(lost.await.unwrap_err().is_cancelled());
    gate.send(true).unwrap();
    tenant.records("type=tool_call&status=success", 1).await;
    assert_eq!(upstream.abandoned(), 1);
}

#[tokio::test]
async fn a_connection_that_is_lost_amid_progress_cancels_in_the_modern_era_only() {
    const CALL: &str =
        r#"{"_meta":{"progressToken":7},"name":"call_tool_write","arguments":{"name":"up:slow","args":{}}}"#;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let gate = watch::Sender::new(false);
    let tool = Tool::writes("slow").says(Say::ProgressThen(gate.subscribe()));
    let upstream = Upstream::modern(vec![tool]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;

    drop(Mcp::modern(&agent).begin("1", "tools/call", CALL).await);
    settle(1, SOON, || async { upstream.abandoned() }).await;
    assert_cancelled(&record(&tenant).await);

    drop(Mcp::session(&agent).await.begin("1", "tools/call", CALL).await);
    gate.send_replace(true);
    tenant.records("type=tool_call&status=success", 1).await;
    assert_eq!(upstream.abandoned(), 1);
}

#[tokio::test]
async fn a_deadline_tells_a_handshake_upstream_to_stop() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (tool, _gate) = gated();
    let upstream = Upstream::handshake(vec![tool]).await;
    tenant.add_with("up", &upstream, json!({"limits": {"call_timeout_s": 1}})).await;
    let client = Mcp::session(&tenant.agent().await).await;
    client.run("write", "up:slow", &json!({})).await.refused("upstream_timeout");
    settle(1, SOON, || async { upstream.notifications("notifications/cancelled").len() }).await;
}
