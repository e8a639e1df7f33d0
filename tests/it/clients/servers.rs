//! Real MCP servers, run as their users run them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::{Tenant, node};

/// What to do about a missing program.
pub const INSTALL: &str = "run tests/it/setup.sh first";
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const START_WAIT_MAX: Duration = Duration::from_secs(30);

/// Where `setup.sh` puts everything but the clients for JavaScript.
pub fn tools() -> PathBuf {
    std::env::var_os("MCPPROXY_TEST_TOOLS")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("demo"), PathBuf::from)
}

/// The text of a path that must exist.
#[track_caller]
pub fn installed(path: &Path) -> String {
    assert!(path.exists(), "{} is missing; {INSTALL}", path.display());
    path.to_str().unwrap().to_owned()
}

/// A real server; ends with its standard input.
pub struct Real {
    pub url: String,
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

/// The programs of the deployment: the reference server of the handshake revisions.
pub fn commands() -> String {
    let module = tools().join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    json!({"everything": {"argv": [node(), installed(&module), "stdio"], "tenants": ["*"]}}).to_string()
}

/// A server of revision 2026-07-28, on fastmcp.
pub async fn modern() -> Real {
    let python = installed(&tools().join("venv/bin/python"));
    let server = format!("{ROOT}/deploy/demo/modern_server.py");
    run(&python, &[&server, "--port", "0", "--exit-on-stdin-close"]).await
}

/// Adds the server that is described so; gives its tools.
pub async fn register(tenant: &Tenant, server: &Value) -> Vec<Value> {
    let made = tenant.platform.post("/api/v1/servers", server).await.expect(201);
    assert_eq!(made["last_error"], Value::Null, "{made}");
    tenant.platform.items(&format!("/api/v1/servers/{}/tools", server["name"].as_str().unwrap())).await
}
