//! Calls over the pipes of a program.

use serde_json::{Value, json};

use super::{SOON, commands, pid, stage, text};
use crate::rounds::state_of;
use crate::subscriptions::logs::heard;
use crate::support::{Collector, Mcp, Outcome, Stage, settle};

const RESULT: &str = r#"{"zebra":{"y":1,"x":[ ]},"content":[{"type":"hologram","data":{"b":2,"a":1}}],"structuredContent":{"big":18446744073709551617,"tiny":1e-400,"exact":1.10},"_meta":{"vendor/trace":{"z":[1.0]}}, "isError":false}"#;

#[tokio::test]
async fn results_reach_the_caller_whole_and_calls_run_side_by_side() {
    let (_stage, tenant, client) = stage(&[]).await;
    assert_eq!(client.run("read", "up:raw", &json!({})).await.raw(), RESULT);
    // arguments of several lines, which would be several messages
    let args = r#"{"name":"up:say","args":{ "text":
        "one"}}"#;
    client.call_raw("call_tool_read", args).await.ok();

    let slow = client.again();
    let slow = tokio::spawn(async move { text(&slow, "slow", json!({})).await });
    let first = pid(&client).await;
    let others = futures_util::future::join_all((0..20).map(|_| pid(&client))).await;
    assert!(others.iter().all(|other| *other == first), "one program: {others:?}");
    assert!(!slow.is_finished());
    assert_eq!(slow.await.unwrap(), "slow");

    let asked: Vec<Value> = serde_json::from_str(&text(&client, "asks", json!({})).await).unwrap();
    assert_eq!(asked[0], json!({"jsonrpc": "2.0", "id": "ping", "result": {}}));
    assert_eq!(asked[1]["error"]["code"], -32601, "{asked:?}");

    let shown = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!(
        [&shown["kind"], &shown["command"], &shown["url"], &shown["era"]],
        [&json!("stdio"), &json!("prog"), &Value::Null, &json!("handshake")],
        "{shown}"
    );
}

#[tokio::test]
async fn progress_comes_and_cancellations_go() {
    let (_stage, _tenant, client) = stage(&[]).await;
    let params = r#"{"name":"call_tool_read","arguments":{"name":"up:slow"},"_meta":{"progressToken":"p"}}"#;
    let running = client.begin("77", "tools/call", params).await;
    let body = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#;
    assert_eq!(client.post(body).await.status, 202);
    let rest = running.text().await.unwrap();
    assert!(!rest.contains("\"slow\""), "{rest}");
    settle("1".to_owned(), SOON, || text(&client, "taken_back", json!({}))).await;
}

#[tokio::test]
async fn a_program_asks_a_modern_client_and_gets_the_answer() {
    let (_stage, tenant, _client) = stage(&[]).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"relay": {"sampling": true}})).await.expect(200);
    let modern = Mcp::modern(&tenant.agent().await).declaring(r#"{"sampling":{}}"#);
    let call = async |more: String| {
        let params = format!(r#"{{"name":"call_tool_read","arguments":{{"name":"up:asks"}}{more}}}"#);
        Outcome { answer: modern.request("tools/call", &params).await }
    };
    let reply = r#"{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}"#;
    let state = state_of(&call(String::new()).await);
    let more = format!(r#","inputResponses":{{"question":{reply}}},"requestState":"{state}""#);
    let done = call(more).await.ok();
    let answers: Vec<Value> = serde_json::from_str(done["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(answers[1]["result"], serde_json::from_str::<Value>(reply).unwrap(), "{answers:?}");
}

#[tokio::test]
async fn what_a_program_may_not_ask_is_recorded() {
    let (_stage, tenant, _client) = stage(&[]).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"relay": {"elicitation": false}})).await.expect(200);
    let agent = tenant.agent().await;
    let client = Mcp::modern(&agent).declaring(r#"{"sampling":{}}"#);
    let answers: Vec<Value> = serde_json::from_str(&text(&client, "asks", json!({})).await).unwrap();
    assert_eq!(answers[1]["error"], json!({"code": -32601, "message": "Method not found"}), "{answers:?}");
    let recorded = tenant.records(&format!("type=question&key={}", agent.id), 1).await;
    assert_eq!(
        (&recorded[0]["tool"], &recorded[0]["status"]),
        (&json!("sampling/createMessage"), &json!("blocked"))
    );
}

#[tokio::test]
async fn what_a_program_says_reaches_no_session_soon_after_a_call_of_another() {
    let (_stage, tenant, _client) = stage(&[]).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"relay": {"logging": true}})).await.expect(200);
    let agent = tenant.agent().await;
    let (first, second) = (Mcp::session(&agent).await, Mcp::session(&agent).await);
    for session in [&first, &second] {
        let set = session.request("logging/setLevel", r#"{"level":"warning"}"#).await.json();
        assert_eq!(set["result"], json!({}), "{set}");
    }
    let said = vec![("error".to_owned(), "up/disk".to_owned())];
    settle(said.clone(), SOON, || heard(&first, "up:logs", "")).await;
    assert_eq!(heard(&first, "up:logs", "").await, said);
    assert_eq!(heard(&second, "up:logs", "").await, [], "it may be about the call before");
    let modern = Mcp::modern(&agent);
    let meta = r#","_meta":{"io.modelcontextprotocol/logLevel":"warning"}"#;
    assert_eq!(heard(&modern, "up:logs", meta).await, []);
    assert_eq!(heard(&first, "up:logs", "").await, []);
}

#[tokio::test]
async fn a_program_of_the_modern_era_is_found_out() {
    let commands = commands(&[("prog", "modern", &["*"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    let added = super::add(&tenant.platform, "up", "prog").await;
    assert_eq!((&added["era"], &added["last_error"]), (&json!("modern"), &Value::Null), "{added}");
    let client = Mcp::modern(&tenant.agent().await);
    assert_ne!(pid(&client).await, 0);
}

#[tokio::test]
async fn a_program_is_told_what_its_call_is_a_part_of() {
    let collector = Collector::start().await;
    let (_stage, _tenant, client) = stage(&collector.settings()).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let params = json!({"name": "call_tool_read", "arguments": {"name": "up:meta"},
        "_meta": {"traceparent": parent, "vendor/x": 1}});
    let answer = client.request("tools/call", &params.to_string()).await.expect(200);
    let told: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    let spans = collector.trace("4bf92f3577b34da6a3ce929d0e0e4736", 2).await;
    let expected = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", spans[1].id);
    assert_eq!(told, json!({"traceparent": expected, "vendor/x": 1}));
    assert_eq!(
        (spans[1].get("network.transport"), spans[1].get("mcp.protocol.version")),
        ("pipe", "2025-11-25")
    );
    assert_ne!(spans[1].get("jsonrpc.request.id"), "");
}
