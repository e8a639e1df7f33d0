//! The official clients, against real servers: what their users will run.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::{Api, Stage, Tenant, Tool, Upstream};

const INSTALL: &str = "run tests/it/setup.sh first";
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const START_WAIT_MAX: Duration = Duration::from_secs(30);

/// Where `setup.sh` puts the servers.
fn tools() -> PathBuf {
    std::env::var_os("MCPPROXY_TEST_TOOLS")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("demo"), PathBuf::from)
}

/// A real server; ends with its standard input.
struct Real {
    url: String,
    _child: Child,
}

async fn run(program: &str, arguments: &[&str]) -> Real {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; {INSTALL}"));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let started = tokio::time::timeout(START_WAIT_MAX, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(url) = line.strip_prefix("listening ") {
                return url.trim().to_owned();
            }
        }
        panic!("{program} {arguments:?} ended without listening; {INSTALL}");
    });
    let url = started.await.unwrap();
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Real { url, _child: child }
}

async fn everything() -> Real {
    let server = tools().join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    assert!(server.exists(), "{} is missing; {INSTALL}", server.display());
    let bridge = format!("{ROOT}/deploy/demo/bridge.mjs");
    run(
        "node",
        &[&bridge, "--port", "0", "--exit-on-stdin-close", "--", "node", server.to_str().unwrap(), "stdio"],
    )
    .await
}

async fn modern_server() -> Real {
    let python = tools().join("venv/bin/python");
    assert!(python.exists(), "{} is missing; {INSTALL}", python.display());
    let server = format!("{ROOT}/deploy/demo/modern_server.py");
    run(python.to_str().unwrap(), &[&server, "--port", "0", "--exit-on-stdin-close"]).await
}

async fn register(tenant: &Tenant, name: &str, url: &str) -> Vec<Value> {
    let body = json!({"name": name, "kind": "http", "url": url});
    let made = tenant.platform.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(made["last_error"], Value::Null, "{made}");
    tenant.platform.items(&format!("/api/v1/servers/{name}/tools")).await
}

/// Runs a client's steps; fails when it could not connect.
async fn client(script: &str, api: &Api, gateway: &str, steps: &Value, more: &[&str]) -> Value {
    let folder = format!("{ROOT}/tests/clients");
    let modules = PathBuf::from(&folder).join("node_modules/@modelcontextprotocol");
    assert!(modules.exists(), "{} is missing; {INSTALL}", modules.display());
    let url = format!("{gateway}/mcp");
    let key = api.key.as_deref().unwrap_or_default();
    let steps = steps.to_string();
    let arguments = [&[script, &url, key, &steps], more].concat();
    let output = Command::new("node").args(arguments).current_dir(folder).kill_on_drop(true).output().await;
    let output = output.unwrap_or_else(|error| panic!("node: {error}; {INSTALL}"));
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{script}: {}", String::from_utf8_lossy(&output.stderr)));
    assert!(output.status.success(), "{script}: {report}");
    report
}

fn call(variant: &str, name: &str, args: &Value) -> Value {
    json!({"call": {"name": format!("call_tool_{variant}"), "arguments": {"name": name, "args": args}}})
}

/// The names of a `list` step.
fn listed(step: &Value) -> Vec<&str> {
    step["ok"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{step}"))
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_against_every_server() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (everything, modern) = tokio::join!(everything(), modern_server());
    let own = Upstream::handshake(vec![
        Tool::reads("look"),
        Tool::writes("fails").returns(r#"{"content":[{"type":"text","text":"it failed"}],"isError":true}"#),
        Tool::writes("rpc").says(crate::support::upstream::Say::RpcError(
            r#"{"code":-31000,"message":"no such thing","data":{"n":1}}"#.to_owned(),
        )),
    ])
    .await;
    let old_tools = register(&tenant, "everything", &everything.url).await;
    assert!(old_tools.iter().any(|tool| tool["name"] == "echo"), "{old_tools:?}");
    let new_tools = register(&tenant, "modern", &modern.url).await;
    tenant.add("own", &own).await;
    let server = |name: &str| format!("/api/v1/servers/{name}");
    let era = async |name: &str| tenant.platform.get(&server(name)).await.expect(200)["era"].clone();
    assert_eq!((era("everything").await, era("modern").await), (json!("handshake"), json!("modern")));
    // a tool of the modern server that reads and needs no arguments
    let simple = new_tools.iter().find(|tool| {
        tool["tier"] == "read"
            && tool["definition"]["inputSchema"]["required"].as_array().is_none_or(Vec::is_empty)
    });
    let simple = simple.unwrap_or_else(|| panic!("{new_tools:?}"))["name"].as_str().unwrap().to_owned();
    let agent = tenant.agent().await;
    let mut long =
        call("read", "everything:trigger-long-running-operation", &json!({"duration": 0.3, "steps": 3}));
    long["progress"] = json!(true);
    let steps = json!([
        {"list": true},
        {"call": {"name": "retrieve_tools", "arguments": {"query": "echo a message"}}},
        call("destructive", "everything:echo", &json!({"message": "hello-through-the-gateway"})),
        call("read", &format!("modern:{simple}"), &json!({})),
        call("read", "own:look", &json!({"n": 1})),
        call("write", "own:fails", &json!({})),
        call("write", "own:rpc", &json!({})),
        call("read", "own:rpc", &json!({})),
        long,
        {"call": {"name": "no_such_tool", "arguments": {}}},
    ]);
    let runs: [(&str, &[&str], &str); 4] = [
        ("sdk1.mjs", &[], "2025-11-25"),
        ("client2.mjs", &["--mode", "modern"], "2026-07-28"),
        ("client2.mjs", &["--mode", "legacy"], "2025-11-25"),
        ("client2.mjs", &["--mode", "auto"], "2026-07-28"),
    ];
    for (script, mode, version) in runs {
        let report = client(script, &agent, &stage.gateway.url, &steps, mode).await;
        let who = format!("{script} {mode:?}");
        assert_eq!(report["protocolVersion"], version, "{who}: {report}");
        let step = |at: usize| &report["steps"][at];
        for name in ["retrieve_tools", "call_tool_read", "call_tool_write", "call_tool_destructive"] {
            assert!(listed(step(0)).contains(&name), "{who}: {}", step(0));
        }
        let found = &step(1)["ok"]["structuredContent"]["tools"];
        assert!(
            found.as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "everything:echo")),
            "{who}: {}",
            step(1)
        );
        assert!(step(2)["ok"].to_string().contains("hello-through-the-gateway"), "{who}: {}", step(2));
        assert_ne!(step(3)["ok"]["content"], json!(null), "{who}: {}", step(3));
        assert_eq!(step(4)["ok"]["content"][0]["text"], r#"{"n":1}"#, "{who}: {}", step(4));
        assert_eq!(step(5)["ok"]["isError"], true, "{who}: {}", step(5));
        assert_eq!(step(6)["error"]["code"], -31000, "{who}: {}", step(6));
        assert_eq!(step(6)["error"]["data"], json!({"n": 1}), "{who}: {}", step(6));
        assert_eq!(step(7)["ok"]["structuredContent"]["code"], "server_mismatch", "{who}: {}", step(7));
        assert_eq!(step(9)["error"]["code"], -32602, "{who}: {}", step(9));
        assert!(step(8)["ok"].to_string().contains("completed"), "{who}: {}", step(8));
        // a client may drop an update that comes together with the result, so the wire counts
        let updates = wire(&report).filter(|message| message["method"] == "notifications/progress");
        let progress: Vec<Value> = updates.map(|message| message["params"]["progress"].clone()).collect();
        assert_eq!(progress, [1, 2, 3], "{who}");
        assert_ne!(report["progress"], json!([]), "{who}");
        on_the_wire(&report, version, &who);
    }
}

/// Every message the client was sent.
fn wire(report: &Value) -> impl Iterator<Item = Value> {
    let bodies = report["wire"].as_array().unwrap().iter();
    bodies.map(|body| serde_json::from_str(body.as_str().unwrap()).unwrap())
}

/// `resultType` is in every modern result and in no other.
fn on_the_wire(report: &Value, version: &str, who: &str) {
    let mut results = 0;
    for message in wire(report) {
        if !message["result"].is_object() {
            continue;
        }
        results += 1;
        let is_modern = version == "2026-07-28";
        assert_eq!(message["result"]["resultType"] == "complete", is_modern, "{who}: {message}");
        assert!(is_modern || !message.to_string().contains("resultType"), "{who}: {message}");
    }
    assert!(results >= 7, "{who}: only {results} results on the wire");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_told_so() {
    let stage = Stage::start().await;
    for (script, mode) in [("sdk1.mjs", [].as_slice()), ("client2.mjs", ["--mode", "auto"].as_slice())] {
        let folder = format!("{ROOT}/tests/clients");
        let url = format!("{}/mcp", stage.gateway.url);
        let arguments = [&[script, &url, "mcpk_wrong", "[]"], mode].concat();
        let output =
            Command::new("node").args(arguments).current_dir(folder).kill_on_drop(true).output().await;
        let output = output.unwrap_or_else(|error| panic!("node: {error}; {INSTALL}"));
        assert_eq!(output.status.code(), Some(1), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let statuses: Vec<&Value> =
            report["http"].as_array().unwrap().iter().map(|http| &http["status"]).collect();
        assert!(statuses.contains(&&json!(401)), "{script}: {report}");
    }
}
