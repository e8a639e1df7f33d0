//! Programs of the deployment as upstream servers.

mod announces;
mod ends;
mod hostile;
mod idle;
mod logs;
mod one;
mod real;
mod tenants;
mod wire;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, Mcp, Stage, Tenant, settle};

/// Within this something is done that takes its time: a program's grace to end is 4 s.
const SOON: Duration = Duration::from_secs(10);
/// The test program.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stdio/program.py");
/// What nobody but the program may see.
const SECRET: &str = "only-the-program-knows-this";

/// `stdio.commands` with the test program as `NAME`, doing `VICE` wrong, for these tenants.
pub fn commands(entries: &[(&str, &str, &[&str])]) -> String {
    let entry = |vice: &str, tenants: &[&str]| json!({"argv": ["python3", SCRIPT, vice], "env": {"PROGRAM_OWN": SECRET}, "tenants": tenants});
    let all = entries.iter().map(|(name, vice, tenants)| ((*name).to_owned(), entry(vice, tenants)));
    Value::Object(all.collect()).to_string()
}

/// A gateway with the test program as `prog` for everybody, and a tenant that has it as `up`.
async fn stage(settings: &[(&str, &str)]) -> (Stage, Tenant, Mcp) {
    let commands = commands(&[("prog", "none", &["*"])]);
    let mut all = vec![("MCPPROXY__STDIO__COMMANDS", commands.as_str())];
    all.extend(settings);
    let stage = Stage::with(&all).await;
    let tenant = stage.tenant("acme").await;
    let added = add(&tenant.platform, "up", "prog").await;
    assert_eq!((&added["connection"], &added["last_error"]), (&json!("connected"), &Value::Null), "{added}");
    let client = Mcp::session(&tenant.agent().await).await;
    (stage, tenant, client)
}

async fn add(api: &Api, name: &str, command: &str) -> Value {
    let body = json!({"name": name, "kind": "stdio", "command": command});
    api.post("/api/v1/servers", &body).await.expect(201)
}

/// Calls a tool of `up`; gives its text.
async fn text(client: &Mcp, tool: &str, args: Value) -> String {
    let result = client.run("read", &format!("up:{tool}"), &args).await.ok();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

async fn pid(client: &Mcp) -> u32 {
    text(client, "pid", json!({})).await.parse().unwrap()
}

/// Whether a process runs; one that has ended and waits for its parent does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// Waits until none of these processes runs.
async fn gone(pids: &[u32]) {
    settle(vec![], SOON, || async { pids.iter().filter(|pid| runs(**pid)).copied().collect::<Vec<_>>() })
        .await;
}

/// The lines of the log of `up`.
async fn log(api: &Api) -> Vec<String> {
    let page = api.get("/api/v1/servers/up/logs?limit=500").await.expect(200);
    let lines = page["items"].as_array().unwrap().iter();
    lines.map(|line| line["line"].as_str().unwrap().to_owned()).collect()
}
