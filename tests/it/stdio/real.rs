//! Official servers as they come from npm.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, node};

#[tokio::test]
async fn everything_and_filesystem() {
    let tools = std::env::var_os("MCPPROXY_TEST_TOOLS")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("demo"), PathBuf::from);
    let module =
        |name: &str| tools.join("npm/node_modules/@modelcontextprotocol").join(name).join("dist/index.js");
    assert!(module("server-everything").exists(), "run tests/it/setup.sh first");
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("hello.txt"), "Hello from a pipe.").unwrap();
    let commands = json!({
        "everything": {"argv": [node(), module("server-everything"), "stdio"], "tenants": ["*"]},
        "filesystem": {"argv": [node(), module("server-filesystem"), files.path()], "tenants": ["*"]},
    });
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands.to_string())]).await;
    let tenant = stage.tenant("acme").await;
    for name in ["everything", "filesystem"] {
        let added = super::add(&tenant.platform, name, name).await;
        assert_eq!((&added["last_error"], &added["era"]), (&Value::Null, &json!("handshake")), "{added}");
    }
    let client = Mcp::session(&tenant.agent().await).await;
    let path = files.path().join("hello.txt");
    let read = client.run("read", "filesystem:read_text_file", &json!({ "path": path })).await.ok();
    assert_eq!(read["content"][0]["text"], "Hello from a pipe.");
    let sum = client.run("read", "everything:get-sum", &json!({"a": 2, "b": 3})).await.ok();
    assert!(sum["content"][0]["text"].as_str().unwrap().contains('5'), "{sum}");
}
