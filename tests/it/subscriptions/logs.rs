//! Log messages of servers in the middle of a call: told to the session that set a level, and to requests that name one.

use serde_json::{Value, json};

use super::{NO_RELIST, ON};
use crate::support::upstream::Say;
use crate::support::{Gateway, Mcp, Outcome, Stage, Tool, Upstream, settle};

const SAID: [&str; 3] = [
    r#"{"level":"debug","data":"quiet"}"#,
    r#"{"level":"warning","logger":"disk","data":"full"}"#,
    r#"{"level":"emergency","data":{"on":"fire"}}"#,
];

/// Calls a tool, and returns the level and the logger of each log message that comes before the answer.
pub async fn heard(client: &Mcp, tool: &str, meta: &str) -> Vec<(String, String)> {
    let params = format!(r#"{{"name":"call_tool_read","arguments":{{"name":"{tool}","args":{{}}}}{meta}}}"#);
    let outcome = Outcome { answer: client.request("tools/call", &params).await };
    assert_eq!(outcome.result()["content"], json!([]), "{}", outcome.raw());
    let text = |event: &Value, name: &str| event["params"][name].as_str().unwrap_or_default().to_owned();
    let is_log = |event: &&Value| event["method"] == "notifications/message";
    outcome
        .events()
        .iter()
        .filter(is_log)
        .map(|event| (text(event, "level"), text(event, "logger")))
        .collect()
}

#[tokio::test]
async fn only_who_set_a_level_hears_what_a_server_says_that_may() {
    let stage = Stage::with(&[ON, NO_RELIST]).await;
    let other = Gateway::start(&stage.database, &[ON, NO_RELIST]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let tools = || vec![Tool::reads("look").says(Say::Logs(SAID.to_vec()))];
    let mut upstreams = Vec::new();
    for (name, logging) in [("old", true), ("new", true), ("mute", false)] {
        let upstream =
            if name == "new" { Upstream::modern(tools()).await } else { Upstream::handshake(tools()).await };
        tenant.add_with(name, &upstream, json!({"relay": {"logging": logging}})).await;
        upstreams.push(upstream);
    }
    let warnings = |server: &str| {
        [("warning", format!("{server}/disk")), ("emergency", server.to_owned())]
            .map(|(level, logger)| (level.to_owned(), logger))
    };
    let (session, stranger) = (Mcp::session(&agent).await, Mcp::session(&agent).await);
    assert_eq!(heard(&session, "old:look", "").await, [], "no level is set");
    // set at one replica, and it holds at the other
    let there = Mcp::in_session(&other.ask_as(&agent), session.session_id());
    let set = there.request("logging/setLevel", r#"{"level":"warning"}"#).await.json();
    assert_eq!(set["result"], json!({}), "{set}");
    settle(warnings("old").to_vec(), super::TOLD, || heard(&session, "old:look", "")).await;
    assert_eq!(heard(&there, "new:look", "").await, warnings("new"));
    assert_eq!(heard(&session, "mute:look", "").await, []);
    assert_eq!(heard(&stranger, "old:look", "").await, []);
    let modern = Mcp::modern(&agent);
    let meta = r#","_meta":{"io.modelcontextprotocol/logLevel":"warning"}"#;
    for server in ["old", "new"] {
        assert_eq!(heard(&modern, &format!("{server}:look"), meta).await, warnings(server));
        assert_eq!(heard(&modern, &format!("{server}:look"), "").await, []);
    }
    assert_eq!(heard(&modern, "mute:look", meta).await, []);
    // another replica stored another level, and its notice never came
    super::lose_notices(&stage, "update client_sessions set log_level = 'emergency'").await;
    for client in [&session, &there] {
        settle(warnings("old")[1..].to_vec(), super::TOLD, || heard(client, "old:look", "")).await;
    }
}

#[tokio::test]
async fn a_session_that_gave_way_to_others_hears_nothing_more() {
    let stage = Stage::with(&[ON, NO_RELIST]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look").says(Say::Logs(SAID.to_vec()))]).await;
    tenant.add_with("old", &upstream, json!({"relay": {"logging": true}})).await;
    let agent = tenant.agent_with(json!({"rate_limit": 50_000})).await;
    let session = Mcp::session(&agent).await;
    let set_level = async |client: &Mcp| {
        let set = client.request("logging/setLevel", r#"{"level":"warning"}"#).await.json();
        assert_eq!(set["result"], json!({}), "{set}");
    };
    set_level(&session).await;
    settle(2, super::TOLD, || async { heard(&session, "old:look", "").await.len() }).await;
    for _ in 0..50 {
        set_level(&Mcp::session(&agent).await).await;
    }
    settle(0, super::TOLD, || async { heard(&session, "old:look", "").await.len() }).await;
}
