//! What a scraper is told, and that it is true.

mod agreement;
mod board;
mod ends;
mod listener;
mod operations;
mod promql;
mod secrets;
mod vitals;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::upstream::Say;
use crate::support::{DIRECT, Mcp, Stage, Tenant, Tool, Upstream};

/// Runs Prometheus' own tool on a text; gives what it said.
fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut tool = Command::new("promtool");
    let tool = tool.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = tool.spawn().expect("promtool is needed: apt-get install prometheus");
    running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    (ended.status.success(), said)
}

/// A tenant's day in short: calls that work, fail, are refused, and sessions that end on both sides.
async fn busy(stage: &Stage) -> Tenant {
    let tenant = stage.tenant("acme").await;
    let rpc = |code: i64| Say::RpcError(json!({"code": code, "message": "no"}).to_string());
    let tools = vec![
        Tool::reads("look"),
        Tool::writes("note"),
        Tool::reads("sorry").returns(r#"{"content":[],"isError":true}"#),
        Tool::reads("params").says(rpc(-32602)),
        Tool::reads("strange").says(rpc(-7)),
        Tool::reads("late").says(Say::Delay(SLOW, Box::new(Say::Echo))),
    ];
    let (old, new) = (Upstream::handshake(tools.clone()).await, Upstream::modern(tools).await);
    tenant.add("old", &old).await;
    tenant.add("new", &new).await;
    let agent = tenant.agent_with(json!({"direct_endpoint": true})).await;
    let (session, modern) = (Mcp::session(&agent).await, Mcp::modern(&agent));
    for client in [&session, &modern] {
        client.tools().await;
        client.search(&json!({"query": "look"})).await;
        for (variant, tool) in [("read", "old:look"), ("read", "new:look"), ("write", "old:note")] {
            client.run(variant, tool, &json!({})).await.ok();
        }
        client.run("read", "old:note", &json!({})).await.refused("server_mismatch");
        client.run("read", "old:nothing", &json!({})).await.refused("not_found");
        for tool in ["new:sorry", "new:params", "old:strange", "new:late"] {
            client.run("read", tool, &json!({})).await;
        }
    }
    Mcp::modern(&agent).at(DIRECT).call("new:look", &json!({})).await.ok();
    old.expire_sessions();
    session.run("read", "old:look", &json!({})).await.ok();
    let ended = session.api.send(session.http(Method::DELETE)).await;
    assert_eq!(ended.status, 204, "{ended:?}");
    tenant
}

/// How long the slow tool takes.
const SLOW: Duration = Duration::from_millis(60);
